//! What people read of the scheduler.

use std::collections::BTreeMap;

use hayward_vocabulary::{
    AllocationId, Exit, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AllocationEntry, AllocationState, Vacate, VerdictEntry};

/// `GET /v1/shares`: the arithmetic from capacity to each piece of work, in quanta.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shares {
    pub round: u64,
    pub at: Timestamp,
    /// Quanta of all nodes that take work.
    pub capacity: u64,
    /// Quanta held by anything that has not ended.
    pub held: u64,
    pub free: u64,
    pub classes: Vec<ClassShare>,
    /// Since the fleet's first round.
    pub ledger: Vec<LedgerLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassShare {
    pub class: String,
    pub weight: u64,
    /// Quanta this class is due in this round, given who asks and for how much.
    pub due: u64,
    pub held: u64,
    pub users: Vec<UserShare>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserShare {
    pub user: UserName,
    pub due: u64,
    pub held: u64,
    pub work: Vec<WorkShare>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkShare {
    pub work: WorkId,
    pub kind: WorkKind,
    /// Quanta of one process.
    pub order: u64,
    /// Processes it could use.
    pub wanted: u64,
    /// Processes it is due.
    pub counted: u64,
    /// Processes it has, without those told to leave.
    pub current: u64,
    pub leaving: u64,
}

/// Quanta times milliseconds: what a user was due and what the user had (G15, I10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerLine {
    pub user: UserName,
    pub class: String,
    pub due_quantum_ms: u64,
    pub received_quantum_ms: u64,
}

/// An allocation as people see it: without what to launch, which may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationView {
    pub id: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub order: u64,
    pub size: Size,
    pub incarnation: u64,
    pub granted_at: Timestamp,
    pub state: AllocationState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacate: Option<Vacate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

impl From<&AllocationEntry> for AllocationView {
    fn from(entry: &AllocationEntry) -> Self {
        Self {
            id: entry.id.clone(),
            work: entry.work.clone(),
            kind: entry.kind,
            user: entry.user.clone(),
            class: entry.class.clone(),
            node: entry.node.clone(),
            order: entry.order,
            size: entry.size.clone(),
            incarnation: entry.incarnation,
            granted_at: entry.granted_at,
            state: entry.state,
            vacate: entry.vacate.clone(),
            exit: entry.exit.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationList {
    pub allocations: Vec<AllocationView>,
    pub revision: u64,
}

/// `GET /v1/rounds/{n}`: what one round decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoundView {
    pub round: u64,
    pub at: Timestamp,
    /// Microseconds spent planning.
    pub planning_us: u64,
    pub grants: Vec<AllocationId>,
    pub vacated: BTreeMap<String, String>,
    /// The first thousand verdicts that changed; `verdicts` has all.
    pub waiting: Vec<VerdictEntry>,
    /// Parts of the plan the check refused; always empty unless there is a defect.
    pub refused: Vec<String>,
    /// Why it cannot be replayed; absent when its inputs were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_inputs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoundList {
    /// Newest first.
    pub rounds: Vec<RoundView>,
}
