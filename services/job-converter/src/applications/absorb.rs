//! Applies updates of `allocations` and `verdicts` to applications.

use std::collections::BTreeSet;

use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::ids::{AppId, TaskId};
use hayward_job_converter_application_protocol::messages::{Termination, ToCore, ToFront};
use hayward_job_converter_application_protocol::task;
use hayward_publication::committer::Moment;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason, VerdictEntry};
use hayward_vocabulary::{AllocationId, Timestamp, WorkId};

use super::Applications;
use super::endings::{self, End};
use super::record::{Half, Slot, Standing, read_work};

/// A change of an allocation that belongs to an application.
pub enum Heard {
    Is(Box<AllocationEntry>),
    Left(AllocationId, WorkId),
}

impl Heard {
    fn work(&self) -> &WorkId {
        match self {
            Self::Is(entry) => &entry.work,
            Self::Left(_, work) => work,
        }
    }
}

pub fn owns(work: &WorkId) -> bool {
    work.as_str().starts_with(super::PREFIX)
}

impl Applications {
    /// All new allocations are recorded before any end is handled. A task that replaces a
    /// placeholder is thus known before the placeholder ends.
    pub fn hear(&mut self, news: Vec<Heard>, moment: &Moment) {
        let now = moment.now;
        let mut apps: BTreeSet<AppId> = BTreeSet::new();
        let mut over = Vec::new();
        let mut moved = Vec::new();
        for heard in news {
            let Some((uuid, slot)) = read_work(heard.work()) else {
                continue;
            };
            let Some(id) = self.by_number.get(&uuid).cloned() else {
                continue;
            };
            let Some(half) = self.halves.get_mut(&id) else {
                continue;
            };
            match heard {
                Heard::Is(entry) => {
                    let ended = entry.state == AllocationState::Ended;
                    half.stands(&entry, slot, ended);
                    if ended {
                        over.push((id.clone(), slot, entry));
                    } else {
                        moved.push((id.clone(), entry));
                    }
                }
                Heard::Left(allocation, _) => half.buried(&allocation, slot),
            }
            apps.insert(id);
        }
        for id in &apps {
            self.touch(id);
            self.bind(id, now);
        }
        for (id, entry) in moved {
            self.task_moved(&id, &entry, now);
        }
        for (id, slot, entry) in over {
            self.ended(&id, slot, &entry, now);
        }
        for id in apps {
            self.gone_places(&id, now);
        }
    }

    /// First full update of a term: allocations it does not contain do not exist.
    pub fn first_heard(&mut self, known: impl Fn(&AllocationId) -> bool, moment: &Moment) {
        self.heard = true;
        for half in self.halves.values_mut() {
            for settled in half.settled.values_mut() {
                settled.retain(&known);
            }
        }
        let ids: Vec<AppId> = self.halves.keys().cloned().collect();
        for id in ids {
            self.touch(&id).all = true;
            if let Some(half) = self.halves.get_mut(&id) {
                half.vacated = half.beside.keys().cloned().collect();
            }
            self.gone_places(&id, moment.now);
        }
    }

    /// Handles allocations that were removed before their end was observed.
    pub(super) fn gone_places(&mut self, id: &AppId, now: Timestamp) {
        if !self.heard {
            return;
        }
        let half = self.halves.get_mut(id);
        let vacated = half.map(|half| std::mem::take(&mut half.vacated));
        for task in vacated.unwrap_or_default() {
            let Some(half) = self.halves.get_mut(id) else {
                return;
            };
            let place = half.place(&task);
            if place.is_none_or(|place| half.standing.contains_key(place)) {
                continue;
            }
            half.leave(&task);
            self.touch(id).keys.insert(task.clone());
            self.no_longer(id, &task, End::unheard(), now);
        }
    }

    fn task_moved(&mut self, id: &AppId, entry: &AllocationEntry, now: Timestamp) {
        let Some(half) = self.halves.get(id) else {
            return;
        };
        let standing = half.standing.get(&entry.id);
        let Some(task) = standing.and_then(|it| it.bound.clone()) else {
            return;
        };
        let front = self.book.get(id).and_then(|it| it.tasks.get(&task));
        let (state, placeholder) =
            front.map_or((None, false), |it| (Some(it.state), it.placeholder));
        if placeholder {
            return;
        }
        if entry.state == AllocationState::Running && state == Some(task::State::Allocated) {
            self.task(id, &task, task::Event::Bind, now);
        }
        // Two-phase release: the process is asked to end, and its end is confirmed.
        if let Some(vacate) = &entry.vacate
            && state.is_some_and(|it| it != task::State::Killing)
        {
            let termination = endings::termination(vacate.reason);
            let input = core::Input::Preempt {
                key: task,
                termination,
            };
            self.core(id, input, now);
        }
    }

    fn ended(&mut self, id: &AppId, slot: Slot, entry: &AllocationEntry, now: Timestamp) {
        let Some(half) = self.halves.get_mut(id) else {
            return;
        };
        if let Slot::Group(group) = slot {
            let settled = half.settled.entry(group).or_default();
            if !settled.insert(entry.id.clone()) {
                half.left(&entry.id);
                return;
            }
        }
        self.touch(id);
        let Some(half) = self.halves.get_mut(id) else {
            return;
        };
        let Some(task) = half.unbind(&entry.id) else {
            return;
        };
        let end = End::of(entry);
        match slot {
            Slot::Group(_) => {
                let reason = entry.vacate.as_ref().map(|it| it.reason);
                let by_us = reason == Some(VacateReason::WorkGone);
                self.placeholder_ended(id, &task, (by_us, end.termination()), now);
            }
            Slot::Task(_) => {
                if let Some(beside) = half.beside.get_mut(&task) {
                    beside.exit.clone_from(&entry.exit);
                }
                self.touch(id).keys.insert(task.clone());
                self.no_longer(id, &task, end, now);
            }
            Slot::Queue => {}
        }
    }

    /// The process of a task has ended.
    fn no_longer(&mut self, id: &AppId, task: &TaskId, end: End, now: Timestamp) {
        let front = self.book.get(id).and_then(|it| it.tasks.get(task));
        let Some(state) = front.map(|it| it.state) else {
            // The task was forgotten; its allocation is released now.
            let input = core::Input::Front(ToCore::ReleaseAllocation {
                key: task.clone(),
                termination: Termination::StoppedByRm,
            });
            self.core(id, input, now);
            return;
        };
        if front.is_some_and(|it| it.placeholder) {
            self.placeholder_ended(id, task, (false, end.termination()), now);
            return;
        }
        match end {
            _ if state.is_terminated() => {}
            _ if state == task::State::Killing => self.task(id, task, task::Event::Killed, now),
            End::Well => self.task(id, task, task::Event::Complete, now),
            End::Failed(failure) => {
                if let Some(told) = self.book.task_failed(id, task, failure, now) {
                    self.touch(id).keys.insert(task.clone());
                    self.obey(id, told.step.effects, now);
                }
            }
            End::Taken(termination, why) => {
                if let Some(half) = self.halves.get_mut(id) {
                    let message = format!("it lost its allocation: {why}");
                    half.warn(now, Some(task.clone()), message);
                }
                let key = task.clone();
                self.core(id, core::Input::Lost { key, termination }, now);
            }
        }
    }

    /// Marks applications whose verdicts changed.
    pub fn judged(&mut self, works: &[WorkId]) {
        for work in works {
            if let Some((uuid, slot)) = read_work(work)
                && let Some(id) = self.by_number.get(&uuid).cloned()
            {
                let half = self.halves.get(&id);
                let task = match slot {
                    Slot::Task(number) => half.and_then(|it| it.by_number.get(&number).cloned()),
                    Slot::Group(_) | Slot::Queue => None,
                };
                self.touch(&id).keys.extend(task);
            }
        }
    }

    /// Applies verdicts: whether a queue admits a new application, and which tasks are refused.
    pub(super) fn listen<'a>(
        &mut self,
        id: &AppId,
        said: impl Fn(&WorkId) -> Option<&'a VerdictEntry>,
        now: Timestamp,
    ) {
        let Some(half) = self.halves.get(id) else {
            return;
        };
        let Some(core) = &half.core else { return };
        if core.head.state == core::State::New && !core.head.accepted {
            if let Some(answer) = half.admitted(&said) {
                self.core(id, core::Input::Admitted(answer), now);
            }
            return;
        }
        // Only marked tasks need a check: changed verdicts and new asks mark theirs.
        let touched = self.touched.get(id);
        let all = touched.filter(|it| it.all).map(|_| core.pending.keys());
        let some = touched.filter(|it| !it.all).map(|it| it.keys.iter());
        let (all, some) = (all.into_iter().flatten(), some.into_iter().flatten());
        let asked = all.chain(some.filter(|key| core.pending.contains_key(*key)));
        let waiting = asked.filter(|key| half.place(key).is_none());
        let refused = waiting.filter_map(|key| {
            let number = half.beside.get(key)?.number?;
            let verdict = said(&half.work(Slot::Task(number)))?;
            verdict
                .refused
                .then(|| (key.clone(), verdict.detail.clone()))
        });
        let refused: Vec<(TaskId, String)> = refused.collect();
        for (key, reason) in refused {
            let ask = ToCore::ReleaseAsk { key: key.clone() };
            self.core(id, core::Input::Front(ask), now);
            let step = self
                .book
                .core(id, ToFront::AskRejected { key, reason }, now);
            self.touch(id).all = true;
            self.obey(id, step.effects, now);
        }
    }
}

impl Half {
    fn stands(&mut self, entry: &AllocationEntry, slot: Slot, ended: bool) {
        let settled = match slot {
            Slot::Group(group) => self.settled.get(&group),
            Slot::Task(_) | Slot::Queue => None,
        };
        let known = settled.is_some_and(|it| it.contains(&entry.id));
        let bound = self.holders.get(&entry.id).cloned();
        if !known || self.standing.contains_key(&entry.id) {
            let standing = Standing {
                slot,
                node: entry.node.clone(),
                bound,
                ended,
            };
            self.standing.insert(entry.id.clone(), standing);
        }
    }

    /// Removes an allocation; its task is checked after the whole update is applied.
    fn left(&mut self, allocation: &AllocationId) {
        self.standing.remove(allocation);
        self.vacated.extend(self.holders.get(allocation).cloned());
    }

    fn buried(&mut self, allocation: &AllocationId, slot: Slot) {
        self.left(allocation);
        if let Slot::Group(group) = slot
            && let Some(settled) = self.settled.get_mut(&group)
        {
            settled.remove(allocation);
        }
    }

    /// The answer to the admission, once every group has a verdict or an allocation. Without
    /// groups, the queue must have a verdict.
    fn admitted<'a>(
        &self,
        said: &impl Fn(&WorkId) -> Option<&'a VerdictEntry>,
    ) -> Option<Result<(), String>> {
        let groups = &self.core.as_ref()?.head.submission.task_groups;
        let groups = (0..u32::try_from(groups.len()).ok()?).map(Slot::Group);
        let mut slots: Vec<Slot> = groups.collect();
        if slots.is_empty() {
            slots.push(Slot::Queue);
        }
        let mut all = true;
        for slot in slots {
            let verdict = said(&self.work(slot));
            if let Some(verdict) = verdict.filter(|it| it.refused) {
                return Some(Err(verdict.detail.clone()));
            }
            all &= verdict.is_some() || self.standing.values().any(|it| it.slot == slot);
        }
        all.then_some(Ok(()))
    }
}
