//! Responses about changes of the policy: the result of one change, its effects on nodes and work,
//! and the history of all changes.

use hayward_vocabulary::{NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Policy, PolicyView};

/// Answer of `PUT /v1/policy`: the policy as it is now, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyAnswer {
    #[serde(flatten)]
    pub view: PolicyView,
    /// Differences from the policy before, as sentences.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Parts of the document without effect, as sentences.
    #[serde(default)]
    pub notes: Vec<String>,
    /// For a dry run: what would move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<PolicyMoves>,
}

/// Nodes and work that would move if a policy came into force now. Lists have the first thousand
/// entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyMoves {
    /// Rounds planned with the policy.
    pub rounds: u64,
    /// True if no further round would change anything.
    pub settled: bool,
    /// Nodes that move to another pool.
    pub nodes: Vec<NodeShift>,
    /// Work that loses its class, or is served by another or changed one.
    pub work: Vec<WorkShift>,
    /// Entitlements of classes that would change.
    pub classes: Vec<ClassShift>,
    /// Entitlements of users that would change, by class.
    pub users: Vec<UserShift>,
    /// Work that would get more processes, with their number.
    pub started: Vec<ProcessShift>,
    /// Work that would lose processes, with their number.
    pub preempted: Vec<ProcessShift>,
}

impl PolicyMoves {
    /// Returns true if nothing would change.
    pub fn is_empty(&self) -> bool {
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
    /// Name of the pool.
    pub before: String,
    pub after: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkShift {
    pub work: WorkId,
    pub user: UserName,
    /// The class that serves the work now; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The class that would serve the work; absent if none would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassShift {
    pub class: String,
    /// Entitlement in quanta.
    pub due_before: u64,
    pub due_after: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserShift {
    pub user: UserName,
    pub class: String,
    /// Entitlement in quanta.
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
    /// Differences from the generation before, as sentences.
    pub changes: Vec<String>,
    /// Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// `GET /v1/policy/history`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyHistory {
    pub versions: Vec<PolicyVersion>,
    /// Start of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The list is at least as new as this revision.
    #[serde(default)]
    pub revision: u64,
}
