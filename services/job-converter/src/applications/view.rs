//! Views of applications.

use std::collections::BTreeMap;
use std::fmt::Debug;

use hayward_job_converter_api::NOT_YET_CONSIDERED;
use hayward_job_converter_api::applications::{
    ApplicationFailure, ApplicationList, ApplicationSummary, ApplicationTaskView, ApplicationView,
    ApplicationWarning, GroupView, PlaceholderView, StateLogEntry, WaitView,
};
use hayward_job_converter_application_protocol::frontend;
use hayward_job_converter_application_protocol::groups::TaskGroup;
use hayward_job_converter_application_protocol::ids::AppId;
use hayward_job_converter_application_protocol::log::StateLog;
use hayward_job_converter_application_protocol::partition::Partition;
use hayward_job_converter_application_protocol::task::Task;
use hayward_vocabulary::WorkId;

use super::commands::{code, written};
use super::record::{AppRecord, Slot};
use super::{Verdicts, demand};

/// Maximum number of tasks and placeholders in one view.
const SHOWN: usize = 1_000;
const REASONS: usize = 16;
/// Maximum number of applications that one request reads.
const LOOKED_AT: usize = 20_000;

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

pub fn application(
    record: &AppRecord,
    front: &frontend::Application,
    verdicts: &Verdicts,
) -> ApplicationView {
    let head = &front.head;
    let core = record.core.as_ref();
    let real = || front.tasks.values().filter(|it| !it.placeholder);
    let mut task_states: BTreeMap<String, u64> = BTreeMap::new();
    for task in real() {
        *task_states.entry(debug_name(&task.state)).or_default() += 1;
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
        state: debug_name(&head.state),
        scheduling_state: core.map(|core| debug_name(&core.head.state)),
        failure: head.failure.as_ref().map(failure),
        task_groups: groups(record, &head.metadata.task_groups),
        tasks: real().take(SHOWN).map(|it| task(record, it)).collect(),
        task_states,
        placeholders: placeholders(record),
        state_log: log(record, front),
        warnings: record.warnings.iter().map(warning).collect(),
        why: why(record, front, verdicts),
        timers: timers
            .and_then(|it| serde_json::from_value(it).ok())
            .unwrap_or_default(),
        ignored_fields: Vec::new(),
    }
}

fn warning(it: &super::record::Warning) -> ApplicationWarning {
    ApplicationWarning {
        at: it.at,
        task: it.task.as_ref().map(ToString::to_string),
        message: it.message.clone(),
    }
}

/// Returns the wire names of all states.
pub fn states() -> Vec<String> {
    frontend::State::ALL.iter().map(debug_name).collect()
}

fn debug_name(state: &impl Debug) -> String {
    format!("{state:?}")
}

fn failure(failure: &frontend::Failure) -> ApplicationFailure {
    ApplicationFailure {
        code: code(failure.code),
        message: failure.message.clone(),
    }
}

fn groups(record: &AppRecord, groups: &[TaskGroup]) -> Vec<GroupView> {
    let core = record.core.as_ref();
    let one = |(at, group): (u32, &TaskGroup)| {
        let counters = core.and_then(|core| core.head.groups.get(&group.name));
        let counters = counters.copied().unwrap_or_default();
        let mine = |name: Option<&_>| name == Some(&group.name);
        let pending = core.map_or(0, |core| {
            let asks = core.pending.values();
            asks.filter(|it| it.placeholder && mine(it.group.as_ref()))
                .count()
        });
        let held = core.map_or(0, |core| {
            let held = core.allocations.values();
            held.filter(|it| it.ask.placeholder && mine(it.ask.group.as_ref()))
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
            work: record.work(Slot::Group(at)),
        }
    };
    (0..).zip(groups).map(one).collect()
}

pub fn task(record: &AppRecord, task: &Task) -> ApplicationTaskView {
    let info = record.tasks.get(&task.id);
    let number = info.and_then(|it| it.number).unwrap_or_default();
    ApplicationTaskView {
        id: task.id.to_string(),
        alias: task.alias().to_owned(),
        state: debug_name(&task.state),
        task_group_name: task.wish.task_group_name.as_ref().map(ToString::to_string),
        size: task.wish.size.clone(),
        priority: task.wish.priority,
        node: task.node.clone(),
        allocation: info.and_then(|it| it.place.clone()),
        work: record.work(Slot::Task(number)),
        exit: info.and_then(|it| it.exit.clone()),
        failure: task.failure.as_ref().map(failure),
    }
}

fn placeholders(record: &AppRecord) -> Vec<PlaceholderView> {
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
        allocation: record.place(&held.ask.key).cloned(),
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
    held.chain(waiting).take(SHOWN).collect()
}

fn log(record: &AppRecord, front: &frontend::Application) -> Vec<StateLogEntry> {
    let mut all = entries(&front.head.log, "application");
    if let Some(core) = &record.core {
        all.extend(entries(&core.head.log, "scheduling"));
    }
    all.sort_by_key(|entry| entry.at);
    all
}

fn entries<S: Debug>(log: &StateLog<S>, machine: &str) -> Vec<StateLogEntry> {
    let entries = log.entries.iter().map(|entry| StateLogEntry {
        at: entry.at,
        state: debug_name(&entry.state),
        machine: machine.to_owned(),
    });
    entries.collect()
}

/// Returns the verdicts of waiting groups, then of waiting tasks.
fn why(record: &AppRecord, front: &frontend::Application, verdicts: &Verdicts) -> Vec<WaitView> {
    let Some(core) = &record.core else {
        return Vec::new();
    };
    let mut waiting: Vec<(String, WorkId)> = Vec::new();
    for (at, group) in (0..).zip(&core.head.submission.task_groups) {
        let mut asks = core.pending.values();
        let requested = asks.any(|it| it.placeholder && it.group.as_ref() == Some(&group.name));
        if requested
            || (core.head.state == hayward_job_converter_application_protocol::core::State::New)
        {
            waiting.push((group.name.to_string(), record.work(Slot::Group(at))));
        }
    }
    if demand::queue_entry(record, front).is_some() {
        let metadata = &front.head.metadata;
        let pool = metadata.pool.clone().unwrap_or_default();
        let queue = Some(metadata.queue_name.clone()).filter(|it| !it.is_empty());
        waiting.push((queue.unwrap_or(pool), record.work(Slot::Queue)));
    }
    let tasks = core.pending.values().filter(|it| !it.placeholder);
    for ask in tasks.take(REASONS) {
        let number = record.tasks.get(&ask.key).and_then(|it| it.number);
        let work = number.map(|number| record.work(Slot::Task(number)));
        waiting.extend(work.map(|work| (ask.key.to_string(), work)));
    }
    if front.head.state.is_dead() {
        waiting.clear();
    }
    let reported = waiting.into_iter().take(REASONS);
    reported
        .map(|(waiting, work)| match verdicts.get(work.as_str()) {
            Some(verdict) => WaitView {
                of: waiting,
                reason: written(&verdict.reason),
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

/// Lists one page of applications. Other users' applications are skipped first, so that no cursor
/// names one.
pub fn list(
    partition: &Partition,
    records: &BTreeMap<AppId, AppRecord>,
    filter: &Filter,
) -> ApplicationList {
    use std::ops::Bound::{Excluded, Unbounded};
    let after = filter.after.as_ref().map_or(Unbounded, Excluded);
    let mine = |record: &AppRecord| {
        let user = filter.user.as_deref();
        user.is_none_or(|user| user == record.user.as_str())
    };
    let own = records.range::<AppId, _>((after, Unbounded));
    let own = own.filter(|(_, record)| mine(record));
    let mut items = Vec::new();
    let mut last = None;
    for (looked_at, (id, record)) in own.enumerate() {
        if items.len() == filter.limit || looked_at == LOOKED_AT {
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
        if state.is_none_or(|state| state == debug_name(&front.head.state)) {
            items.push(summary(record, front));
        }
    }
    ApplicationList {
        items,
        next_cursor: None,
        revision: 0,
    }
}

fn summary(record: &AppRecord, front: &frontend::Application) -> ApplicationSummary {
    let placeholder = |wanted: bool| {
        let core = record.core.as_ref();
        let held = core.into_iter().flat_map(|core| core.allocations.values());
        held.filter(|it| it.ask.placeholder == wanted).count() as u64
    };
    let tasks = front.tasks.values().filter(|it| !it.placeholder);
    ApplicationSummary {
        id: front.head.id.to_string(),
        user: record.user.clone(),
        queue_name: front.head.metadata.queue_name.clone(),
        state: debug_name(&front.head.state),
        scheduling_state: record
            .core
            .as_ref()
            .map(|core| debug_name(&core.head.state)),
        tasks: tasks.count() as u64,
        placed: placeholder(false),
        placeholders: placeholder(true),
        created_at: front.head.metadata.creation_time.unwrap_or_default(),
        failure: front.head.failure.as_ref().map(failure),
    }
}
