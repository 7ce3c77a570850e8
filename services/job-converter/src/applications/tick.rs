//! Runs ticks and timers, then writes changed rows and publishes changed entries once per batch.

use hayward_job_converter_api::DEMAND;
use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend::{self, State};
use hayward_job_converter_application_protocol::ids::{AppId, TaskId};
use hayward_job_converter_application_protocol::task;
use hayward_publication::committer::{Batch, Moment};
use hayward_vocabulary::{Timestamp, WorkId};
use uuid::Uuid;

use super::record::{AppRecord, Dirty, HeadRow, Slot, TaskInfo, TaskRow, hash};
use super::{Applications, Verdicts, demand};
use crate::store::Rows;
use crate::store::applications::{HeadText, TaskText};

/// Maximum number of consecutive ticks while a tick changes something. A new application thus
/// reaches `Running` in one batch.
const TICKS: usize = 4;

impl Applications {
    /// Runs due ticks and writes the changes. Returns the applications whose view may have changed,
    /// and the milliseconds until the next timer.
    pub fn run(
        &mut self,
        verdicts: &Verdicts,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> (Vec<Uuid>, Option<u64>) {
        let now = moment.now;
        while let Some((at, id)) = self.due.first().cloned()
            && at <= now.unix_ms()
        {
            self.due.pop_first();
            if let Some(record) = self.records.get_mut(&id) {
                record.due = None;
            }
            self.mark_dirty(&id);
        }
        let ids: Vec<AppId> = self.dirty.keys().cloned().collect();
        for id in &ids {
            self.advance(id, verdicts, now);
        }
        self.collect_frontend_changes();
        let dirty = std::mem::take(&mut self.dirty);
        let mut changed = Vec::with_capacity(dirty.len());
        for (id, dirty) in dirty {
            changed.extend(self.write_one(&id, &dirty, batch));
            self.schedule_next(&id, now);
        }
        batch.rows.applications_gone.append(&mut self.gone);
        let first = self.due.first().map(|(at, _)| *at);
        let wait = first.map(|at| u64::try_from(at - now.unix_ms()).unwrap_or(0).max(1));
        (changed, wait)
    }

    fn advance(&mut self, id: &AppId, verdicts: &Verdicts, now: Timestamp) {
        self.absorb_verdicts(id, |work| verdicts.get(work.as_str()), now);
        // An accepted application continues at once, because its placeholders may have allocations
        // already.
        let accepted = |front: &frontend::Application| front.head.state == State::Accepted;
        if self.partition.get(id).is_some_and(accepted) {
            self.tick(id, now);
        }
        let timer = self.records.get(id).and_then(|record| {
            let core = record.core.as_ref()?;
            core.head.timers.next()
        });
        let new =
            |front: &frontend::Application| front.head.state == State::Running && needs_tick(front);
        if timer.is_some_and(|due| due <= now) {
            // A task added just before completion makes the application run again.
            if self.partition.get(id).is_some_and(new) {
                self.tick(id, now);
            }
            self.step_core_and_deliver(id, core::Input::Tick, now);
        }
        let tick = self.records.get(id).and_then(|record| record.tick);
        if tick.is_some_and(|due| due <= now) {
            self.tick(id, now);
        }
        self.bind(id, now);
        self.choose(id, now);
        // Allocations that were released may serve other tasks.
        self.bind(id, now);
        let over = self
            .partition
            .get(id)
            .is_some_and(|it| it.head.state.is_dead());
        if over && self.records.get(id).is_some_and(AppRecord::is_idle) {
            self.step_core_and_deliver(id, core::Input::Finish, now);
        }
    }

    fn tick(&mut self, id: &AppId, now: Timestamp) {
        for _ in 0..TICKS {
            let Some(reported) = self.partition.apply(id, frontend::Input::Tick, now) else {
                return;
            };
            let moved = !reported.step.moved.is_empty();
            self.run_effects(id, reported.step.effects, now);
            if !moved {
                return;
            }
        }
    }

    /// Marks the applications and tasks that the frontends have changed.
    fn collect_frontend_changes(&mut self) {
        let changes = self.partition.take_changes();
        for head in &changes.heads {
            self.mark_dirty(&head.id);
        }
        for (id, task) in changes.tasks {
            self.mark_dirty(&id).keys.insert(task.id);
        }
        for (id, task) in changes.removed_tasks {
            self.mark_dirty(&id).keys.insert(task);
        }
    }

    fn write_one(&mut self, id: &AppId, dirty: &Dirty, batch: &mut Batch<Rows>) -> Option<Uuid> {
        let front = self.partition.get(id)?;
        let record = self.records.get_mut(id)?;
        let successors = record.successors();
        let mut counted = dirty.keys.clone();
        if let Some(core) = record.core.as_ref().filter(|_| !dirty.groups.is_empty()) {
            let asks = core.pending.values().filter(|ask| {
                let group = ask.group.as_ref();
                group.is_some_and(|group| dirty.groups.contains(group))
            });
            counted.extend(asks.map(|ask| ask.key.clone()));
        }
        let keys: Vec<TaskId> = if dirty.all {
            let mut all: Vec<TaskId> = record.tasks.keys().cloned().collect();
            all.extend(dirty.keys.iter().cloned());
            all.extend(front.tasks.keys().cloned());
            all.sort();
            all.dedup();
            all
        } else {
            counted.into_iter().collect()
        };
        for key in &keys {
            if let Some(number) = record.tasks.get(key).and_then(|it| it.number) {
                let work = record.work(Slot::Task(number));
                let entry =
                    demand::task_entry(record, front, key, successors.get(key), self.stop_grace_ms);
                publish(&work, entry.as_ref(), batch);
            }
        }
        for (at, group) in (0..).zip(&front.head.metadata.task_groups) {
            let entry = demand::group_entry(record, front, at, group);
            publish(&record.work(Slot::Group(at)), entry.as_ref(), batch);
        }
        if demand::asks_for_admission(front) && front.head.metadata.task_groups.is_empty() {
            let entry = demand::queue_entry(record, front);
            publish(&record.work(Slot::Queue), entry.as_ref(), batch);
        }
        let counts = front.expected();
        let before = std::mem::replace(&mut record.counted, counts);
        let user = record.user.clone();
        write_head(record, front, batch);
        for key in &keys {
            write_task(record, front, key, successors.contains_key(key), batch);
        }
        let uuid = record.uuid;
        self.quota.recount(&user, before, counts);
        Some(uuid)
    }

    /// Schedules the next timer or tick.
    fn schedule_next(&mut self, id: &AppId, now: Timestamp) {
        let (Some(front), Some(record)) = (self.partition.get(id), self.records.get_mut(id)) else {
            return;
        };
        record.tick = needs_tick(front).then(|| {
            let next = now.plus_ms(self.tick_ms);
            record.tick.filter(|at| *at > now).unwrap_or(next)
        });
        let timer = record.core.as_ref().and_then(|it| it.head.timers.next());
        let due = [record.tick, timer].into_iter().flatten().min();
        let due = due.map(Timestamp::unix_ms);
        if record.due == due {
            return;
        }
        if let Some(before) = record.due {
            self.due.remove(&(before, id.clone()));
        }
        record.due = due;
        self.due.extend(due.map(|at| (at, id.clone())));
    }

    /// Removes an application with its demand.
    pub(super) fn withdraw(&mut self, id: &AppId, batch: &mut Batch<Rows>) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        let numbers = record.by_number.keys().map(|it| Slot::Task(*it));
        let groups = record.core.as_ref().map_or(0, |core| {
            u32::try_from(core.head.submission.task_groups.len()).unwrap_or(0)
        });
        let others = (0..groups).map(Slot::Group).chain([Slot::Queue]);
        for slot in numbers.chain(others) {
            batch.withdraw(DEMAND, "", record.work(slot).as_str());
        }
        self.forget(id);
    }

    /// Removes an application whose demand is gone.
    pub(super) fn forget(&mut self, id: &AppId) {
        let Some(record) = self.records.remove(id) else {
            return;
        };
        self.quota.leave(&record.user, record.counted);
        if let Some(due) = record.due {
            self.due.remove(&(due, id.clone()));
        }
        self.by_number.remove(&record.uuid);
        self.dirty.remove(id);
        // A request may have removed it from the partition already.
        let _ = self.partition.remove(id, true);
        self.gone.push(record.uuid);
    }
}

/// Returns true if a tick would change something.
fn needs_tick(front: &frontend::Application) -> bool {
    let waits = |placeholder: bool| {
        let mut tasks = front.tasks.values();
        tasks.any(|it| it.placeholder == placeholder && it.state == task::State::New)
    };
    match front.head.state {
        State::New | State::Accepted => true,
        State::Reserving => waits(true),
        State::Running => waits(false),
        _ => false,
    }
}

fn publish(
    work: &WorkId,
    entry: Option<&hayward_job_converter_api::DemandEntry>,
    batch: &mut Batch<Rows>,
) {
    match entry {
        Some(entry) => batch.publish(DEMAND, "", work.as_str(), entry),
        None => batch.withdraw(DEMAND, "", work.as_str()),
    }
}

fn write_head(record: &mut AppRecord, front: &frontend::Application, batch: &mut Batch<Rows>) {
    use std::borrow::Cow::Borrowed;
    let row = HeadRow {
        front: Borrowed(&front.head),
        core: record.core.as_ref().map(|core| Borrowed(&core.head)),
        next_number: record.next_number,
        settled: Borrowed(&record.settled),
        warnings: Borrowed(&record.warnings),
    };
    // Serialization of names, numbers and texts cannot fail.
    let text = serde_json::to_string(&row).unwrap_or_default();
    if text == record.written {
        return;
    }
    record.written.clone_from(&text);
    batch.rows.applications.push(HeadText {
        uuid: record.uuid,
        id: front.head.id.to_string(),
        user: record.user.to_string(),
        body: text,
    });
}

fn write_task(
    record: &mut AppRecord,
    front: &frontend::Application,
    key: &TaskId,
    linked: bool,
    batch: &mut Batch<Rows>,
) {
    let core = record.core.as_ref();
    let row = TaskRow {
        task: front.tasks.get(key).cloned(),
        ask: core.and_then(|core| core.pending.get(key).cloned()),
        held: core.and_then(|core| core.allocations.get(key).cloned()),
        info: record.tasks.get(key).cloned().unwrap_or_default(),
    };
    let over = row.info.place.is_none() && !linked;
    let id = key.to_string();
    // An ended placeholder is part of the group counters, so its row is not needed.
    let spent = row.task.as_ref().is_some_and(|it| {
        it.placeholder && it.state.is_terminated() && row.ask.is_none() && row.held.is_none()
    });
    if over && (row.is_empty() || spent) {
        if let Some(TaskInfo {
            number: Some(number),
            ..
        }) = record.tasks.remove(key)
        {
            record.by_number.remove(&number);
        }
        record.written_tasks.remove(key);
        let uuid = record.uuid;
        batch.rows.application_tasks_gone.push((uuid, id));
        return;
    }
    let body = serde_json::to_string(&row).unwrap_or_default();
    let now = hash(&body);
    if record.written_tasks.insert(key.clone(), now) == Some(now) {
        return;
    }
    batch.rows.application_tasks.push(TaskText {
        application: record.uuid,
        id,
        body,
    });
}
