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
    /// State of the external planner, if `kind` is `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<ExternalPlanner>,
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

/// State of one external planner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OutsidePlanner)]
pub struct ExternalPlanner {
    pub url: String,
    pub timeout_ms: u64,
    /// True while a request has no response.
    pub asking: bool,
    /// Number of consecutive failures; 0 after a response.
    pub failures: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<PlannerFailure>,
    /// Time of the next request if nothing changes before; absent if no work of the pool lacks a
    /// process.
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

/// The last response of an external planner, and its effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannerAnswer {
    pub at: Timestamp,
    pub took_ms: u64,
    /// Revision of the request.
    pub revision: u64,
    /// The round that used the response; absent until a round has used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_in: Option<u64>,
    /// Processes granted because of the response.
    pub granted: u64,
    /// Allocations ordered to leave because of the response.
    pub vacated: u64,
    /// Number of steps that were refused, or carried out in part.
    pub refusals: u64,
    /// The first hundred of these steps.
    pub refused: Vec<RefusedStep>,
}

/// A step of a response that the scheduler did not carry out, or only in part. A step grants
/// processes to work or orders an allocation to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedStep {
    /// JSON pointer into the response.
    pub at: String,
    /// The work or allocation, as the response names it.
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
    /// The user of the work may not use the class of the work.
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
    /// Work that must not share a node with this work is on the node.
    #[serde(rename = "kept_apart")]
    AntiAffinity,
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
