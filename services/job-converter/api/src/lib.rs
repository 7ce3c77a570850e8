//! The words of job-converter: what submitters write and read, what task runners lease and report,
//! and the entries of its publications `demand` (followed by rm-scheduler) and `jobs` (followed by
//! submitters).

pub mod applications;
pub mod orchestrators;
pub mod processors;
pub mod submission;
pub mod tasks;
pub mod unreachable;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{
    AllocationId, Apart, Exit, Launch, NodeName, Orchestrated, Processor, Queued, Receipt, Size,
    Timestamp, Unblock, UserName, WhenUnreachable, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Name of the publication; its keys are work ids.
pub const DEMAND: &str = "demand";
/// Name of the publication; its keys are ids of jobs, services and reservations.
pub const JOBS: &str = "jobs";
/// The reason of work that no round of the scheduler has judged.
pub const NOT_YET_CONSIDERED: &str = "not_yet_considered";

/// One entry of `demand`: a piece of work that wants room. Withdrawn when the work is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DemandEntry {
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    /// As asked for; the scheduler fills in a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    pub submitted_at: Timestamp,
    /// What one process needs. For a reservation: the least a machine must have.
    pub size: Size,
    /// Most processes at one time; 1 for a service instance and a reservation. 0 holds the work
    /// back (a retry that waits for its time).
    pub max_processes: u64,
    /// Tasks without an outcome. Coarse on purpose: it moves by steps, so that progress is not news
    /// (never 0 while the work lasts).
    pub remaining_tasks: u64,
    /// Tasks run at the same time in one process.
    pub threads: u32,
    /// Mean milliseconds of one task, rounded coarsely; absent until one has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// Nodes it may use; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
    /// Instances of one service spread over nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<WorkId>,
    /// Most processes of it that drains and graceful evacuations may have taken off at one time
    /// (W5); absent means any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "WhenUnreachable::is_default")]
    pub when_unreachable: WhenUnreachable,
    /// Present for the processes of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
    /// With whom it must not share a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
    /// The one of its machines that will do now: where it was last seen, or where it stands by.
    /// Kept by the scheduler's own rounds only, and taken back when it takes too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    /// It goes into a queue of a pool that is divided among queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<Box<Queued>>,
    /// It belongs to an orchestrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestrated: Option<Box<Orchestrated>>,
    /// It is a task of an application, or the placeholders of one of its groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Ended allocations job-converter has taken note of; the scheduler buries them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub settled: BTreeSet<AllocationId>,
    /// Absent for a reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// W3C trace context of the submission, of what starts nothing; of the rest `launch` says it
    /// (T5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl DemandEntry {
    /// W3C trace context of its submission, where it had one (T5).
    pub fn submitted_within(&self) -> Option<&str> {
        let launch = self.launch.as_ref();
        let within = launch.map_or(&self.traceparent, |launch| &launch.traceparent);
        within.as_deref()
    }
}

/// A part of an application. What of it has ended counts as a process until it is settled: nothing
/// is granted in its stead before job-converter has said what follows from that end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Part {
    /// The placeholder whose place it takes: it gets room only together with the end of that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<AllocationId>,
}

/// One entry of `jobs`, and the answer to `GET /v1/jobs/{id}` and its siblings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkView {
    pub id: WorkId,
    pub kind: WorkKind,
    pub name: String,
    pub user: UserName,
    /// Who submitted it for its user; absent where they did it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The queue that it asks for, where its pool is divided among queues: a full path, or a name
    /// below the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    pub state: WorkState,
    /// Why it is in this state or what it waits for, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only of work that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    pub submitted_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub size: Size,
    /// Only of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
    pub processes: Vec<ProcessView>,
    /// Only of services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<processors::Deployment>,
    /// As its submitter chose; absent where that is `replace`.
    #[serde(default, skip_serializing_if = "WhenUnreachable::is_default")]
    pub when_unreachable: WhenUnreachable,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// States a user understands. `waiting`, `running` and `stopping` may alternate; the others are
/// final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkState {
    /// Accepted, nothing runs; `reason` says what it waits for.
    Waiting,
    /// At least one process runs (a reservation: the machine is held).
    Running,
    /// Cancelled; its processes are ending.
    Stopping,
    /// All tasks succeeded.
    Completed,
    /// Over, and at least one task failed for good.
    Failed,
    Cancelled,
    /// The scheduler will never serve it as it stands; `reason` says why.
    Refused,
    #[serde(other)]
    Unknown,
}

impl WorkState {
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Refused
        )
    }
}

/// Why the scheduler will never serve a piece of work as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// One of the scheduler's closed list of reasons.
    pub reason: String,
    /// As of the round that refused it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCounts {
    pub total: u64,
    /// Not leased to any process.
    pub waiting: u64,
    /// Leased to a process.
    pub leased: u64,
    pub succeeded: u64,
    /// Failed on every attempt it had.
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessView {
    pub allocation: AllocationId,
    pub node: NodeName,
    pub incarnation: u64,
    /// As in `allocations`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkList {
    pub items: Vec<WorkView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub revision: u64,
}

/// `GET /v1/jobs/{id}/explain`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    pub id: WorkId,
    pub state: WorkState,
    /// One of the scheduler's closed list of reasons, also of work that was refused;
    /// `not_yet_considered`, or how it ended.
    pub reason: String,
    pub detail: String,
    /// As of the round that last changed the meaning of this; rm-scheduler has those of the newest
    /// round at `/v1/verdicts/{work}`.
    #[serde(default)]
    pub numbers: BTreeMap<String, u64>,
    /// What would keep it waiting if the reason above were gone, from the same list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The smallest change that would let one more process of it start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<Unblock>,
    /// What it lost to others and what others lost to it, newest first: of its newest rounds,
    /// sixteen at most. rm-scheduler has all of a round at `/v1/rounds/{round}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// What users lost to it whom the caller may not know by name (S12), in place of receipts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_lost: Option<OthersLost>,
    /// The work of rm-scheduler that this is about: of a service, one of its instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// What others lost to a piece of work, as amounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersLost {
    /// Processes that were taken back.
    pub processes: u64,
    /// Quanta of all of them.
    pub quanta: u64,
    /// Milliseconds of work to be done again, at most.
    pub lost_ms: u64,
}

/// One line of `GET /v1/jobs/{id}/timeline`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEvent {
    pub at: Timestamp,
    pub revision: u64,
    pub event: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    pub id: WorkId,
    pub events: Vec<TimelineEvent>,
}
