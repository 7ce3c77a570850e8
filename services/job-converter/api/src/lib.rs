//! Wire types of job-converter: submissions and views, task leases and reports, and the entries of
//! its publications `demand` (followed by rm-scheduler) and `jobs` (followed by submitters).

pub mod accounts;
pub mod applications;
pub mod orchestrators;
pub mod placeholders;
pub mod retry;
pub mod service_processors;
pub mod signals;
pub mod submission;
pub mod task_commands;
pub mod tasks;
pub mod unreachable;
pub mod usage;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{
    AllocationId, Apart, Exit, Launch, NodeName, Orchestrated, Processor, Queued, Receipt, Size,
    Timestamp, Unblock, UserName, WhenUnreachable, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Publication name; keys are work ids.
pub const DEMAND: &str = "demand";
/// Publication name; keys are ids of jobs, services and reservations.
pub const JOBS: &str = "jobs";
/// Reason of work that no round of the scheduler has judged.
pub const NOT_YET_CONSIDERED: &str = "not_yet_considered";

/// One entry of `demand`: open work that requests processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DemandEntry {
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    /// Requested class; the scheduler fills in a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    pub submitted_at: Timestamp,
    /// Resources of one process. For a reservation: the least a node must have.
    pub size: Size,
    /// Processes at one time, at most; 1 for a service instance and a reservation. 0 holds the work
    /// back, such as a retry before its time.
    pub max_processes: u64,
    /// Tasks without an outcome, rounded so that progress seldom changes it. Never 0 for open work.
    pub remaining_tasks: u64,
    /// Tasks run in parallel in one process.
    pub threads: u32,
    /// Mean milliseconds of one task, rounded; absent until one has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// Nodes it may use; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
    /// Service whose instances are spread over nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<WorkId>,
    /// Processes that drains and graceful evacuations may vacate at one time, at most; absent: any
    /// number (W5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "WhenUnreachable::is_default")]
    pub when_unreachable: WhenUnreachable,
    /// Only for processes of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
    /// Work it must not share a host with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
    /// The only node that is acceptable now: the last host, or the host of a standby. Only the
    /// scheduler's own rounds honour it; it is withdrawn after a timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    /// Queue of a pool with queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<Box<Queued>>,
    /// Orchestrator that owns the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestrated: Option<Box<Orchestrated>>,
    /// Task of an application, or the placeholders of one of its groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Ended allocations that job-converter has recorded; the scheduler removes them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub settled: BTreeSet<AllocationId>,
    /// Absent for a reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// W3C trace context of the submission, for work without a launch; other work has it in
    /// `launch` (T5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl DemandEntry {
    /// W3C trace context of the submission, if it had one (T5).
    pub fn submitted_within(&self) -> Option<&str> {
        let launch = self.launch.as_ref();
        let traceparent = launch.map_or(&self.traceparent, |launch| &launch.traceparent);
        traceparent.as_deref()
    }
}

/// Part of an application. An ended process counts until it is settled: the scheduler grants no
/// successor before job-converter has handled the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Part {
    /// Placeholder it replaces: it is granted only together with the end of that one.
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
    /// Submitter that acted for the user; absent when the user submitted the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Requested queue of a pool with queues: a full path, or a name below the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    pub state: WorkState,
    /// Why it is in this state, or what it waits for, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only for refused work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    pub submitted_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub size: Size,
    /// Only for jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
    /// Only for jobs with measured runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<usage::UsageSummary>,
    pub processes: Vec<ProcessView>,
    /// Only for services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<service_processors::Deployment>,
    /// Submitted choice; absent for `replace`.
    #[serde(default, skip_serializing_if = "WhenUnreachable::is_default")]
    pub when_unreachable: WhenUnreachable,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// State of work. `waiting`, `running` and `stopping` may alternate; the others are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkState {
    /// Accepted, but no process runs; `reason` tells what it waits for.
    Waiting,
    /// At least one process runs; for a reservation, the node is held.
    Running,
    /// Cancelled; its processes are ending.
    Stopping,
    /// Enough tasks succeeded: all, unless the submission says otherwise. Those that were cancelled
    /// one by one do not count.
    Completed,
    /// Ended, and too many tasks failed.
    Failed,
    Cancelled,
    /// The scheduler will never serve it as it stands; `reason` tells why.
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
    /// One of the scheduler's reasons.
    pub reason: String,
    /// Numbers of the round that refused it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCounts {
    pub total: u64,
    /// Not leased to a process.
    pub waiting: u64,
    /// Waiting for the time of their next attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delayed: u64,
    /// Leased to a process, and not reported as running.
    pub leased: u64,
    /// Reported as running by its process.
    #[serde(default)]
    pub running: u64,
    pub succeeded: u64,
    /// Failed on every attempt.
    pub failed: u64,
    /// Cancelled one by one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cancelled: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessView {
    pub allocation: AllocationId,
    pub node: NodeName,
    pub incarnation: u64,
    /// State of the allocation, as in `allocations`.
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
    /// One of the scheduler's reasons, also for refused work; `not_yet_considered`; or the final
    /// state.
    pub reason: String,
    pub detail: String,
    /// Numbers of the round that last changed the verdict; rm-scheduler has those of the newest
    /// round at `/v1/verdicts/{work}`.
    #[serde(default)]
    pub numbers: BTreeMap<String, u64>,
    /// Reasons that would remain without the one above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The smallest change that would let one more process start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<Unblock>,
    /// Preemptions of this work, and preemptions for it, newest first: sixteen at most.
    /// rm-scheduler has all of a round at `/v1/rounds/{round}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// Sum over users the caller may not see, in place of their receipts (S12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_lost: Option<OthersLost>,
    /// Work id of the verdict; for a service, one of its instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Losses of others for the benefit of a piece of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersLost {
    /// Preempted processes.
    pub processes: u64,
    /// Quanta of these processes.
    pub quanta: u64,
    /// Milliseconds of work to be repeated, at most.
    pub lost_ms: u64,
}

/// One entry of `GET /v1/jobs/{id}/timeline`.
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
