//! Computes the published entries of open work: its demand and its view. The functions are pure and
//! use the whole state.

use std::collections::BTreeMap;

use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_api::unreachable::UnreachableChoice;
use hayward_job_converter_api::usage::{AmountSummary, UsageSummary};
use hayward_job_converter_api::{
    DemandEntry, ProcessView, Refusal, TaskCounts, WorkState, WorkView,
};
use hayward_job_converter_domain::job_usage::Distribution;
use hayward_job_converter_domain::{OpenWorkState, compute_demand};
use hayward_rm_scheduler_api::{AllocationState, VerdictEntry};
use hayward_vocabulary::launch::{ENGINE, LaunchLimits, mount_resource};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Launch, NodeName, Program, Size, Timestamp, WhenUnreachable};

use crate::work::queue_choice::requested_queue;
use crate::work::retry_policy::REQUEST_AHEAD_MS;
use crate::work::run_terms::process_grace_ms;
use crate::work::state_reasons::{running_reason, waiting_reason};
use crate::work::{Job, Process, Work, WorkSpec};

impl Work {
    pub fn size(&self) -> Size {
        let requested = match &self.spec {
            WorkSpec::Job(job) => &job.submission.size,
            WorkSpec::Service(service) => &service.size,
            WorkSpec::Reservation(reservation) => {
                return reservation.size.clone().unwrap_or_default();
            }
        };
        let mut size = requested.clone().unwrap_or_else(|| Size::memory(GIB));
        if let WorkSpec::Service(service) = &self.spec
            && let Some(container) = &service.container
        {
            // Nodes with a container engine offer it. Nodes of pools that list a directory offer
            // its mount (S21).
            let mounts = container.mounts.iter();
            let mounts = mounts.map(|it| mount_resource(&it.source, it.read_only));
            let needed = std::iter::once(ENGINE.to_owned()).chain(mounts);
            size.extras.extend(needed.map(|name| (name, 1)));
        }
        size
    }

    fn class(&self) -> Option<String> {
        match &self.spec {
            WorkSpec::Job(job) => job.submission.class.clone(),
            WorkSpec::Service(service) => service.class.clone(),
            WorkSpec::Reservation(reservation) => reservation.class.clone(),
        }
    }

    pub fn when_unreachable(&self) -> WhenUnreachable {
        let chosen = match &self.spec {
            WorkSpec::Job(job) => job.submission.when_unreachable,
            WorkSpec::Service(service) => service.when_unreachable,
            WorkSpec::Reservation(_) => None,
        };
        chosen.map(UnreachableChoice::meaning).unwrap_or_default()
    }

    /// Returns the nodes that the work may use. Empty means any.
    fn machines(&self) -> &Vec<NodeName> {
        match &self.spec {
            WorkSpec::Job(job) => &job.submission.machines,
            WorkSpec::Service(service) => &service.machines,
            WorkSpec::Reservation(reservation) => &reservation.machines,
        }
    }

    fn disruption_limit(&self) -> Option<u64> {
        match &self.spec {
            WorkSpec::Job(job) => job.submission.disruption_limit,
            WorkSpec::Service(service) => service.disruption_limit,
            WorkSpec::Reservation(_) => None,
        }
    }

    /// Returns the name that the user chose, else the name of the program.
    pub(super) fn name(&self) -> String {
        let (name, command) = match &self.spec {
            WorkSpec::Job(job) => (&job.submission.name, job.submission.program_name()),
            WorkSpec::Service(service) => {
                (&service.name, service.command.first().map(String::as_str))
            }
            WorkSpec::Reservation(reservation) => (&reservation.name, None),
        };
        let program = command.and_then(|path| path.rsplit('/').find(|part| !part.is_empty()));
        name.clone()
            .unwrap_or_else(|| program.unwrap_or("reservation").to_owned())
    }
}

/// Returns the demand entry of a slot. `None` if no process is wanted.
pub fn demand(work: &Work, slot: usize, now_ms: u64, grace_ms: u64) -> Option<DemandEntry> {
    let state = work.slots.get(slot)?;
    let (limit, remaining, mean_ms, threads) = match &work.spec {
        WorkSpec::Job(job) => {
            let tasks = job.tasks.total();
            let limit = job.submission.max_processes.unwrap_or(tasks);
            let threads = job.submission.threads.unwrap_or(1);
            let remaining = requested_tasks(job, now_ms).max(1);
            (limit, remaining, job.tasks.mean_ms(), threads)
        }
        _ => (1, 1, None, 1),
    };
    let processor_demand = work.processors.as_ref().map(|it| it.demand(slot, now_ms));
    let (wanted, host) = processor_demand.map_or((true, None), |it| (it.wanted, it.host));
    let limit = if wanted && !has_only_delayed(work, now_ms) {
        limit
    } else {
        0
    };
    let is_held = state.backoff.is_held(now_ms);
    let held_processes = is_held.then(|| state.live_count() as u64);
    let want = compute_demand(limit, remaining, mean_ms, held_processes, state.task_ms)?;
    // While few tasks wait, a rounded number would request processes that have nothing to run.
    let live_slots = state.live_count() as u64 * u64::from(threads);
    let job = work.job();
    let many_wait = job.is_some_and(|job| job.tasks.waiting() > live_slots);
    let remaining_tasks = if many_wait {
        want.remaining_tasks
    } else {
        remaining
    };
    let machines = work.machines();
    Some(DemandEntry {
        work: work.slot_id(slot),
        kind: work.kind(),
        user: work.user.clone(),
        class: work.class(),
        submitted_at: work.demand_order_time(slot),
        size: work.size(),
        max_processes: want.max_processes,
        remaining_tasks,
        threads,
        task_ms: want.task_ms,
        machines: machines.clone(),
        service: matches!(work.spec, WorkSpec::Service(_)).then(|| work.id.clone()),
        disruption_limit: work.disruption_limit(),
        when_unreachable: work.when_unreachable(),
        processor: work.processor(slot),
        apart: work.anti_affinity(slot),
        host: host.filter(|host| machines.is_empty() || machines.contains(host)),
        queued: requested_queue(work),
        orchestrated: None,
        part: None,
        settled: state.settled.clone(),
        launch: launch(work, slot, grace_ms),
        traceparent: reservation_traceparent(work),
    })
}

/// Returns whether processes would only wait for next attempts. They leave, so that others can use
/// their space.
fn has_only_delayed(work: &Work, now_ms: u64) -> bool {
    let job = work.job();
    job.is_some_and(|job| requested_tasks(job, now_ms) == 0)
}

/// Returns the number of tasks that need a process now or soon.
fn requested_tasks(job: &Job, now_ms: u64) -> u64 {
    let soon = now_ms.saturating_add(REQUEST_AHEAD_MS);
    job.tasks.remaining() - job.tasks.delayed_beyond(soon)
}

fn launch(work: &Work, slot: usize, stop_grace_ms: u64) -> Option<Launch> {
    let traceparent = work.traceparent.clone();
    match &work.spec {
        // Environment and directory travel with each task.
        WorkSpec::Job(job) => Some(Launch {
            program: Program::RunTasks {
                token: job.runner.token.to_string(),
                threads: job.submission.threads.unwrap_or(1),
            },
            environment: BTreeMap::new(),
            working_directory: None,
            stop_grace_ms: process_grace_ms(&job.submission, stop_grace_ms),
            traceparent,
            within: None,
            account: None,
            limits: Some(LaunchLimits::of(&work.size())),
        }),
        WorkSpec::Service(service) => Some(Launch {
            program: program(
                service,
                work.processor_id(slot).map_or(0, |it| u64::from(it.active)),
            ),
            environment: environment(work, service, slot),
            working_directory: service.working_directory.clone(),
            stop_grace_ms,
            traceparent,
            within: None,
            account: None,
            limits: Some(LaunchLimits::of(&work.size())),
        }),
        WorkSpec::Reservation(_) => None,
    }
}

/// Returns the trace parent of a reservation. A reservation has no launch, so its demand entry
/// carries it.
fn reservation_traceparent(work: &Work) -> Option<String> {
    let is_reservation = matches!(work.spec, WorkSpec::Reservation(_));
    work.traceparent.clone().filter(|_| is_reservation)
}

/// Returns the environment of a slot. Variables of Hayward override those of the user.
fn environment(work: &Work, service: &ServiceSubmission, slot: usize) -> BTreeMap<String, String> {
    let mut environment = service.environment.clone();
    environment.extend(work.identity_environment(slot));
    environment
}

fn program(service: &ServiceSubmission, instance: u64) -> Program {
    let argv = fill_placeholder(&service.command, "{instance}", instance);
    match &service.container {
        None => Program::Command { argv },
        Some(container) => Program::Container {
            argv,
            container: container.to_form(),
        },
    }
}

/// Replaces a placeholder in an argument vector.
pub fn fill_placeholder(argv: &[String], placeholder: &str, number: u64) -> Vec<String> {
    let number = number.to_string();
    argv.iter()
        .map(|argument| argument.replace(placeholder, &number))
        .collect()
}

/// State in which work ends, and the reason.
pub struct FinalState {
    pub state: WorkState,
    pub reason: Option<String>,
}

impl FinalState {
    pub fn failed(reason: String) -> Self {
        Self {
            state: WorkState::Failed,
            reason: Some(reason),
        }
    }
}

/// Final state of work, with the time of its end.
pub struct WorkEnd {
    pub state: WorkState,
    pub reason: Option<String>,
    pub refusal: Option<Refusal>,
    pub at: Timestamp,
}

impl WorkEnd {
    pub fn new(final_state: FinalState, at: Timestamp) -> Self {
        Self {
            state: final_state.state,
            reason: final_state.reason,
            refusal: None,
            at,
        }
    }

    /// Creates the end of work that the scheduler will never serve. Reason and numbers are copied,
    /// since the verdict is withdrawn with the demand.
    pub fn refused(verdict: &VerdictEntry, at: Timestamp) -> Self {
        let refusal = Refusal {
            reason: wire_name(&verdict.reason),
            numbers: verdict.numbers.clone(),
        };
        let final_state = FinalState {
            state: WorkState::Refused,
            reason: Some(verdict.detail.clone()),
        };
        Self {
            refusal: Some(refusal),
            ..Self::new(final_state, at)
        }
    }
}

/// Returns the wire name of an enum value.
pub fn wire_name<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => "unknown".to_owned(),
    }
}

/// Returns the view of open work.
pub fn view(work: &Work, verdict: Option<&VerdictEntry>) -> WorkView {
    let facts = work.facts(false);
    let (state, reason) = match OpenWorkState::from_facts(&facts) {
        OpenWorkState::Running => (
            WorkState::Running,
            running_reason(work, facts.running, verdict),
        ),
        OpenWorkState::Stopping | OpenWorkState::Cancelled => (
            WorkState::Stopping,
            Some("cancelled; its processes are ending".to_owned()),
        ),
        OpenWorkState::Waiting | OpenWorkState::Refused => {
            (WorkState::Waiting, Some(waiting_reason(work, verdict)))
        }
    };
    base_view(work, state, reason, None)
}

/// Returns the view of ended work.
pub fn final_view(work: &Work, end: &WorkEnd) -> WorkView {
    let mut view = base_view(work, end.state, end.reason.clone(), Some(end.at));
    view.processes.clear();
    view.refusal.clone_from(&end.refusal);
    view
}

fn base_view(
    work: &Work,
    state: WorkState,
    reason: Option<String>,
    ended_at: Option<Timestamp>,
) -> WorkView {
    let labels = match &work.spec {
        WorkSpec::Job(job) => &job.submission.labels,
        WorkSpec::Service(service) => &service.labels,
        WorkSpec::Reservation(reservation) => &reservation.labels,
    };
    WorkView {
        id: work.id.clone(),
        kind: work.kind(),
        name: work.name(),
        user: work.user.clone(),
        submitted_by: work.actor.clone(),
        class: work.class(),
        queue: requested_queue(work).and_then(|queued| queued.queue),
        state,
        reason,
        refusal: None,
        submitted_at: work.submitted_at,
        ended_at,
        size: work.size(),
        tasks: work.job().map(task_counts),
        usage: work.job().and_then(|job| usage_summary(job, &work.size())),
        processes: processes(work).collect(),
        deployment: work.deployment_view(),
        when_unreachable: work.when_unreachable(),
        disruption_limit: work.disruption_limit(),
        labels: labels.clone(),
    }
}

fn task_counts(job: &Job) -> TaskCounts {
    let running = job.running_tasks().count() as u64;
    TaskCounts {
        total: job.tasks.total(),
        waiting: job.tasks.waiting(),
        delayed: job.tasks.delayed(),
        leased: job.tasks.leased().saturating_sub(running),
        running,
        succeeded: job.tasks.succeeded(),
        failed: job.tasks.failed(),
        cancelled: job.tasks.cancelled(),
    }
}

fn usage_summary(job: &Job, size: &Size) -> Option<UsageSummary> {
    let usage = &job.usage;
    let threads = u64::from(job.submission.threads.unwrap_or(1).max(1));
    let summary = |amounts: &Distribution| AmountSummary {
        median: amounts.percentile(50),
        p95: amounts.percentile(95),
        max: amounts.max(),
    };
    (usage.runs() > 0).then(|| UsageSummary {
        runs: usage.runs(),
        cpu_us: usage.cpu_us,
        wall_us: usage.wall_us,
        memory_bytes: summary(&usage.memory),
        run_us: summary(&usage.wall),
        requested_cpu_milli: size.cpu_milli / threads,
        requested_memory_bytes: size.memory_bytes,
    })
}

fn processes(work: &Work) -> impl Iterator<Item = ProcessView> {
    let current = work.slots.iter().flat_map(|slot| &slot.processes);
    current
        .chain(&work.leaving)
        .map(|(allocation, process)| ProcessView {
            allocation: allocation.clone(),
            node: process.node.clone(),
            incarnation: process.incarnation,
            state: process_state(process).to_owned(),
            exit: process.exit.clone(),
        })
}

fn process_state(process: &Process) -> &'static str {
    match process.state {
        AllocationState::Assigned => "assigned",
        AllocationState::Launching => "launching",
        AllocationState::Running => "running",
        AllocationState::Stopping => "stopping",
        AllocationState::Unreachable => "unreachable",
        AllocationState::Ended => "ended",
        AllocationState::Unknown => "unknown",
    }
}
