//! What a change of the policy does, and what was changed before.

use hayward_vocabulary::{NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Policy, PolicyView};

/// Answer of `PUT /v1/policy`: the policy as it is now, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyAnswer {
    #[serde(flatten)]
    pub view: PolicyView,
    /// What differs from the policy before, a line for each.
    #[serde(default)]
    pub changes: Vec<String>,
    /// What the document says without effect.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Of a dry run: what would move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<PolicyMoves>,
}

/// What would move if a policy came into force now. Lists show the first thousand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyMoves {
    /// Rounds that were planned ahead with the policy.
    pub rounds: u64,
    /// Nothing more would change after them.
    pub settled: bool,
    /// Nodes that come into another pool.
    pub nodes: Vec<NodeShift>,
    /// Work that loses its class, or is served by another or changed one.
    pub work: Vec<WorkShift>,
    /// What each class is due, where that changes.
    pub classes: Vec<ClassShift>,
    /// What each user is due in each class, where that changes.
    pub users: Vec<UserShift>,
    /// Work that would get processes it has not, and how many.
    pub started: Vec<ProcessShift>,
    /// Work that would have processes taken back, and how many.
    pub preempted: Vec<ProcessShift>,
}

impl PolicyMoves {
    /// Nothing would be other than it is.
    pub fn is_still(&self) -> bool {
        let (rounds, settled) = (self.rounds, self.settled);
        *self
            == Self {
                rounds,
                settled,
                ..Self::default()
            }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeShift {
    pub node: NodeName,
    pub before: String,
    pub after: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkShift {
    pub work: WorkId,
    pub user: UserName,
    /// Absent when no class served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Absent when no class would serve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassShift {
    pub class: String,
    /// Quanta.
    pub due_before: u64,
    pub due_after: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserShift {
    pub user: UserName,
    pub class: String,
    /// Quanta.
    pub due_before: u64,
    pub due_after: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessShift {
    pub work: WorkId,
    pub user: UserName,
    pub processes: u64,
}

/// One generation of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyVersion {
    pub generation: u64,
    pub changed_by: String,
    pub changed_at: Timestamp,
    /// What differed from the generation before, a line for each.
    pub changes: Vec<String>,
    /// Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// `GET /v1/policy/history`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyHistory {
    pub versions: Vec<PolicyVersion>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// What is listed is at least as new.
    #[serde(default)]
    pub revision: u64,
}
