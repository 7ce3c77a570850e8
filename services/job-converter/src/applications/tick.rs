//! Runs ticks and timers, then writes changed rows and publishes changed entries once per batch.

use hayward_job_converter_api::DEMAND;
use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend::{self, State};
use hayward_job_converter_application_protocol::ids::{AppId, TaskId};
use hayward_job_converter_application_protocol::task;
use hayward_publication::committer::{Batch, Moment};
use hayward_vocabulary::{Timestamp, WorkId};
use uuid::Uuid;

use super::record::{Beside, Half, HeadRow, Slot, TaskRow, Touched, hash};
use super::{Applications, Verdicts, demand};
use crate::store::Rows;
use crate::store::applications::{HeadText, TaskText};

/// Consecutive ticks while a tick changes something: a new application reaches `Running` in one
/// batch.
const TICKS: usize = 4;

impl Applications {
    /// Returns the applications whose view may have changed, and the milliseconds until the next
    /// timer.
    pub fn turn(
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
            if let Some(half) = self.halves.get_mut(&id) {
                half.due = None;
            }
            self.touch(&id);
        }
        let ids: Vec<AppId> = self.touched.keys().cloned().collect();
        for id in &ids {
            self.look(id, verdicts, now);
        }
        self.take_notes();
        let touched = std::mem::take(&mut self.touched);
        let mut changed = Vec::with_capacity(touched.len());
        for (id, touched) in touched {
            changed.extend(self.say_one(&id, &touched, batch));
            self.plan_next(&id, now);
        }
        batch.rows.applications_gone.append(&mut self.gone);
        let first = self.due.first().map(|(at, _)| *at);
        let wait = first.map(|at| u64::try_from(at - now.unix_ms()).unwrap_or(0).max(1));
        (changed, wait)
    }

    fn look(&mut self, id: &AppId, verdicts: &Verdicts, now: Timestamp) {
        self.listen(id, |work| verdicts.get(work.as_str()), now);
        // An accepted application continues at once: its placeholders may have allocations already.
        let accepted = |front: &frontend::Application| front.head.state == State::Accepted;
        if self.book.get(id).is_some_and(accepted) {
            self.tick(id, now);
        }
        let timer = self.halves.get(id).and_then(|half| {
            let core = half.core.as_ref()?;
            core.head.timers.next()
        });
        let new =
            |front: &frontend::Application| front.head.state == State::Running && restless(front);
        if timer.is_some_and(|due| due <= now) {
            // A task added just before completion makes the application run again.
            if self.book.get(id).is_some_and(new) {
                self.tick(id, now);
            }
            self.core(id, core::Input::Tick, now);
        }
        let tick = self.halves.get(id).and_then(|half| half.tick);
        if tick.is_some_and(|due| due <= now) {
            self.tick(id, now);
        }
        self.bind(id, now);
        self.choose(id, now);
        // Allocations that were released may serve other tasks.
        self.bind(id, now);
        let over = self.book.get(id).is_some_and(|it| it.head.state.is_dead());
        if over && self.halves.get(id).is_some_and(Half::is_idle) {
            self.core(id, core::Input::Finish, now);
        }
    }

    fn tick(&mut self, id: &AppId, now: Timestamp) {
        for _ in 0..TICKS {
            let Some(told) = self.book.tell(id, frontend::Input::Tick, now) else {
                return;
            };
            let moved = !told.step.moved.is_empty();
            self.obey(id, told.step.effects, now);
            if !moved {
                return;
            }
        }
    }

    /// Marks what the frontends have changed.
    fn take_notes(&mut self) {
        let changes = self.book.take_changes();
        for head in &changes.heads {
            self.touch(&head.id);
        }
        for (id, task) in changes.tasks {
            self.touch(&id).keys.insert(task.id);
        }
        for (id, task) in changes.removed_tasks {
            self.touch(&id).keys.insert(task);
        }
    }

    fn say_one(&mut self, id: &AppId, touched: &Touched, batch: &mut Batch<Rows>) -> Option<Uuid> {
        let front = self.book.get(id)?;
        let half = self.halves.get_mut(id)?;
        let successors = half.successors();
        let mut counted = touched.keys.clone();
        if let Some(core) = half.core.as_ref().filter(|_| !touched.groups.is_empty()) {
            let asks = core.pending.values().filter(|ask| {
                let group = ask.group.as_ref();
                group.is_some_and(|group| touched.groups.contains(group))
            });
            counted.extend(asks.map(|ask| ask.key.clone()));
        }
        let keys: Vec<TaskId> = if touched.all {
            let mut all: Vec<TaskId> = half.beside.keys().cloned().collect();
            all.extend(touched.keys.iter().cloned());
            all.extend(front.tasks.keys().cloned());
            all.sort();
            all.dedup();
            all
        } else {
            counted.into_iter().collect()
        };
        for key in &keys {
            if let Some(number) = half.beside.get(key).and_then(|it| it.number) {
                let work = half.work(Slot::Task(number));
                let entry =
                    demand::of_task(half, front, (key, successors.get(key)), self.stop_grace_ms);
                publish(&work, entry.as_ref(), batch);
            }
        }
        for (at, group) in (0..).zip(&front.head.metadata.task_groups) {
            let entry = demand::of_group(half, front, at, group);
            publish(&half.work(Slot::Group(at)), entry.as_ref(), batch);
        }
        if demand::asks_for_admission(front) && front.head.metadata.task_groups.is_empty() {
            let entry = demand::of_queue(half, front);
            publish(&half.work(Slot::Queue), entry.as_ref(), batch);
        }
        let counts = front.expected();
        let before = std::mem::replace(&mut half.counted, counts);
        let user = half.user.clone();
        write_head(half, front, batch);
        for key in &keys {
            write_task(half, front, (key, successors.contains_key(key)), batch);
        }
        let uuid = half.uuid;
        self.counted.recount(&user, (before, counts));
        Some(uuid)
    }

    /// Schedules the next timer or tick.
    fn plan_next(&mut self, id: &AppId, now: Timestamp) {
        let (Some(front), Some(half)) = (self.book.get(id), self.halves.get_mut(id)) else {
            return;
        };
        half.tick = restless(front).then(|| {
            let next = now.plus_ms(self.tick_ms);
            half.tick.filter(|at| *at > now).unwrap_or(next)
        });
        let timer = half.core.as_ref().and_then(|it| it.head.timers.next());
        let due = [half.tick, timer].into_iter().flatten().min();
        let due = due.map(Timestamp::unix_ms);
        if half.due == due {
            return;
        }
        if let Some(before) = half.due {
            self.due.remove(&(before, id.clone()));
        }
        half.due = due;
        self.due.extend(due.map(|at| (at, id.clone())));
    }

    /// Removes an application with its demand.
    pub(super) fn withdraw(&mut self, id: &AppId, batch: &mut Batch<Rows>) {
        let Some(half) = self.halves.get(id) else {
            return;
        };
        let numbers = half.by_number.keys().map(|it| Slot::Task(*it));
        let groups = half.core.as_ref().map_or(0, |core| {
            u32::try_from(core.head.submission.task_groups.len()).unwrap_or(0)
        });
        let others = (0..groups).map(Slot::Group).chain([Slot::Queue]);
        for slot in numbers.chain(others) {
            batch.withdraw(DEMAND, "", half.work(slot).as_str());
        }
        self.forget(id);
    }

    /// Removes an application whose demand is gone.
    pub(super) fn forget(&mut self, id: &AppId) {
        let Some(half) = self.halves.remove(id) else {
            return;
        };
        self.counted.leave(&half.user, half.counted);
        if let Some(due) = half.due {
            self.due.remove(&(due, id.clone()));
        }
        self.by_number.remove(&half.uuid);
        self.touched.remove(id);
        // A request may have removed it from the partition already.
        let _ = self.book.remove(id, true);
        self.gone.push(half.uuid);
    }
}

/// A tick would change something.
fn restless(front: &frontend::Application) -> bool {
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

fn write_head(half: &mut Half, front: &frontend::Application, batch: &mut Batch<Rows>) {
    use std::borrow::Cow::Borrowed;
    let row = HeadRow {
        front: Borrowed(&front.head),
        core: half.core.as_ref().map(|core| Borrowed(&core.head)),
        next_number: half.next_number,
        settled: Borrowed(&half.settled),
        warnings: Borrowed(&half.warnings),
    };
    // Serialization of names, numbers and texts cannot fail.
    let text = serde_json::to_string(&row).unwrap_or_default();
    if text == half.written {
        return;
    }
    half.written.clone_from(&text);
    batch.rows.applications.push(HeadText {
        uuid: half.uuid,
        id: front.head.id.to_string(),
        user: half.user.to_string(),
        body: text,
    });
}

fn write_task(
    half: &mut Half,
    front: &frontend::Application,
    (key, linked): (&TaskId, bool),
    batch: &mut Batch<Rows>,
) {
    let core = half.core.as_ref();
    let row = TaskRow {
        task: front.tasks.get(key).cloned(),
        ask: core.and_then(|core| core.pending.get(key).cloned()),
        held: core.and_then(|core| core.allocations.get(key).cloned()),
        beside: half.beside.get(key).cloned().unwrap_or_default(),
    };
    let over = row.beside.place.is_none() && !linked;
    let id = key.to_string();
    // An ended placeholder is part of the group counters; its row is not needed.
    let spent = row.task.as_ref().is_some_and(|it| {
        it.placeholder && it.state.is_terminated() && row.ask.is_none() && row.held.is_none()
    });
    if over && (row.is_empty() || spent) {
        if let Some(Beside {
            number: Some(number),
            ..
        }) = half.beside.remove(key)
        {
            half.by_number.remove(&number);
        }
        half.written_tasks.remove(key);
        let uuid = half.uuid;
        batch.rows.application_tasks_gone.push((uuid, id));
        return;
    }
    let body = serde_json::to_string(&row).unwrap_or_default();
    let now = hash(&body);
    if half.written_tasks.insert(key.clone(), now) == Some(now) {
        return;
    }
    batch.rows.application_tasks.push(TaskText {
        application: half.uuid,
        id,
        body,
    });
}
