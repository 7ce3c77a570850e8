//! Effect of an external planner's response in one round (D7).

use serde::{Deserialize, Serialize};

use crate::input::external_planners::ResponseResult;

/// Effect of a response in one top-level pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseEffect {
    /// Number of the response.
    pub number: u64,
    /// Number of granted processes.
    pub granted: u64,
    /// Number of vacated allocations.
    pub vacated: u64,
    /// The first of the steps that were refused, in full or in part.
    pub refused: Vec<Refused>,
    /// Number of all steps that were refused.
    pub refusals: u64,
    /// Texts for waiting work in the next rounds.
    #[serde(rename = "heard")]
    pub result: ResponseResult,
}

/// A refused step, with the names that the response uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// JSON pointer to the step in the response.
    #[serde(rename = "at")]
    pub pointer: String,
    /// Name of the work or allocation.
    #[serde(rename = "what")]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub reason: Refusal,
    /// Explanation for users, as one sentence.
    pub detail: String,
}

/// Reasons for refusing a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    UnknownWork,
    /// Another planner plans the work.
    NotItsOwn,
    /// The user of the work may not use its class.
    NotAuthorised,
    /// The work wants no more processes.
    NotWanted,
    UnknownNode,
    /// The class of the work may not use the pool of the node.
    OutsidePool,
    /// The node takes no new work.
    NodeClosed,
    /// The work lists nodes, and this node is not among them.
    NotListed,
    /// The node is blocked for this work.
    Avoided,
    /// Anti-affinity forbids the node, because other work of the group is there.
    AntiAffinity,
    NoRoom,
    /// The allotment of the user is used up.
    OverAllotment,
    UnknownAllocation,
    /// The allocation was already vacated.
    LeavingAlready,
    /// The allocation is never preempted.
    NotPreemptable,
    /// No work of the pool waits for the space of the allocation.
    ServesNobody,
    /// The preemption budget of the hour is spent (B5).
    OverBudget,
    /// The check of the plan found another violation.
    NotAllowed,
}
