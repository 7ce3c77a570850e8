//! What rm-scheduler tells its two side posts in return: how work fared on the machines, which
//! machines there are, and how far it is with emptying one.
//!
//! `failures` and `machines` are followed by blocklist, `clearings` by blocklist and node-status.

use hayward_vocabulary::{AllocationId, ExitCause, NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Name of the publication; its keys are allocation ids and `node/NAME/NUMBER`. A fact stays for a
/// bounded time and number: a follower takes note of it once and ignores that it goes.
pub const FAILURES: &str = "failures";
/// Name of the publication; its keys are node names.
pub const MACHINES: &str = "machines";
/// Name of the publication; its keys are those of `blocks`, and `drain/NAME`.
pub const CLEARINGS: &str = "clearings";

/// One entry of `failures`: how one attempt ended on a machine, or what became of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FactEntry {
    pub node: NodeName,
    pub what: What,
    pub at: Timestamp,
    /// Absent for facts about the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Ended badly, and nobody had asked for it.
    Failed,
    /// Ended well, or ran for long enough to show that the machine works. Told only of machines
    /// that are on trial or have failures on record.
    Worked,
    /// The node fell silent.
    Silenced,
    /// It was heard again.
    Heard,
    #[serde(other)]
    Unknown,
}

/// The attempt a fact is about. It was never intended to end: facts about placement, release,
/// evacuation, preemption and cancellation are not told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub cause: ExitCause,
    /// The class of the cause, as `disk_full`; from the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause_code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// It was heard to run.
    pub ran: bool,
    /// Milliseconds from the grant to the end: what the attempt cost.
    #[serde(default)]
    pub held_ms: u64,
}

/// One entry of `machines`: what brakes count over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineEntry {
    pub node: NodeName,
    /// The pool the policy puts it in.
    pub pool: String,
    /// Healthy, and not varied off or drained. Blocks do not count here.
    pub ready: bool,
    /// Quanta it offers when all is well.
    pub quanta: u64,
}

/// One entry of `clearings`: how far the emptying of a machine or a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearingEntry {
    /// `removal_no` of the block, or the number of the drain.
    pub number: u64,
    /// Revision of rm-scheduler since which the order is in force (D15).
    pub revision: u64,
    pub since: Timestamp,
    /// Allocations that were there when it began, and came since.
    pub total: u64,
    /// Ended, and a successor runs elsewhere or none is wanted.
    pub moved: u64,
    /// Ended, and the successor failed or has no room yet.
    pub failed: u64,
    /// Still there.
    pub remaining: u64,
    /// Those among the remaining that do not move now, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
    /// All that are still there. Of a machine that is blocked: so that a worker on it can be
    /// recognised as blocked by way of its machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<AllocationId>,
}

/// Something that stays where it is for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocker {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub why: BlockerReason,
    /// For people, with the numbers.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockerReason {
    /// An unmanaged reservation is never taken away (I12).
    Reservation,
    /// As many of the work are being moved as it allows.
    DisruptionLimit,
    /// It was told to end and its end is awaited.
    Stopping,
    /// The node does not answer.
    Unreachable,
    /// The operator paused the drain.
    Paused,
    /// It is told when its next place is reserved, and there is none yet.
    NoPlace,
    /// It is moved already by an order, or starts only when what it takes over from has ended.
    Moving,
    #[serde(other)]
    Unknown,
}
