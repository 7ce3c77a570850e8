//! Effect of the response of an external planner in one round (D7).

use serde::{Deserialize, Serialize};

use crate::input::external::Heard;

/// Effect in one top-level pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Number of the response.
    pub number: u64,
    /// Processes.
    pub granted: u64,
    pub vacated: u64,
    /// The first refused steps, in full or in part.
    pub refused: Vec<Refused>,
    /// Number of all refused steps.
    pub refusals: u64,
    /// Texts for waiting work in the next rounds.
    pub heard: Heard,
}

/// A refused step, with the names of the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// JSON pointer into the response.
    pub at: String,
    /// Name of the work or allocation.
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub reason: Refusal,
    /// One sentence for users.
    pub detail: String,
}

/// Closed list of reasons to refuse a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    UnknownWork,
    /// The work, or its allocation, belongs to another planner.
    NotItsOwn,
    /// Its user may not use its class.
    NotAuthorised,
    /// The work wants no more processes.
    NotWanted,
    UnknownNode,
    /// The pool of the node may not be used by the class of the work.
    OutsidePool,
    /// The node takes no new work.
    NodeClosed,
    /// The work lists nodes, and this one is not among them.
    NotListed,
    /// The node is blocked for this work.
    Avoided,
    /// Anti-affinity: others of its group are there.
    KeptApart,
    NoRoom,
    /// The user's allotment is used up.
    OverAllotment,
    UnknownAllocation,
    /// It was ordered to leave before.
    LeavingAlready,
    /// It is never preempted.
    NotPreemptable,
    /// No work of the pool waits for its space.
    ServesNobody,
    /// The preemption budget of the hour is spent (B5).
    OverBudget,
    /// `check` found another violation.
    NotAllowed,
}
