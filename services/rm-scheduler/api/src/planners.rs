//! Who plans for each top-level pool, and how planners outside fare.

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
    /// Where it is `http`.
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
    /// A program outside.
    Http,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutsidePlanner {
    pub url: String,
    pub timeout_ms: u64,
    /// A question is on its way.
    pub asking: bool,
    /// In a row; 0 when it answered last.
    pub failures: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<PlannerFailure>,
    /// When it is asked again though nothing changes; absent where nothing of the pool lacks
    /// anything.
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
    /// Of the question.
    pub revision: u64,
    /// The round that took it; absent until one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_in: Option<u64>,
    /// Processes that were granted because of it.
    pub granted: u64,
    /// Allocations that were told to leave because of it.
    pub vacated: u64,
    /// Steps that were not taken, or not in full.
    pub refusals: u64,
    /// The first hundred of them.
    pub refused: Vec<RefusedStep>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedStep {
    /// JSON pointer into the answer.
    pub at: String,
    /// The work, or the allocation, as it was named.
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub reason: StepRefusal,
    pub detail: String,
}

/// The closed list of reasons not to take a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepRefusal {
    UnknownWork,
    /// The work, or what it holds, is another planner's.
    NotItsOwn,
    /// Its user may not use its class.
    NotAuthorised,
    /// The work wants no more processes.
    NotWanted,
    UnknownNode,
    /// The node is in a pool that the class of the work may not use.
    OutsidePool,
    /// The node takes no new work.
    NodeClosed,
    /// The work names its machines, and this is none of them.
    NotListed,
    /// The node is blocked for this work.
    Avoided,
    /// Others of its group are there.
    KeptApart,
    NoRoom,
    /// The user has as much as may never be taken back.
    OverAllotment,
    UnknownAllocation,
    LeavingAlready,
    /// It is never taken back for others.
    NotPreemptable,
    /// No other work of the pool waits for the room of it.
    ServesNobody,
    /// As much was taken back within the hour as may be.
    OverBudget,
    /// The rules forbid it for another reason, which the detail says.
    NotAllowed,
    #[serde(other)]
    Unknown,
}
