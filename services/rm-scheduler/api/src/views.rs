//! Responses of the HTTP API about allocations and rounds, without secrets.

use std::collections::BTreeMap;

use hayward_vocabulary::{
    AllocationId, Exit, NodeName, Receipt, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AllocationEntry, AllocationState, Vacate, VerdictEntry};

/// An allocation without its launch, which may hold secrets.
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
    /// Start of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `GET /v1/rounds/{n}`: what one round decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoundView {
    pub round: u64,
    pub at: Timestamp,
    /// Microseconds of planning.
    pub planning_us: u64,
    pub grants: Vec<AllocationId>,
    pub vacated: BTreeMap<String, String>,
    /// Preemptions with beneficiary, loss and outcome so far.
    #[serde(default)]
    pub receipts: Vec<Receipt>,
    /// The first thousand verdicts that changed; `verdicts` has all.
    pub waiting: Vec<VerdictEntry>,
    /// Parts of the plan that the check refused; empty unless there is a defect.
    pub refused: Vec<String>,
    /// Why it cannot be replayed; absent when its inputs are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_inputs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoundList {
    /// Newest first.
    pub rounds: Vec<RoundView>,
}
