//! Response of `GET /v1/planners`: the planner of each top-level pool, and the state of external
//! planners.

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/planners`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Planners {
    /// The newest round.
    pub round: u64,
    pub at: Timestamp,
    /// Pools without parent, by name.
    pub pools: Vec<PoolPlanning>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolPlanning {
    pub pool: String,
    pub kind: PlannerKind,
    /// For `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsidePlanner>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannerKind {
    /// Weighted shares of classes, users and work.
    FairShare,
    /// Hierarchical queues.
    Capacity,
    /// An external program.
    Http,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutsidePlanner {
    pub url: String,
    pub timeout_ms: u64,
    /// A question is open.
    pub asking: bool,
    /// Failures in a row; 0 after an answer.
    pub failures: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<PlannerFailure>,
    /// When it is asked next without a change; absent if the pool lacks nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<PlannerAnswer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannerFailure {
    pub at: Timestamp,
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannerAnswer {
    pub at: Timestamp,
    pub took_ms: u64,
    /// Revision of the question.
    pub revision: u64,
    /// The round that used the answer; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_in: Option<u64>,
    /// Processes granted because of it.
    pub granted: u64,
    /// Allocations ordered to leave because of it.
    pub vacated: u64,
    /// Steps that were refused, or done in part.
    pub refusals: u64,
    /// The first hundred of them.
    pub refused: Vec<RefusedStep>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedStep {
    /// JSON pointer into the answer.
    pub at: String,
    /// The work or allocation, as the answer names it.
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub reason: StepRefusal,
    pub detail: String,
}

/// All reasons to refuse a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepRefusal {
    UnknownWork,
    /// The work or the allocation belongs to another planner.
    NotItsOwn,
    /// Its user may not use its class.
    NotAuthorised,
    /// The work needs no more processes.
    NotWanted,
    UnknownNode,
    /// The class of the work may not use the pool of the node.
    OutsidePool,
    /// The node takes no new work.
    NodeClosed,
    /// The work lists its nodes, and this one is not on the list.
    NotListed,
    /// The node is blocked for this work.
    Avoided,
    /// Work that it must not share this node with is there.
    KeptApart,
    NoRoom,
    /// The user is at the limit of non-preemptable space.
    OverAllotment,
    UnknownAllocation,
    LeavingAlready,
    /// The allocation is never preempted.
    NotPreemptable,
    /// No other work of the pool waits for the space.
    ServesNobody,
    /// The preemption budget of the hour is used up.
    OverBudget,
    /// The rules forbid it for another reason; the detail names it.
    NotAllowed,
    #[serde(other)]
    Unknown,
}
