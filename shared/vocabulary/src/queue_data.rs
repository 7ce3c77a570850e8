//! Data of a piece of work for the planner of queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::NodeName;

/// Place of a piece of work in a queue. Only the planner of queues serves such work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Queued {
    /// The top-level pool; absent means the first that has queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Requested queue: a full path, or a name below the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Application that it is a part of; absent means that it is its own application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The higher number is served first.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Groups of the user at submission.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<Gang>,
    /// The only node it may run on. Work there is preempted for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_node: Option<NodeName>,
    /// It may preempt other work. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub preempts: bool,
    /// It is preempted before work without this flag. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub preemptable: bool,
    /// The rest of its application depends on it, so it is preempted last.
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
/// together, or none gets any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gang {
    pub name: String,
    /// Least number of processes of this part.
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
