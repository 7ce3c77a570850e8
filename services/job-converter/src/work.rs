//! Open work in memory. A piece of work has one *slot* for each of its demand entries: a job or a
//! reservation has one slot, a service has one for each processor.

pub mod exit_description;
pub mod prepared_work;
pub mod published_entries;
pub mod queue_choice;
pub mod retry_policy;
pub mod run_end;
pub mod run_terms;
pub mod service_deployment;
pub mod service_processors;
mod state_reasons;
pub mod task_numbers;
pub mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_job_converter_api::signals::SentSignal;
use hayward_job_converter_api::submission::{
    JobSubmission, ReservationSubmission, ServiceSubmission,
};
use hayward_job_converter_domain::service_processors::{ProcessorId, Processors};
use hayward_job_converter_domain::{
    Backoff, BackoffPolicy, JobUsage, RetryPolicy, RunnerCommands, RunningTask, TaskRunners,
    TaskTable, WorkFacts,
};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason};
use hayward_service::auth::Groups;
use hayward_vocabulary::{AllocationId, Exit, NodeName, Timestamp, UserName, WorkId, WorkKind};
use uuid::Uuid;

use crate::store::Rows;
use crate::store::past_allocations::PastRow;

use service_deployment::Version;

/// Number of attempts of a task, unless its job sets another number.
pub const DEFAULT_ATTEMPTS: u32 = 3;

pub struct Work {
    pub id: WorkId,
    pub uuid: Uuid,
    pub user: UserName,
    /// Submitter that acted for the user. `None` if the user submitted the work.
    pub actor: Option<String>,
    /// Groups of the user at submission.
    pub groups: Groups,
    pub submitted_at: Timestamp,
    pub traceparent: Option<String>,
    pub spec: WorkSpec,
    pub slots: Vec<Slot>,
    /// Processors of a service, one per slot. `None` for other work.
    pub processors: Option<Box<Processors>>,
    /// Generation and deployment. Only services use them.
    pub version: Version,
    /// Live processes of slots that were removed.
    pub leaving: BTreeMap<AllocationId, Process>,
    pub cancelled: bool,
    /// Number of timeline entries written so far.
    pub events: u32,
}

pub enum WorkSpec {
    Job(Box<Job>),
    Service(Box<ServiceSubmission>),
    Reservation(Box<ReservationSubmission>),
}

pub struct Job {
    pub submission: Arc<JobSubmission>,
    pub tasks: TaskTable,
    pub runners: TaskRunners,
    pub retry: RetryPolicy,
    /// Commands to runners about their tasks.
    pub commands: RunnerCommands<TaskCommand>,
    pub runner: Runner,
    /// Maximum number of tasks in one lease response. It keeps responses small when tasks carry
    /// large environments.
    pub max_leased: u32,
    /// Number of counted attempts in this term.
    pub counted_attempts: u64,
    /// Value of `counted_attempts` when a process last ended.
    pub counted_attempts_at_last_end: u64,
    /// A task that failed, for the reason of the end. It is not stored, so after a restart it is a
    /// later one.
    pub example_failure: Option<FailedTask>,
    pub past: PastAllocations,
    /// Usage of the counted runs.
    pub usage: JobUsage,
}

impl Job {
    /// Iterates over the tasks that run, with their processes. A task counts as running while its
    /// process also holds the lease.
    pub fn running_tasks(&self) -> impl Iterator<Item = (&AllocationId, RunningTask)> {
        self.tasks.holders().flat_map(|holder| {
            let held = self.tasks.leases_of(holder);
            let is_held = move |running: &&RunningTask| {
                held.is_some_and(|held| held.contains_key(&running.task))
            };
            let running = self.runners.running(holder).iter();
            running
                .filter(is_held)
                .map(move |running| (holder, *running))
        })
    }
}

/// Nodes of allocations that have ended or were vacated. A runner may outlive its allocation if its
/// node was given up. Its late report is accepted and shown with its node, but it gets no new
/// tasks. The number is bounded, and the oldest are dropped first.
#[derive(Default)]
pub struct PastAllocations(BTreeMap<AllocationId, NodeName>);

impl PastAllocations {
    const MAX_ENTRIES: usize = 1_000;

    pub fn restore(&mut self, id: AllocationId, node: NodeName) {
        self.0.insert(id, node);
    }

    /// Adds an allocation and its row once.
    pub fn insert(&mut self, job: Uuid, entry: &AllocationEntry, rows: &mut Rows) {
        let before = self.0.insert(entry.id.clone(), entry.node.clone());
        if before.is_some() {
            return;
        }
        rows.past.push(PastRow {
            allocation: entry.id.to_string(),
            job,
            node: entry.node.to_string(),
        });
        // Ids ascend with time.
        if self.0.len() > Self::MAX_ENTRIES
            && let Some((oldest, _)) = self.0.pop_first()
        {
            rows.deleted_past.push(oldest.to_string());
        }
    }

    pub fn node(&self, id: &AllocationId) -> Option<&NodeName> {
        self.0.get(id)
    }
}

/// Time that running tasks have to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSpeed {
    /// The grace of the job.
    Graceful,
    AtOnce,
}

/// A command about one run of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCommand {
    pub task: u64,
    pub attempt: u32,
    pub action: TaskAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskAction {
    Stop(StopSpeed),
    Signal(SentSignal),
}

/// A failed task, with one sentence about its end.
pub struct FailedTask {
    pub task: u64,
    pub message: String,
}

/// The token of a job's runners, and the work id in its scope.
#[derive(Debug, Clone)]
pub struct Runner {
    pub id: WorkId,
    pub token: Arc<str>,
}

#[derive(Default)]
pub struct Slot {
    /// Delays the next start after ends without progress.
    pub backoff: Backoff,
    /// Ended allocations whose end is recorded. The demand names them, so that the scheduler may
    /// grant others.
    pub settled: BTreeSet<AllocationId>,
    pub processes: BTreeMap<AllocationId, Process>,
    /// Mean task time in the last published demand, in ms. `None` if none was published.
    pub task_ms: Option<u64>,
    /// Text about the end of the last process, while the slot is held back for it. Otherwise
    /// `None`.
    pub hold_reason: Option<String>,
}

pub struct Process {
    pub node: NodeName,
    pub incarnation: u64,
    pub state: AllocationState,
    pub vacating: bool,
    /// Whether its node is marked. No new tasks are leased to such a process.
    pub marked: bool,
    /// Whether the process is vacating because its demand ended.
    pub dismissed: bool,
    /// Number of the deployment for which the process was granted.
    pub deployment_number: u32,
    pub exit: Option<Exit>,
    /// Start of its uninterrupted running time. `None` while it is not running.
    pub up_since: Option<Timestamp>,
    /// Time when it was first seen running in this term, in ms of the monotonic clock.
    pub running_since_ms: Option<u64>,
}

impl Process {
    pub fn from_entry(entry: &AllocationEntry) -> Self {
        Self {
            node: entry.node.clone(),
            incarnation: entry.incarnation,
            state: entry.state,
            vacating: entry.vacate.is_some(),
            marked: entry.marked.is_some(),
            dismissed: entry
                .vacate
                .as_ref()
                .is_some_and(|vacate| vacate.reason == VacateReason::WorkGone),
            deployment_number: service_deployment::deployment_number(entry),
            exit: entry.exit.clone(),
            up_since: (entry.state == AllocationState::Running)
                .then(|| entry.running_since.unwrap_or(entry.granted_at)),
            running_since_ms: None,
        }
    }

    /// Returns true if no task is leased to the process, because it is leaving, marked or ended.
    pub fn takes_no_tasks(&self) -> bool {
        self.vacating || self.marked || !self.is_alive()
    }

    pub fn is_alive(&self) -> bool {
        self.state != AllocationState::Ended
    }
}

impl Slot {
    pub fn live_count(&self) -> usize {
        self.processes
            .values()
            .filter(|process| process.is_alive())
            .count()
    }
}

impl Work {
    pub fn kind(&self) -> WorkKind {
        match self.spec {
            WorkSpec::Job(_) => WorkKind::Job,
            WorkSpec::Service(_) => WorkKind::Service,
            WorkSpec::Reservation(_) => WorkKind::Reservation,
        }
    }

    pub fn job(&self) -> Option<&Job> {
        match &self.spec {
            WorkSpec::Job(job) => Some(job),
            _ => None,
        }
    }

    pub fn job_mut(&mut self) -> Option<&mut Job> {
        match &mut self.spec {
            WorkSpec::Job(job) => Some(job),
            _ => None,
        }
    }

    /// Returns the id of a slot's demand entry.
    pub fn slot_id(&self, slot: usize) -> WorkId {
        match &self.processors {
            None => self.id.clone(),
            Some(processors) => self.processor_work_id(processors.settings().id_at(slot)),
        }
    }

    pub fn processor_work_id(&self, processor_id: ProcessorId) -> WorkId {
        match processor_id.replica {
            None => self.id.instance(processor_id.active),
            Some(replica) => self.id.standby(processor_id.active, replica),
        }
    }

    /// Returns the slot of a processor id of this work.
    pub fn slot_at(&self, processor_id: Option<ProcessorId>) -> Option<usize> {
        match (&self.processors, processor_id) {
            (None, None) => Some(0),
            (Some(processors), Some(processor_id)) => processors.settings().slot(processor_id),
            _ => None,
        }
    }

    pub fn backoff_policy(&self) -> BackoffPolicy {
        match self.spec {
            WorkSpec::Service(_) => BackoffPolicy::SERVICE,
            _ => BackoffPolicy::JOB,
        }
    }

    pub fn process(&self, allocation: &AllocationId) -> Option<&Process> {
        self.slots
            .iter()
            .find_map(|slot| slot.processes.get(allocation))
    }

    /// Returns the node of an allocation, for jobs also after its end. `None` if it was not
    /// observed.
    pub fn node_of(&self, allocation: &AllocationId) -> Option<&NodeName> {
        let past = || self.job()?.past.node(allocation);
        let process = self.process(allocation);
        process.map(|process| &process.node).or_else(past)
    }

    /// Returns true if the allocation has ended or is gone.
    pub fn has_ended(&self, allocation: &AllocationId) -> bool {
        let is_past = |job: &Job| job.past.node(allocation).is_some();
        let process = self.process(allocation);
        self.job().is_some_and(is_past) || process.is_some_and(|process| !process.is_alive())
    }

    /// Returns true if tasks may be leased to the allocation, even if it was not observed yet.
    pub fn may_lease(&self, allocation: &AllocationId) -> bool {
        let is_closed = self
            .process(allocation)
            .is_some_and(Process::takes_no_tasks);
        !self.cancelled && !self.has_ended(allocation) && !is_closed
    }

    pub fn facts(&self, refused: bool) -> WorkFacts {
        let is_reservation = matches!(self.spec, WorkSpec::Reservation(_));
        let is_running = |process: &&Process| match process.state {
            AllocationState::Running | AllocationState::Stopping => true,
            // A reservation starts no process, so a grant counts as running.
            _ => is_reservation && process.is_alive() && !process.vacating,
        };
        let processes = || self.slots.iter().flat_map(|slot| slot.processes.values());
        WorkFacts {
            cancelled: self.cancelled,
            alive: processes().filter(|process| process.is_alive()).count() + self.leaving.len(),
            running: processes().filter(is_running).count(),
            leased: self.job().map_or(0, |job| job.tasks.leased()),
            refused,
        }
    }
}

/// Creates empty slots.
pub fn empty_slots(count: usize) -> Vec<Slot> {
    (0..count).map(|_| Slot::default()).collect()
}

/// Parses a work id into kind, uuid and processor id.
pub fn parse_work_id(id: &WorkId) -> Option<(WorkKind, Uuid, Option<ProcessorId>)> {
    let (prefix, suffix) = id.as_str().split_once('_')?;
    let kind = [WorkKind::Job, WorkKind::Service, WorkKind::Reservation]
        .into_iter()
        .find(|kind| kind.prefix() == prefix)?;
    let (uuid_text, processor_id) = match suffix.split_once('.') {
        Some((uuid_text, processor)) => (uuid_text, Some(parse_processor_id(processor)?)),
        None => (suffix, None),
    };
    let uuid = Uuid::try_parse(uuid_text).ok()?;
    // Only the canonical spelling is accepted, so that each id has one text.
    (uuid.simple().to_string() == uuid_text).then_some((kind, uuid, processor_id))
}

fn parse_processor_id(text: &str) -> Option<ProcessorId> {
    let (active, replica) = match text.split_once('-') {
        Some((active, replica)) => (active, Some(replica.parse().ok()?)),
        None => (text, None),
    };
    let active = active.parse().ok()?;
    let processor_id = ProcessorId { active, replica };
    (processor_id.to_string() == text).then_some(processor_id)
}

pub fn kind_name(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Job => "job",
        WorkKind::Service => "service",
        WorkKind::Reservation => "reservation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_id_parses_back_and_has_one_spelling() {
        let uuid = Uuid::from_u128(77);
        let id = WorkId::from_uuid(WorkKind::Service, uuid);
        assert_eq!(parse_work_id(&id), Some((WorkKind::Service, uuid, None)));
        for (written, replica) in [(id.instance(4), None), (id.standby(4, 1), Some(1))] {
            let processor_id = ProcessorId { active: 4, replica };
            let read = Some((WorkKind::Service, uuid, Some(processor_id)));
            assert_eq!(parse_work_id(&written), read);
        }
        assert_eq!(
            parse_work_id(&WorkId::new(format!("{id}.04")).unwrap()),
            None
        );
        for other in ["job_1", "svc_x.1", "x", &format!("job_{uuid}"), "alc_0"] {
            assert_eq!(parse_work_id(&WorkId::new(other).unwrap()), None, "{other}");
        }
    }
}
