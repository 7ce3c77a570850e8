//! Wire types of rm-scheduler: the entries of its publications, and the requests and responses of
//! its HTTP API.

pub mod load;
pub mod node_publications;
pub mod occupancy;
pub mod planners;
pub mod policy;
pub mod queues;
pub mod shares;
pub mod views;
pub mod what_if;
pub mod worker_pools;

use std::collections::BTreeMap;

pub use hayward_vocabulary::WaitReason;
use hayward_vocabulary::{
    AllocationId, Exit, Launch, NodeName, Processor, Receipt, Size, Timestamp, Unblock, UserName,
    WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Name of the publication; its keys are allocation ids.
pub const ALLOCATIONS: &str = "allocations";
/// Name of the publication; its keys are work ids.
pub const VERDICTS: &str = "verdicts";
/// Name of the publication; its keys are ids of work that is a process of a service.
pub const PROCESSORS: &str = "processors";
/// Name of the publication; its keys are node names, or `NODE@WORK`.
pub const CLOSED: &str = "closed";

/// One entry of `allocations`.
///
/// The entry exists from the grant until the allocation has ended *and* job-converter has settled
/// it or withdrawn the work. container-manager removes the container only after the entry is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationEntry {
    pub id: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    /// The node never changes (I1).
    pub node: NodeName,
    /// Quanta that the allocation holds.
    pub order: u64,
    /// The granted size, which limits its container.
    pub size: Size,
    /// Number of this attempt among all attempts of the work; only grows.
    pub incarnation: u64,
    pub granted_at: Timestamp,
    /// Time at which the scheduler learned that the process runs; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    pub state: AllocationState,
    /// Present from the order to leave on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacate: Option<Vacate>,
    /// Why the allocation or its node is marked. A marked process gets no new task and ends after
    /// its last task. Absent once the allocation was ordered to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked: Option<String>,
    /// Present when `state` is `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Two allocations of exclusive work never run at once. The node therefore ends this allocation
    /// when its lease runs out (I4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// The allocation that this one replaces. This one starts once the end of the predecessor is
    /// proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<AllocationId>,
    /// The request of container-manager for which the allocation was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Absent for a reservation, which starts no process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
}

impl AllocationEntry {
    /// Returns true until the allocation has ended, also after the order to leave.
    pub fn holds(&self) -> bool {
        self.state != AllocationState::Ended
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllocationState {
    /// The allocation is granted. container-manager has not reported it yet.
    Assigned,
    /// The agent of the node has the order to start the process, or is starting it.
    Launching,
    Running,
    /// The process was ordered to end, and the end is not confirmed.
    Stopping,
    /// The node does not answer.
    Unreachable,
    /// The end is proven. Final.
    Ended,
    #[serde(other)]
    Unknown,
}

/// An order to leave with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Vacate {
    pub reason: VacateReason,
    /// A sentence with the beneficiary, the block or the node.
    pub detail: String,
    pub since: Timestamp,
    /// The end is not awaited, because the node cannot answer (purge).
    #[serde(default)]
    pub purge: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VacateReason {
    /// Other work is entitled to the space.
    Preempted,
    /// The node is blocked with evacuation.
    Blocked,
    /// The node was lost.
    NodeLost,
    /// The node was taken offline.
    NodeOffline,
    /// An operator drains the node.
    Drained,
    /// The work was withdrawn or cancelled, or is complete.
    WorkGone,
    /// Another allocation takes over, or the request for this one was withdrawn.
    Moved,
    /// A task of the application took the place of this placeholder in the same commit.
    Replaced,
    #[serde(other)]
    Unknown,
}

/// One entry of `processors`, followed by container-manager: a process that a service should have,
/// with or without an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorEntry {
    pub work: WorkId,
    pub user: UserName,
    #[serde(flatten)]
    pub processor: Processor,
    /// The nodes on the list of its owner; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
    /// Why requests of container-manager wait, by id of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<String, String>,
}

/// One entry of `closed`, followed by container-manager: a node that is blocked or drained and
/// takes no new process, either of any work or of one piece of work. Existing allocations may stay.
/// A lost node with containers that have no allocation has an entry too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClosedEntry {
    pub node: NodeName,
    /// The work that gets no new process on the node; absent for all work. A service stands for all
    /// its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// A sentence with the reason.
    pub reason: String,
    /// The node was given up or removed. The end of a container without allocation is not awaited
    /// there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// One entry of `verdicts`: why a piece of work has fewer processes than it demands.
///
/// The entry changes only if its meaning changes: the reason, the further reasons, the kind of
/// change that would unblock the work, or the preemptions. A changed number alone does not change
/// it. `GET /v1/verdicts/{work}` has the numbers of the newest round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerdictEntry {
    pub work: WorkId,
    pub reason: WaitReason,
    /// True when the work will never be served unless it or the policy changes.
    #[serde(default)]
    pub refused: bool,
    /// The class that serves the work, which is a default class if the work names none.
    #[serde(default)]
    pub class: Option<String>,
    /// One sentence with the numbers.
    pub detail: String,
    /// The numbers by name, in quanta unless the name says otherwise.
    #[serde(default)]
    pub numbers: BTreeMap<String, u64>,
    /// Reasons that would remain if `reason` did not apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<WaitReason>,
    /// The smallest change that would let one more process start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<Unblock>,
    /// Preemptions of and for this work in its newest rounds, newest first, sixteen at most.
    /// `/v1/rounds/{round}` has all of a round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    pub since: Timestamp,
}
