//! Views of applications, as users read them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use hayward_job_converter_api::NOT_YET_CONSIDERED;
use hayward_job_converter_api::applications::{
    ApplicationFailure, ApplicationList, ApplicationSummary, ApplicationTaskView, ApplicationView,
    ApplicationWarning, GroupView, PlaceholderView, StateLogEntry, WaitView,
};
use hayward_job_converter_application_protocol::frontend;
use hayward_job_converter_application_protocol::ids::AppId;
use hayward_job_converter_application_protocol::partition::Partition;
use hayward_job_converter_application_protocol::state_log::StateLog;
use hayward_job_converter_application_protocol::task::Task;
use hayward_job_converter_application_protocol::task_groups::TaskGroup;
use hayward_vocabulary::WorkId;

use super::application_record::{AppRecord, Slot};
use super::commands::{failure_code_name, wire_name};
use super::{Verdicts, demand};

/// Maximum number of tasks and placeholders in one view.
const MAX_SHOWN: usize = 1_000;
/// Maximum number of wait reasons in one view.
const MAX_REASONS: usize = 16;
/// Maximum number of applications that one request reads. A page that reaches it ends early and has
/// a cursor.
const MAX_READ: usize = 20_000;

/// Filter and page of a list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// User whose applications are listed. `None` lists all users.
    pub user: Option<String>,
    pub state: Option<String>,
    pub limit: usize,
    /// Last id of the previous page. Only ids after it are listed.
    pub after: Option<AppId>,
}

pub fn application_view(
    record: &AppRecord,
    front: &frontend::Application,
    verdicts: &Verdicts,
) -> ApplicationView {
    let head = &front.head;
    let core = record.core.as_ref();
    let real_tasks = || front.tasks.values().filter(|it| !it.placeholder);
    let mut task_states: BTreeMap<String, u64> = BTreeMap::new();
    for task in real_tasks() {
        *task_states.entry(state_name(&task.state)).or_default() += 1;
    }
    let timers = core.map(|core| serde_json::to_value(&core.head.timers).unwrap_or_default());
    ApplicationView {
        id: head.id.to_string(),
        user: record.user.clone(),
        queue_name: head.metadata.queue_name.clone(),
        pool: head.metadata.pool.clone(),
        priority: head.metadata.priority,
        tags: head.metadata.tags.clone(),
        created_at: head.metadata.creation_time.unwrap_or_default(),
        state: state_name(&head.state),
        scheduling_state: core.map(|core| state_name(&core.head.state)),
        failure: head.failure.as_ref().map(failure_view),
        task_groups: group_views(record, &head.metadata.task_groups),
        tasks: real_tasks()
            .take(MAX_SHOWN)
            .map(|it| task_view(record, it))
            .collect(),
        task_states,
        placeholders: placeholder_views(record),
        state_log: state_log(record, front),
        warnings: record.warnings.iter().map(warning_view).collect(),
        why: wait_views(record, front, verdicts),
        timers: timers
            .and_then(|it| serde_json::from_value(it).ok())
            .unwrap_or_default(),
        ignored_fields: Vec::new(),
    }
}

fn warning_view(stored: &super::application_record::Warning) -> ApplicationWarning {
    ApplicationWarning {
        at: stored.at,
        task: stored.task.as_ref().map(ToString::to_string),
        message: stored.message.clone(),
    }
}

/// Returns the wire names of all states.
pub fn state_names() -> Vec<String> {
    frontend::State::ALL.iter().map(state_name).collect()
}

fn state_name(state: &impl Debug) -> String {
    format!("{state:?}")
}

fn failure_view(failure: &frontend::Failure) -> ApplicationFailure {
    ApplicationFailure {
        code: failure_code_name(failure.code),
        message: failure.message.clone(),
    }
}

fn group_views(record: &AppRecord, groups: &[TaskGroup]) -> Vec<GroupView> {
    let core = record.core.as_ref();
    let to_view = |(number, group): (u32, &TaskGroup)| {
        let counters = core.and_then(|core| core.head.groups.get(&group.name));
        let counters = counters.copied().unwrap_or_default();
        let in_group = |name: Option<&_>| name == Some(&group.name);
        let pending = core.map_or(0, |core| {
            let asks = core.pending.values();
            asks.filter(|it| it.placeholder && in_group(it.group.as_ref()))
                .count()
        });
        let held = core.map_or(0, |core| {
            let held = core.allocations.values();
            held.filter(|it| it.ask.placeholder && in_group(it.ask.group.as_ref()))
                .count()
        });
        GroupView {
            name: group.name.to_string(),
            min_member: group.min_member,
            min_resource: group.min_resource.clone(),
            count: counters.count,
            replaced: counters.replaced,
            timedout: counters.timedout,
            pending: u32::try_from(pending).unwrap_or(u32::MAX),
            held: u32::try_from(held).unwrap_or(u32::MAX),
            work: record.work_id(Slot::Group(number)),
        }
    };
    (0..).zip(groups).map(to_view).collect()
}

pub fn task_view(record: &AppRecord, task: &Task) -> ApplicationTaskView {
    let info = record.tasks.get(&task.id);
    let number = info.and_then(|it| it.number).unwrap_or_default();
    ApplicationTaskView {
        id: task.id.to_string(),
        alias: task.alias().to_owned(),
        state: state_name(&task.state),
        task_group_name: task.spec.task_group_name.as_ref().map(ToString::to_string),
        size: task.spec.size.clone(),
        priority: task.spec.priority,
        node: task.node.clone(),
        allocation: info.and_then(|it| it.allocation.clone()),
        work: record.work_id(Slot::Task(number)),
        exit: info.and_then(|it| it.exit.clone()),
        failure: task.failure.as_ref().map(failure_view),
    }
}

fn placeholder_views(record: &AppRecord) -> Vec<PlaceholderView> {
    let Some(core) = &record.core else {
        return Vec::new();
    };
    let held = core.allocations.values().filter(|it| it.ask.placeholder);
    let held = held.map(|held| PlaceholderView {
        id: held.ask.key.to_string(),
        task_group_name: held
            .ask
            .group
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        node: Some(held.node.clone()),
        allocation: record.allocation_of(&held.ask.key).cloned(),
        replaced_by: held.successor.as_ref().map(|(ask, _)| ask.key.to_string()),
    });
    let waiting = core.pending.values().filter(|it| it.placeholder);
    let waiting = waiting.map(|ask| PlaceholderView {
        id: ask.key.to_string(),
        task_group_name: ask
            .group
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        node: None,
        allocation: None,
        replaced_by: None,
    });
    held.chain(waiting).take(MAX_SHOWN).collect()
}

fn state_log(record: &AppRecord, front: &frontend::Application) -> Vec<StateLogEntry> {
    let mut all = log_entries(&front.head.log, "application");
    if let Some(core) = &record.core {
        all.extend(log_entries(&core.head.log, "scheduling"));
    }
    all.sort_by_key(|entry| entry.at);
    all
}

fn log_entries<S: Debug>(log: &StateLog<S>, machine: &str) -> Vec<StateLogEntry> {
    let entries = log.entries.iter().map(|entry| StateLogEntry {
        at: entry.at,
        state: state_name(&entry.state),
        machine: machine.to_owned(),
    });
    entries.collect()
}

/// Returns the verdicts of waiting groups, then of waiting tasks.
fn wait_views(
    record: &AppRecord,
    front: &frontend::Application,
    verdicts: &Verdicts,
) -> Vec<WaitView> {
    let Some(core) = &record.core else {
        return Vec::new();
    };
    let mut waiting: Vec<(String, WorkId)> = Vec::new();
    for (number, group) in (0..).zip(&core.head.submission.task_groups) {
        let mut asks = core.pending.values();
        let requested = asks.any(|it| it.placeholder && it.group.as_ref() == Some(&group.name));
        if requested
            || (core.head.state == hayward_job_converter_application_protocol::core::State::New)
        {
            waiting.push((group.name.to_string(), record.work_id(Slot::Group(number))));
        }
    }
    if demand::queue_entry(record, front).is_some() {
        let metadata = &front.head.metadata;
        let pool = metadata.pool.clone().unwrap_or_default();
        let queue = Some(metadata.queue_name.clone()).filter(|it| !it.is_empty());
        waiting.push((queue.unwrap_or(pool), record.work_id(Slot::Queue)));
    }
    let tasks = core.pending.values().filter(|it| !it.placeholder);
    for ask in tasks.take(MAX_REASONS) {
        let number = record.tasks.get(&ask.key).and_then(|it| it.number);
        let work = number.map(|number| record.work_id(Slot::Task(number)));
        waiting.extend(work.map(|work| (ask.key.to_string(), work)));
    }
    if front.head.state.is_dead() {
        waiting.clear();
    }
    let shown = waiting.into_iter().take(MAX_REASONS);
    shown
        .map(|(waiting, work)| match verdicts.get(work.as_str()) {
            Some(verdict) => WaitView {
                of: waiting,
                reason: wire_name(&verdict.reason),
                detail: verdict.detail.clone(),
                refused: verdict.refused,
                unblock: verdict.unblock.clone(),
                work,
            },
            None => WaitView {
                of: waiting,
                reason: NOT_YET_CONSIDERED.to_owned(),
                detail: "the scheduler has not considered it yet".to_owned(),
                refused: false,
                unblock: None,
                work,
            },
        })
        .collect()
}

/// Lists one page of applications. Applications of other users are skipped first, so that no cursor
/// names one of them.
pub fn list(
    partition: &Partition,
    records: &BTreeMap<AppId, AppRecord>,
    filter: &Filter,
) -> ApplicationList {
    use std::ops::Bound::{Excluded, Unbounded};
    let first = filter.after.as_ref().map_or(Unbounded, Excluded);
    let is_visible = |record: &AppRecord| {
        let user = filter.user.as_deref();
        user.is_none_or(|user| user == record.user.as_str())
    };
    let visible = records.range::<AppId, _>((first, Unbounded));
    let visible = visible.filter(|(_, record)| is_visible(record));
    let mut items = Vec::new();
    let mut last = None;
    for (read_count, (id, record)) in visible.enumerate() {
        if items.len() == filter.limit || read_count == MAX_READ {
            let next_cursor = last;
            return ApplicationList {
                items,
                next_cursor,
                revision: 0,
            };
        }
        last = Some(id.to_string());
        let Some(front) = partition.get(id) else {
            continue;
        };
        let state = filter.state.as_deref();
        if state.is_none_or(|state| state == state_name(&front.head.state)) {
            items.push(application_summary(record, front));
        }
    }
    ApplicationList {
        items,
        next_cursor: None,
        revision: 0,
    }
}

fn application_summary(record: &AppRecord, front: &frontend::Application) -> ApplicationSummary {
    let count_held = |is_placeholder: bool| {
        let core = record.core.as_ref();
        let held = core.into_iter().flat_map(|core| core.allocations.values());
        held.filter(|it| it.ask.placeholder == is_placeholder)
            .count() as u64
    };
    let tasks = front.tasks.values().filter(|it| !it.placeholder);
    ApplicationSummary {
        id: front.head.id.to_string(),
        user: record.user.clone(),
        queue_name: front.head.metadata.queue_name.clone(),
        state: state_name(&front.head.state),
        scheduling_state: record
            .core
            .as_ref()
            .map(|core| state_name(&core.head.state)),
        tasks: tasks.count() as u64,
        placed: count_held(false),
        placeholders: count_held(true),
        created_at: front.head.metadata.creation_time.unwrap_or_default(),
        failure: front.head.failure.as_ref().map(failure_view),
    }
}
