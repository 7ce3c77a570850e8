//! Messages between frontend and core. A message may arrive twice, so applying it twice must change
//! nothing.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size, Timestamp, UserName};
use serde::{Deserialize, Serialize};

use crate::core_state;
use crate::gang_policy::Policy;
use crate::ids::{AppId, GroupName, TaskId};
use crate::task_groups::TaskGroup;

/// Why an allocation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Termination {
    /// The cause is unknown, or the node was lost.
    Unknown,
    /// The owner or the frontend ended it.
    StoppedByRm,
    Timeout,
    PreemptedByScheduler,
    PlaceholderReplaced,
}

/// Request of one task or placeholder for an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Id of the task or placeholder. It is also the key of the later allocation.
    pub key: TaskId,
    pub size: Size,
    pub priority: i32,
    #[serde(default)]
    pub group: Option<GroupName>,
    pub placeholder: bool,
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    pub created_at: Timestamp,
}

/// The part of an application that the core needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    pub id: AppId,
    pub queue: String,
    pub user: UserName,
    pub tags: BTreeMap<String, String>,
    pub task_groups: Vec<TaskGroup>,
    pub policy: Policy,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToCore {
    Submit(Submission),
    Ask(Ask),
    ReleaseAsk {
        key: TaskId,
    },
    ReleaseAllocation {
        key: TaskId,
        termination: Termination,
    },
    /// A released allocation has ended.
    Confirm {
        key: TaskId,
        termination: Termination,
    },
    Remove,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToFront {
    Accepted,
    Rejected {
        reason: String,
    },
    Updated {
        state: core_state::State,
        message: Option<String>,
    },
    Allocated {
        key: TaskId,
        node: NodeName,
    },
    AskRejected {
        key: TaskId,
        reason: String,
    },
    /// Asks for the release of all these allocations in one message.
    Release {
        keys: Vec<TaskId>,
        termination: Termination,
    },
    /// These asks are withdrawn.
    ReleaseAsks {
        keys: Vec<TaskId>,
        termination: Termination,
    },
    /// The core created a placeholder to repair a gang (I13).
    Repaired {
        ask: Ask,
        node: NodeName,
    },
}
