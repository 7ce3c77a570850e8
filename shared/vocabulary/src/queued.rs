//! Data of a piece of work for the planner of queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::NodeName;

/// Its place in a queue. Work that says this is served by the planner of queues, and by no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Queued {
    /// The top-level pool; absent means the first that has queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// As it was asked for: a full path, or a name below the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What it is a part of; absent means it is an application of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The higher number is served first.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Of the user, as they were when it was submitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<Gang>,
    /// It may run there and nowhere else, and makes room there (10.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_node: Option<NodeName>,
    /// May take from others. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub preempts: bool,
    /// Is taken before those that would rather not be. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub preemptable: bool,
    /// The one the others of its application hang on; taken last.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub originator: bool,
}

impl Default for Queued {
    fn default() -> Self {
        Self {
            pool: None,
            queue: None,
            application: None,
            priority: 0,
            groups: Vec::new(),
            tags: BTreeMap::new(),
            gang: None,
            required_node: None,
            preempts: true,
            preemptable: true,
            originator: false,
        }
    }
}

/// All parts of one application that name the same gang get their least number of processes
/// together, or none gets any (17.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gang {
    pub name: String,
    /// Processes of this part without which the gang is of no use.
    pub min: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_true(flag: &bool) -> bool {
    *flag
}
