//! Entries of the publications `failures` (facts about nodes), `machines` (all nodes) and
//! `clearings` (progress of evacuations). blocklist follows `failures` and `machines`. blocklist
//! and node-status follow `clearings`.

use hayward_vocabulary::{AllocationId, ExitCause, NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Name of the publication; its keys are allocation ids and `node/NAME/NUMBER`. Old facts are
/// withdrawn, because age and number of facts are limited. A follower reads each fact once and
/// ignores withdrawals.
pub const FAILURES: &str = "failures";
/// Name of the publication; its keys are node names.
pub const MACHINES: &str = "machines";
/// Name of the publication; its keys are those of `blocks`, and `drain/NAME`.
pub const CLEARINGS: &str = "clearings";

/// One entry of `failures`: how an attempt ended on a node, or a change of the node itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FactEntry {
    pub node: NodeName,
    pub what: FactKind,
    pub at: Timestamp,
    /// Absent for facts about the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

/// Kind of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = What)]
pub enum FactKind {
    /// The attempt failed, without an order to end.
    Failed,
    /// The attempt succeeded, or ran long enough to prove that the node works. This is reported
    /// only for nodes on trial or with earlier failures.
    Worked,
    /// The node became silent.
    Silenced,
    /// The silent node answers again.
    Heard,
    #[serde(other)]
    Unknown,
}

/// The attempt of a fact. An ordered end is no fact. Such an end is a release, an evacuation, a
/// preemption or a cancellation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub cause: ExitCause,
    /// Code of the cause as the node reports it, for example `disk_full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause_code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// True if the attempt was reported as running.
    pub ran: bool,
    /// Milliseconds from the grant to the end.
    #[serde(default)]
    pub held_ms: u64,
}

/// One entry of `machines`: a node. blocklist needs the number of nodes and quanta of each pool to
/// limit automatic blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineEntry {
    pub node: NodeName,
    /// The pool to which the policy assigns the node.
    pub pool: String,
    /// Healthy, online and not drained. Blocks do not count here.
    pub ready: bool,
    /// Quanta of the node when nothing is wrong with it.
    pub quanta: u64,
}

/// One entry of `clearings`: progress of the evacuation of a node or a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearingEntry {
    /// `removal_no` of the block, or the number of the drain.
    pub number: u64,
    /// Revision of rm-scheduler in which the order came into force (D15).
    pub revision: u64,
    pub since: Timestamp,
    /// Number of allocations at the beginning, and of those that were added later.
    pub total: u64,
    /// Number of allocations that ended and have a running successor or need none.
    pub moved: u64,
    /// Number of allocations that ended and whose successor failed or has no space yet.
    pub failed: u64,
    /// Number of allocations that have not ended.
    pub remaining: u64,
    /// Remaining allocations that do not move now, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
    /// All remaining allocations of a blocked node, so that a worker on it is recognised as
    /// blocked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<AllocationId>,
}

/// An allocation that stays for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocker {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub why: BlockerReason,
    /// A sentence with the numbers.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockerReason {
    /// A reservation is never moved (I12).
    Reservation,
    /// The work allows no more of its processes to be moved now.
    DisruptionLimit,
    /// The process was ordered to end, and the end is awaited.
    Stopping,
    /// The node of the process does not answer.
    Unreachable,
    /// An operator paused the drain.
    Paused,
    /// The process leaves only after its successor is reserved, and there is no successor yet.
    NoPlace,
    /// The process is moved already, or starts only after its predecessor has ended.
    Moving,
    #[serde(other)]
    Unknown,
}
