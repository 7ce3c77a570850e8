//! All that the two sides say to each other (3.5). In the fleet each travels as a publication; so
//! every one may come twice, and none may be needed twice.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size, Timestamp, UserName};
use serde::{Deserialize, Serialize};

use crate::core;
use crate::groups::TaskGroup;
use crate::ids::{AppId, GroupName, TaskId};
use crate::policy::Policy;

/// Why an allocation ends (2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Termination {
    /// Its node went away, too.
    Unknown,
    StoppedByRm,
    Timeout,
    PreemptedByScheduler,
    PlaceholderReplaced,
}

/// Pending demand of one task (1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
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

/// What the core has to know of an application.
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
    /// What the core asked back is gone.
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
        state: core::State,
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
    /// Give these back: one message for all of them.
    Release {
        keys: Vec<TaskId>,
        termination: Termination,
    },
    /// These asks are no longer served.
    ReleaseAsks {
        keys: Vec<TaskId>,
        termination: Termination,
    },
    /// A placeholder that the core made for a gang it repairs (I13).
    Repaired {
        ask: Ask,
        node: NodeName,
    },
}
