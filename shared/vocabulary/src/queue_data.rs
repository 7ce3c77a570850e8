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
    /// Priority within the queue. Work with a higher number is served first.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Groups of the user at submission.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<Gang>,
    /// The only node that the work may run on. Other work there is preempted for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_node: Option<NodeName>,
    /// True if the work may preempt other work. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub preempts: bool,
    /// True if the work is preempted before work without this flag. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub preemptable: bool,
    /// True if the rest of the application depends on this work, so that it is preempted last.
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

/// A gang: all parts of one application that name it get their minimum number of processes
/// together, or none gets any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gang {
    pub name: String,
    /// Minimum number of processes of this part.
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
