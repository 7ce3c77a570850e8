//! From work in memory to what is published of it: pure, and always from the whole.

use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_api::unreachable::UnreachableChoice;
use hayward_job_converter_api::{DemandEntry, ProcessView, TaskCounts, WorkState, WorkView};
use hayward_job_converter_domain::{State, convert, status};
use hayward_rm_scheduler_api::{AllocationState, VerdictEntry};
use hayward_vocabulary::launch::ENGINE;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Launch, Program, Size, Timestamp, WhenUnreachable};

use crate::work::{Job, Process, Slot, What, Work};

impl Work {
    pub fn size(&self) -> Size {
        let asked = match &self.what {
            What::Job(job) => &job.submission.size,
            What::Service(service) => &service.size,
            What::Reservation(reservation) => {
                return reservation.size.clone().unwrap_or_default();
            }
        };
        let mut size = asked.clone().unwrap_or_else(|| Size::memory(GIB));
        if let What::Service(service) = &self.what
            && service.container.is_some()
        {
            // Only nodes with a container engine have it.
            size.extras.insert(ENGINE.to_owned(), 1);
        }
        size
    }

    fn class(&self) -> Option<String> {
        match &self.what {
            What::Job(job) => job.submission.class.clone(),
            What::Service(service) => service.class.clone(),
            What::Reservation(reservation) => reservation.class.clone(),
        }
    }

    fn when_unreachable(&self) -> WhenUnreachable {
        let chosen = match &self.what {
            What::Job(job) => job.submission.when_unreachable,
            What::Service(service) => service.when_unreachable,
            What::Reservation(_) => None,
        };
        chosen.map(UnreachableChoice::meaning).unwrap_or_default()
    }

    fn disruption_limit(&self) -> Option<u64> {
        match &self.what {
            What::Job(job) => job.submission.disruption_limit,
            What::Service(service) => service.disruption_limit,
            What::Reservation(_) => None,
        }
    }

    /// The name its user chose, or the program's.
    fn name(&self) -> String {
        let (name, command) = match &self.what {
            What::Job(job) => (&job.submission.name, job.submission.command.first()),
            What::Service(service) => (&service.name, service.command.first()),
            What::Reservation(reservation) => (&reservation.name, None),
        };
        let program = command.and_then(|path| path.rsplit('/').find(|part| !part.is_empty()));
        name.clone()
            .unwrap_or_else(|| program.unwrap_or("reservation").to_owned())
    }
}

/// What a slot asks the scheduler for; `None` when there is nothing left to ask for.
pub fn demand(work: &Work, slot: usize, now_ms: u64, grace_ms: u64) -> Option<DemandEntry> {
    let state = work.slots.get(slot)?;
    let (max, remaining, mean, threads) = match &work.what {
        What::Job(job) => {
            let tasks = job.book.total();
            let max = job.submission.max_processes.unwrap_or(tasks);
            let threads = job.submission.threads.unwrap_or(1);
            (max, job.book.remaining(), job.book.mean_ms(), threads)
        }
        _ => (1, 1, None, 1),
    };
    let held_at = state.brake.is_held(now_ms).then(|| state.alive() as u64);
    let want = convert(max, remaining, mean, held_at, state.task_ms)?;
    let machines = match &work.what {
        What::Job(job) => &job.submission.machines,
        What::Service(service) => &service.machines,
        What::Reservation(reservation) => &reservation.machines,
    };
    Some(DemandEntry {
        work: work.slot_id(slot),
        kind: work.kind(),
        user: work.user.clone(),
        class: work.class(),
        submitted_at: work.submitted_at,
        size: work.size(),
        max_processes: want.max_processes,
        remaining_tasks: want.remaining_tasks,
        threads,
        task_ms: want.task_ms,
        machines: machines.clone(),
        service: matches!(work.what, What::Service(_)).then(|| work.id.clone()),
        disruption_limit: work.disruption_limit(),
        when_unreachable: work.when_unreachable(),
        settled: state.settled.clone(),
        launch: launch(work, slot, grace_ms),
    })
}

fn launch(work: &Work, slot: usize, stop_grace_ms: u64) -> Option<Launch> {
    let traceparent = work.traceparent.clone();
    match &work.what {
        // Environment and directory travel with each task.
        What::Job(job) => Some(Launch {
            program: Program::RunTasks {
                token: job.runner.token.to_string(),
                threads: job.submission.threads.unwrap_or(1),
            },
            environment: std::collections::BTreeMap::new(),
            working_directory: None,
            stop_grace_ms,
            traceparent,
        }),
        What::Service(service) => Some(Launch {
            program: program(service, slot),
            environment: service.environment.clone(),
            working_directory: service.working_directory.clone(),
            stop_grace_ms,
            traceparent,
        }),
        What::Reservation(_) => None,
    }
}

fn program(service: &ServiceSubmission, slot: usize) -> Program {
    let argv = filled(&service.command, "{instance}", slot as u64);
    match &service.container {
        None => Program::Command { argv },
        Some(container) => Program::Container {
            argv,
            container: container.form(),
        },
    }
}

/// An argument vector with its placeholder filled in.
pub fn filled(argv: &[String], placeholder: &str, number: u64) -> Vec<String> {
    let number = number.to_string();
    argv.iter()
        .map(|word| word.replace(placeholder, &number))
        .collect()
}

/// How work ended.
pub struct End {
    pub state: WorkState,
    pub reason: Option<String>,
    pub at: Timestamp,
}

/// What its user sees while it is not over.
pub fn view(work: &Work, verdict: Option<&VerdictEntry>) -> WorkView {
    let facts = work.facts(false);
    let (state, reason) = match status(&facts) {
        State::Running => (WorkState::Running, running_reason(work, facts.running)),
        State::Stopping | State::Gone => (
            WorkState::Stopping,
            Some("cancelled; its processes are ending".to_owned()),
        ),
        State::Waiting | State::Refused => (WorkState::Waiting, Some(waiting(work, verdict))),
    };
    seen(work, state, reason, None)
}

/// What its user sees once it is over.
pub fn final_view(work: &Work, end: &End) -> WorkView {
    let mut view = seen(work, end.state, end.reason.clone(), Some(end.at));
    view.processes.clear();
    view
}

fn seen(
    work: &Work,
    state: WorkState,
    reason: Option<String>,
    ended_at: Option<Timestamp>,
) -> WorkView {
    let labels = match &work.what {
        What::Job(job) => &job.submission.labels,
        What::Service(service) => &service.labels,
        What::Reservation(reservation) => &reservation.labels,
    };
    WorkView {
        id: work.id.clone(),
        kind: work.kind(),
        name: work.name(),
        user: work.user.clone(),
        class: work.class(),
        state,
        reason,
        submitted_at: work.submitted_at,
        ended_at,
        size: work.size(),
        tasks: work.job().map(counts),
        processes: work.slots.iter().flat_map(processes).collect(),
        when_unreachable: work.when_unreachable(),
        disruption_limit: work.disruption_limit(),
        labels: labels.clone(),
    }
}

fn counts(job: &Job) -> TaskCounts {
    TaskCounts {
        total: job.book.total(),
        waiting: job.book.waiting(),
        leased: job.book.leased(),
        succeeded: job.book.succeeded(),
        failed: job.book.failed(),
    }
}

fn processes(slot: &Slot) -> impl Iterator<Item = ProcessView> {
    slot.processes
        .iter()
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

/// What becomes of processes that cannot be reached (W7).
fn cut_off(work: &Work) -> Option<String> {
    let unreachable = |process: &&Process| process.state == AllocationState::Unreachable;
    let processes = work.slots.iter().flat_map(|slot| slot.processes.values());
    let count = processes.filter(unreachable).count();
    let next = match work.when_unreachable() {
        WhenUnreachable::Replace => "it is replaced when its node is lost".to_owned(),
        WhenUnreachable::ReplaceAfter { ms } => {
            format!("it is replaced {ms} ms after its node was lost, unless that is back before")
        }
        WhenUnreachable::Wait => "it waits for its node".to_owned(),
        WhenUnreachable::Exclusive => {
            "its node ends it by itself, and only then it is replaced".to_owned()
        }
    };
    match count {
        0 => None,
        1 => Some(format!("a process of it cannot be reached: {next}")),
        _ => Some(format!(
            "{count} processes of it cannot be reached; of each: {next}"
        )),
    }
}

fn waiting(work: &Work, verdict: Option<&VerdictEntry>) -> String {
    if let Some(cut_off) = cut_off(work) {
        return cut_off;
    }
    if work.slots.iter().any(|slot| slot.alive() > 0) {
        return "a process of it is being started".to_owned();
    }
    let note = work.slots.iter().find_map(|slot| slot.note.clone());
    note.or_else(|| verdict.map(|verdict| verdict.detail.clone()))
        .unwrap_or_else(|| "the scheduler has not considered it yet".to_owned())
}

fn running_reason(work: &Work, running: usize) -> Option<String> {
    let instances = work.slots.len();
    if let Some(cut_off) = cut_off(work) {
        return Some(cut_off);
    }
    if running >= instances || !matches!(work.what, What::Service(_)) {
        return None;
    }
    let note = work.slots.iter().find_map(|slot| slot.note.as_deref());
    let first = format!("{running} of {instances} instances run");
    Some(note.map_or(first.clone(), |note| format!("{first}; {note}")))
}
