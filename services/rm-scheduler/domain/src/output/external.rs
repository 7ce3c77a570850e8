//! What a round made of the answer of a planner outside (D7).

use serde::{Deserialize, Serialize};

use crate::input::external::Heard;

/// Of one top-level pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Of the answer.
    pub number: u64,
    /// Processes.
    pub granted: u64,
    pub vacated: u64,
    /// Steps that were not taken, or not in full; the first of them.
    pub refused: Vec<Refused>,
    /// All of them.
    pub refusals: u64,
    /// What the next rounds have to say of waiting work.
    pub heard: Heard,
}

/// A step that was not taken, in the words of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Its place, as a JSON pointer into the answer.
    pub at: String,
    /// Work, or allocation.
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub reason: Refusal,
    /// One sentence for people.
    pub detail: String,
}

/// The closed list of reasons not to take a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
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
    /// It has been told to leave.
    LeavingAlready,
    /// It is never taken back for others.
    NotPreemptable,
    /// Nothing of the pool waits for the room of it.
    ServesNobody,
    /// As much was taken back within the hour as may be (B5).
    OverBudget,
    /// `check` found something else.
    NotAllowed,
}
