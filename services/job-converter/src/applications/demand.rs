//! Demand of applications: one entry per task that may be placed, and one per group for its
//! placeholders. The functions are pure and compute each entry from the whole state.

use std::collections::BTreeSet;

use hayward_job_converter_api::{DemandEntry, Part};
use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend;
use hayward_job_converter_application_protocol::gang_policy::Admission;
use hayward_job_converter_application_protocol::ids::TaskId;
use hayward_job_converter_application_protocol::messages::Termination;
use hayward_job_converter_application_protocol::task::State;
use hayward_job_converter_application_protocol::task_groups::TaskGroup;
use hayward_vocabulary::launch::LaunchLimits;
use hayward_vocabulary::{
    AllocationId, Apart, Gang, Launch, Program, Queued, Size, WhenUnreachable, WorkKind,
};

use super::application_record::{AppRecord, Slot};

/// Name of the only gang of an application. All groups of an application form one gang.
const GANG_NAME: &str = "gang";

/// Returns the entry of a task that may have a process. `placeholder` is the placeholder that the
/// task replaces.
pub fn task_entry(
    record: &AppRecord,
    front: &frontend::Application,
    task: &TaskId,
    placeholder: Option<&TaskId>,
    stop_grace_ms: u64,
) -> Option<DemandEntry> {
    let core = record.core.as_ref()?;
    let info = record.tasks.get(task)?;
    let number = info.number?;
    let state = front.tasks.get(task).map(|it| it.state);
    if state.is_some_and(|state| state.is_terminated() || state == State::Killing) {
        return None;
    }
    let ask = if let Some(held) = core.allocations.get(task) {
        // Without the entry, the scheduler ends the process.
        if held.released.is_some() {
            return None;
        }
        &held.ask
    } else if let Some(placeholder) = placeholder {
        let held = core.allocations.get(placeholder)?;
        &held.successor.as_ref()?.0
    } else {
        let is_open = matches!(
            core.head.state,
            core::State::Accepted | core::State::Running | core::State::Completing
        );
        let ask = core.pending.get(task)?;
        // A task whose group has placeholders waits until it can replace one of them.
        if !is_open || core.can_replace_placeholder(ask) {
            return None;
        }
        ask
    };
    let spec = front.tasks.get(task).map(|it| it.spec.clone());
    let spec = spec.unwrap_or_default();
    let priority = ask.priority;
    let mut entry = base_entry(record, Slot::Task(number), ask.size.clone());
    entry.submitted_at = ask.created_at;
    entry.queued = requested_queue(record, front, priority).map(|queued| {
        Box::new(Queued {
            originator: spec.originator,
            required_node: spec.placement.required_node,
            preempts: spec.placement.preempts,
            preemptable: spec.placement.preemptable,
            ..queued
        })
    });
    entry.machines = spec.placement.machines;
    entry.apart = spec.placement.apart.map(|spread| Apart {
        group: record.application_work_id(),
        by_label: spread.by_label,
    });
    entry.part = Some(Part {
        replaces: placeholder.and_then(|it| record.allocation_of(it)).cloned(),
    });
    entry.launch = task_launch(record, front, task, &ask.size, stop_grace_ms);
    Some(entry)
}

/// Returns the entry of a group that needs placeholders.
pub fn group_entry(
    record: &AppRecord,
    front: &frontend::Application,
    number: u32,
    group: &TaskGroup,
) -> Option<DemandEntry> {
    let placeholders = count_placeholders(record, front, group);
    let core = record.core.as_ref()?;
    let slot = Slot::Group(number);
    let mut entry = base_entry(record, slot, group.min_resource.clone());
    if placeholders == 0 {
        return None;
    }
    entry.submitted_at = core.head.submitted_at;
    entry.max_processes = placeholders;
    entry.remaining_tasks = placeholders;
    let metadata = &front.head.metadata;
    // A minimum of 0 allows the scheduler to grant placeholders one by one.
    let atomic = metadata.scheduling_policy_parameters.admission == Admission::Atomic;
    let gang = Some(Gang {
        name: GANG_NAME.to_owned(),
        min: if atomic { placeholders } else { 0 },
    });
    entry.queued = requested_queue(record, front, metadata.priority).map(|queued| {
        Box::new(Queued {
            gang,
            preempts: metadata.preempts,
            preemptable: metadata.preemptable,
            ..queued
        })
    });
    entry.settled = record.settled.get(&number).cloned().unwrap_or_default();
    Some(entry)
}

/// Returns the entry that asks whether the queue admits an application without groups. It requests
/// no process.
pub fn queue_entry(record: &AppRecord, front: &frontend::Application) -> Option<DemandEntry> {
    let core = record.core.as_ref()?;
    let requested = needs_admission(front) && front.head.metadata.task_groups.is_empty();
    let is_decided = core.head.accepted || core.head.state != core::State::New;
    if !requested || is_decided || front.head.state.is_dead() {
        return None;
    }
    let mut entry = base_entry(record, Slot::Queue, Size::default());
    entry.submitted_at = core.head.submitted_at;
    entry.max_processes = 0;
    entry.remaining_tasks = 0;
    entry.queued = requested_queue(record, front, front.head.metadata.priority).map(Box::new);
    Some(entry)
}

/// Returns true if the application uses a queue, which then admits it first. Applications without a
/// queue are served in classes, and the scheduler decides about each task alone.
pub fn needs_admission(front: &frontend::Application) -> bool {
    let metadata = &front.head.metadata;
    let has_queue = !metadata.queue_name.is_empty() || metadata.pool.is_some();
    has_queue || !metadata.task_groups.is_empty()
}

/// Returns the number of placeholders that the group holds, waits for, or has to replace.
fn count_placeholders(record: &AppRecord, front: &frontend::Application, group: &TaskGroup) -> u64 {
    let Some(core) = record.core.as_ref() else {
        return 0;
    };
    if front.head.state.is_dead() || core.head.state.is_over() {
        return 0;
    }
    // The demand of a new application is its request for admission.
    if core.head.state == core::State::New {
        return u64::from(group.min_member);
    }
    let in_group = |name: Option<&_>| name == Some(&group.name);
    let requested = core.pending.values();
    let requested = requested.filter(|it| it.placeholder && in_group(it.group.as_ref()));
    let held = core.allocations.values().filter(|held| {
        let is_counted = matches!(held.released, None | Some(Termination::PlaceholderReplaced));
        held.ask.placeholder && is_counted && in_group(held.ask.group.as_ref())
    });
    let lost = core.lost_members();
    let lost = lost.iter().filter(|it| it.group == group.name);
    let lost: u64 = lost.map(|it| u64::from(it.count)).sum();
    (requested.count() + held.count()) as u64 + lost
}

fn base_entry(record: &AppRecord, slot: Slot, size: Size) -> DemandEntry {
    DemandEntry {
        work: record.work_id(slot),
        kind: WorkKind::Job,
        user: record.user.clone(),
        class: None,
        submitted_at: hayward_vocabulary::Timestamp::default(),
        size,
        max_processes: 1,
        remaining_tasks: 1,
        threads: 1,
        task_ms: None,
        machines: Vec::new(),
        service: None,
        disruption_limit: None,
        when_unreachable: WhenUnreachable::default(),
        processor: None,
        apart: None,
        host: None,
        orchestrated: None,
        queued: None,
        part: Some(Part::default()),
        settled: BTreeSet::<AllocationId>::new(),
        launch: None,
        traceparent: None,
    }
}

/// Returns the queue, pool and priority. `None` if the application has no queue, pool and gang.
fn requested_queue(
    record: &AppRecord,
    front: &frontend::Application,
    priority: i32,
) -> Option<Queued> {
    let metadata = &front.head.metadata;
    let queue = (!metadata.queue_name.is_empty()).then(|| metadata.queue_name.clone());
    needs_admission(front).then(|| Queued {
        pool: metadata.pool.clone(),
        queue,
        application: Some(record.application_work_id().to_string()),
        priority,
        groups: metadata.groups.clone(),
        tags: metadata.tags.clone(),
        ..Queued::default()
    })
}

fn task_launch(
    record: &AppRecord,
    front: &frontend::Application,
    task: &TaskId,
    size: &Size,
    stop_grace_ms: u64,
) -> Option<Launch> {
    let program = record.tasks.get(task)?.program.as_ref()?;
    let mut environment = program.environment.clone();
    // Variables of Hayward override those of the user.
    let variables = [
        ("HAYWARD_APPLICATION", front.head.id.as_str()),
        ("HAYWARD_TASK", task.as_str()),
    ];
    environment.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let group = front.tasks.get(task);
    let group = group.and_then(|it| it.spec.task_group_name.as_ref());
    environment.extend(group.map(|it| ("HAYWARD_TASK_GROUP".to_owned(), it.to_string())));
    Some(Launch {
        program: Program::Command {
            argv: program.command.clone(),
        },
        environment,
        working_directory: program.working_directory.clone(),
        stop_grace_ms,
        traceparent: program.traceparent.clone(),
        within: None,
        account: None,
        limits: Some(LaunchLimits::of(size)),
    })
}
