//! The words of rm-scheduler: the entries of its publications `allocations` (followed by
//! job-converter and container-manager) and `verdicts` (followed by job-converter), and what
//! operators read and write.

pub mod evidence;
pub mod load;
pub mod occupancy;
pub mod planners;
pub mod policy;
pub mod pools;
pub mod queues;
pub mod shares;
pub mod views;
pub mod what_if;

use std::collections::BTreeMap;

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
/// Born when a round grants it. Buried when job-converter has settled it (or withdrawn the work)
/// *and* nothing of it is alive; container-manager buries its container only after this entry went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationEntry {
    pub id: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    /// Bound once, for its whole life (I1).
    pub node: NodeName,
    /// Quanta held.
    pub order: u64,
    /// What was granted: the container's limits.
    pub size: Size,
    /// Number of this attempt among all attempts of the work; only grows.
    pub incarnation: u64,
    pub granted_at: Timestamp,
    /// When the scheduler heard that it runs; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    pub state: AllocationState,
    /// Present from the moment the allocation has to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacate: Option<Vacate>,
    /// Present while its node is marked, or it is itself, and it was not told to leave: it is given
    /// no new task and ends with the last one it has. For people: by what it is marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked: Option<String>,
    /// Present when `state` is `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Never two at once: the node ends it by itself when its lease runs out (I4, W7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// The one whose place it takes: nothing is started before that one is proven ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<AllocationId>,
    /// The request of container-manager that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Absent for a reservation: nothing is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
}

impl AllocationEntry {
    /// Holds its quanta: everything that has not ended, also what was told to leave.
    pub fn holds(&self) -> bool {
        self.state != AllocationState::Ended
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllocationState {
    /// Granted; no news from below yet.
    Assigned,
    /// The agent has been told to start it, or is starting it.
    Launching,
    Running,
    /// Told to end, not yet confirmed gone.
    Stopping,
    /// The node cannot answer.
    Unreachable,
    /// Proven gone. Terminal.
    Ended,
    #[serde(other)]
    Unknown,
}

/// An order to leave, with the reason it was given for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Vacate {
    pub reason: VacateReason,
    /// For people: who or what it makes room for, which block, which node.
    pub detail: String,
    pub since: Timestamp,
    /// True when the node cannot answer: nothing more is awaited from it (purge).
    #[serde(default)]
    pub purge: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VacateReason {
    /// Others are due the room (fair share counts fell).
    Preempted,
    /// The node is blocked with evacuation.
    Blocked,
    /// The node was lost.
    NodeLost,
    /// The node was varied off.
    NodeOffline,
    /// The node is emptied by an operator.
    Drained,
    /// The work no longer wants it: withdrawn, cancelled or completed.
    WorkGone,
    /// Another place takes over: what was asked for was withdrawn, or its successor is on its way.
    Moved,
    /// A placeholder whose place a task of its application has taken, in the same commit.
    Replaced,
    #[serde(other)]
    Unknown,
}

/// One entry of `processors`, followed by container-manager: a process that a service should have,
/// whether or not it has room now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorEntry {
    pub work: WorkId,
    pub user: UserName,
    #[serde(flatten)]
    pub processor: Processor,
    /// The machines its owner has listed; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
    /// Why places that container-manager asked for are not granted yet, by the id of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<String, String>,
}

/// One entry of `closed`, followed by container-manager: a node that takes nothing new, for
/// everybody or for one piece of work, because it is blocked or drained; or that was lost while
/// containers are there that nobody has an allocation for. What is there already may stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClosedEntry {
    pub node: NodeName,
    /// Absent: for everybody. A service stands for all its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// For people.
    pub reason: String,
    /// The node was given up or forgotten: nothing is awaited there of a container whose allocation
    /// is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// One entry of `verdicts`: why a piece of work does not have all it asked for.
///
/// It changes when the meaning changes (the reason, what else would block, the kind of change that
/// would help, what was taken back), not with every number. `GET /v1/verdicts/{work}` has the
/// numbers of the newest round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerdictEntry {
    pub work: WorkId,
    pub reason: WaitReason,
    /// True when it will never be served as it stands.
    #[serde(default)]
    pub refused: bool,
    /// The class the work is served in (a default may have been filled in).
    #[serde(default)]
    pub class: Option<String>,
    /// One sentence with the numbers.
    pub detail: String,
    /// The numbers by name, in quanta unless the name says otherwise.
    #[serde(default)]
    pub numbers: BTreeMap<String, u64>,
    /// What would keep it waiting if the reason above were gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<WaitReason>,
    /// The smallest change that would let one more process of it start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<Unblock>,
    /// What it lost to others and what others lost to it, newest first: of its newest rounds,
    /// sixteen at most. rm-scheduler has all of a round at `/v1/rounds/{round}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    pub since: Timestamp,
}

/// The closed list of reasons to wait or be refused (13.2).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Has everything it can use.
    Satisfied,
    /// Competition leaves it nothing this round.
    ZeroShare,
    /// Counted more than it holds; others must leave first.
    WaitingForPreemption,
    /// Counted, but the free room is split over nodes.
    WaitingForDefragmentation,
    InsufficientResources,
    NoHostLargeEnough,
    NoHostOfSize,
    ResourcesExhausted,
    AllotmentExceeded,
    NoListedMachine,
    /// Everything that could hold it is blocked.
    AllBlocked,
    /// What room there is, is where an active is that it stands by for, or what stands by for it.
    KeptApart,
    /// Still starting: held to the initialisation cap until the first process has shown a rate.
    InitializationCap,
    /// Has its share; the rest belongs to others.
    AtFairShare,
    /// The scheduler has not heard from a neighbour for too long and changes nothing.
    StaleInput,
    NoClass,
    UnknownClass,
    NotAuthorised,
    PolicyMismatch,
    /// Its queue, or one above, has its maximum.
    QueueQuota,
    /// Its user or group has its limit in the queue, or one above.
    UserQuota,
    /// As many applications run in its queue, or for its user, as may.
    NotRunnable,
    /// So much of its application failed that it is left alone for a while.
    BackingOff,
    /// Its gang does not fit as a whole, and no part of it starts alone.
    GangIncomplete,
    /// What room there is, is reserved for work that waited longer.
    NodesReserved,
    /// Its pool is planned outside: the planner there did not place it, was not heard, or what it
    /// said was refused.
    OutsidePlanner,
    #[serde(other)]
    Unknown,
}
