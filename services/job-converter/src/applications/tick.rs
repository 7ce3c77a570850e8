//! Runs ticks and timers, then writes changed rows and publishes changed entries once per batch.

use hayward_job_converter_api::DEMAND;
use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend::{self, State};
use hayward_job_converter_application_protocol::ids::{AppId, TaskId};
use hayward_job_converter_application_protocol::task;
use hayward_publication::committer::{Batch, Moment};
use hayward_vocabulary::{Timestamp, WorkId};
use uuid::Uuid;

use super::application_record::{AppRecord, Dirty, HeadRow, Slot, TaskInfo, TaskRow, hash_row};
use super::{Applications, Verdicts, demand};
use crate::accounts::Accounts;
use crate::store::Rows;
use crate::store::applications::{ApplicationRow, ApplicationTaskRow};

/// Maximum number of consecutive ticks while a tick changes something. A new application thus
/// reaches `Running` in one batch.
const MAX_CONSECUTIVE_TICKS: usize = 4;

impl Applications {
    /// Runs due ticks and writes the changes. Returns the applications whose view may have changed,
    /// and the milliseconds until the next timer.
    pub fn run(
        &mut self,
        verdicts: &Verdicts,
        accounts: &Accounts,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> (Vec<Uuid>, Option<u64>) {
        let now = moment.now;
        while let Some((due_ms, id)) = self.due.first().cloned()
            && due_ms <= now.unix_ms()
        {
            self.due.pop_first();
            if let Some(record) = self.records.get_mut(&id) {
                record.due_ms = None;
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
            changed.extend(self.write_app(&id, &dirty, accounts, batch));
            self.schedule_next(&id, now);
        }
        batch.rows.deleted_applications.append(&mut self.deleted);
        let first_ms = self.due.first().map(|(due_ms, _)| *due_ms);
        let wait_ms =
            first_ms.map(|due_ms| u64::try_from(due_ms - now.unix_ms()).unwrap_or(0).max(1));
        (changed, wait_ms)
    }

    /// Applies verdicts, timers and allocations of one application.
    fn advance(&mut self, id: &AppId, verdicts: &Verdicts, now: Timestamp) {
        self.apply_verdicts(id, |work| verdicts.get(work.as_str()), now);
        // An accepted application continues at once, because its placeholders may have allocations
        // already.
        let is_accepted = |front: &frontend::Application| front.head.state == State::Accepted;
        if self.partition.get(id).is_some_and(is_accepted) {
            self.tick(id, now);
        }
        let timer = self.records.get(id).and_then(|record| {
            let core = record.core.as_ref()?;
            core.head.timers.next()
        });
        let has_new_task =
            |front: &frontend::Application| front.head.state == State::Running && needs_tick(front);
        if timer.is_some_and(|due| due <= now) {
            // A task added just before completion makes the application run again.
            if self.partition.get(id).is_some_and(has_new_task) {
                self.tick(id, now);
            }
            self.step_core_and_deliver(id, core::Input::Tick, now);
        }
        let tick = self.records.get(id).and_then(|record| record.tick);
        if tick.is_some_and(|due| due <= now) {
            self.tick(id, now);
        }
        self.bind(id, now);
        self.choose_placeholders(id, now);
        // Allocations that were released may serve other tasks.
        self.bind(id, now);
        let is_dead = self
            .partition
            .get(id)
            .is_some_and(|it| it.head.state.is_dead());
        if is_dead && self.records.get(id).is_some_and(AppRecord::is_idle) {
            self.step_core_and_deliver(id, core::Input::Finish, now);
        }
    }

    /// Ticks the frontend until it no longer changes, at most [`MAX_CONSECUTIVE_TICKS`] times.
    fn tick(&mut self, id: &AppId, now: Timestamp) {
        for _ in 0..MAX_CONSECUTIVE_TICKS {
            let Some(applied) = self.partition.apply(id, frontend::Input::Tick, now) else {
                return;
            };
            let changed = !applied.step.transitions.is_empty();
            self.run_effects(id, applied.step.effects, now);
            if !changed {
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

    /// Publishes the demand of an application and writes its rows. Returns its uuid if it exists.
    fn write_app(
        &mut self,
        id: &AppId,
        dirty: &Dirty,
        accounts: &Accounts,
        batch: &mut Batch<Rows>,
    ) -> Option<Uuid> {
        let front = self.partition.get(id)?;
        let record = self.records.get_mut(id)?;
        let placeholders = record.placeholder_by_task();
        let mut changed_keys = dirty.keys.clone();
        if let Some(core) = record.core.as_ref().filter(|_| !dirty.groups.is_empty()) {
            let asks = core.pending.values().filter(|ask| {
                let group = ask.group.as_ref();
                group.is_some_and(|group| dirty.groups.contains(group))
            });
            changed_keys.extend(asks.map(|ask| ask.key.clone()));
        }
        let keys: Vec<TaskId> = if dirty.all {
            let mut all: Vec<TaskId> = record.tasks.keys().cloned().collect();
            all.extend(dirty.keys.iter().cloned());
            all.extend(front.tasks.keys().cloned());
            all.sort();
            all.dedup();
            all
        } else {
            changed_keys.into_iter().collect()
        };
        for key in &keys {
            if let Some(number) = record.tasks.get(key).and_then(|it| it.number) {
                let work = record.work_id(Slot::Task(number));
                let (placeholder, grace_ms) = (placeholders.get(key), self.stop_grace_ms);
                let entry = demand::task_entry(record, front, key, placeholder, grace_ms);
                publish(&work, entry, accounts, batch);
            }
        }
        for (number, group) in (0..).zip(&front.head.metadata.task_groups) {
            let entry = demand::group_entry(record, front, number, group);
            let work = record.work_id(Slot::Group(number));
            publish(&work, entry, accounts, batch);
        }
        if demand::needs_admission(front) && front.head.metadata.task_groups.is_empty() {
            let entry = demand::queue_entry(record, front);
            publish(&record.work_id(Slot::Queue), entry, accounts, batch);
        }
        let quota_tasks = front.open_task_count();
        let tasks_before = std::mem::replace(&mut record.quota_tasks, quota_tasks);
        let user = record.user.clone();
        write_head(record, front, batch);
        for key in &keys {
            write_task(record, front, key, placeholders.contains_key(key), batch);
        }
        let uuid = record.uuid;
        self.quota.update_tasks(&user, tasks_before, quota_tasks);
        Some(uuid)
    }

    /// Schedules the next timer or tick.
    fn schedule_next(&mut self, id: &AppId, now: Timestamp) {
        let (Some(front), Some(record)) = (self.partition.get(id), self.records.get_mut(id)) else {
            return;
        };
        record.tick = needs_tick(front).then(|| {
            let next = now.plus_ms(self.tick_ms);
            record.tick.filter(|time| *time > now).unwrap_or(next)
        });
        let timer = record.core.as_ref().and_then(|it| it.head.timers.next());
        let next_due = [record.tick, timer].into_iter().flatten().min();
        let next_due = next_due.map(Timestamp::unix_ms);
        if record.due_ms == next_due {
            return;
        }
        if let Some(old_due) = record.due_ms {
            self.due.remove(&(old_due, id.clone()));
        }
        record.due_ms = next_due;
        self.due.extend(next_due.map(|time| (time, id.clone())));
    }

    /// Removes an application with its demand.
    pub(super) fn withdraw(&mut self, id: &AppId, batch: &mut Batch<Rows>) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        let task_slots = record.task_by_number.keys().map(|it| Slot::Task(*it));
        let groups = record.core.as_ref().map_or(0, |core| {
            u32::try_from(core.head.submission.task_groups.len()).unwrap_or(0)
        });
        let other_slots = (0..groups).map(Slot::Group).chain([Slot::Queue]);
        for slot in task_slots.chain(other_slots) {
            batch.withdraw(DEMAND, "", record.work_id(slot).as_str());
        }
        self.forget(id);
    }

    /// Removes an application whose demand is withdrawn.
    pub(super) fn forget(&mut self, id: &AppId) {
        let Some(record) = self.records.remove(id) else {
            return;
        };
        self.quota
            .remove_application(&record.user, record.quota_tasks);
        if let Some(due) = record.due_ms {
            self.due.remove(&(due, id.clone()));
        }
        self.id_by_uuid.remove(&record.uuid);
        self.dirty.remove(id);
        // A request may have removed it from the partition already.
        let _ = self.partition.remove(id, true);
        self.deleted.push(record.uuid);
    }
}

/// Returns true if a tick would change something.
fn needs_tick(front: &frontend::Application) -> bool {
    let has_new = |placeholder: bool| {
        let mut tasks = front.tasks.values();
        tasks.any(|it| it.placeholder == placeholder && it.state == task::State::New)
    };
    match front.head.state {
        State::New | State::Accepted => true,
        State::Reserving => has_new(true),
        State::Running => has_new(false),
        _ => false,
    }
}

fn publish(
    work: &WorkId,
    entry: Option<hayward_job_converter_api::DemandEntry>,
    accounts: &Accounts,
    batch: &mut Batch<Rows>,
) {
    match entry {
        Some(mut entry) => {
            accounts.add_to(&mut entry, &mut batch.rows);
            batch.publish(DEMAND, "", work.as_str(), &entry);
        }
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
    if text == record.written_head {
        return;
    }
    record.written_head.clone_from(&text);
    batch.rows.applications.push(ApplicationRow {
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
    has_placeholder: bool,
    batch: &mut Batch<Rows>,
) {
    let core = record.core.as_ref();
    let row = TaskRow {
        task: front.tasks.get(key).cloned(),
        ask: core.and_then(|core| core.pending.get(key).cloned()),
        held: core.and_then(|core| core.allocations.get(key).cloned()),
        info: record.tasks.get(key).cloned().unwrap_or_default(),
    };
    let is_unreferenced = row.info.allocation.is_none() && !has_placeholder;
    let id = key.to_string();
    // An ended placeholder is part of the group counters, so its row is not needed.
    let is_ended_placeholder = row.task.as_ref().is_some_and(|it| {
        it.placeholder && it.state.is_terminated() && row.ask.is_none() && row.held.is_none()
    });
    if is_unreferenced && (row.is_empty() || is_ended_placeholder) {
        if let Some(TaskInfo {
            number: Some(number),
            ..
        }) = record.tasks.remove(key)
        {
            record.task_by_number.remove(&number);
        }
        record.written_tasks.remove(key);
        let uuid = record.uuid;
        batch.rows.deleted_application_tasks.push((uuid, id));
        return;
    }
    let body = serde_json::to_string(&row).unwrap_or_default();
    let row_hash = hash_row(&body);
    if record.written_tasks.insert(key.clone(), row_hash) == Some(row_hash) {
        return;
    }
    batch.rows.application_tasks.push(ApplicationTaskRow {
        application: record.uuid,
        id,
        body,
    });
}
