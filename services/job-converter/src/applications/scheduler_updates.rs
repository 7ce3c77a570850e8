//! Applies updates of the publications `allocations` and `verdicts` of rm-scheduler to
//! applications.
//!
//! An application is two state machines: the frontend serves its owner, and the core faces the
//! scheduler. The partition has the frontends of all applications, with their tasks.
//!
//! The allocation of a placeholder is settled when its end has been handled. A settled end is not
//! handled again.

use std::collections::BTreeSet;

use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::ids::{AppId, TaskId};
use hayward_job_converter_application_protocol::messages::{Termination, ToCore, ToFront};
use hayward_job_converter_application_protocol::task;
use hayward_publication::committer::Moment;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason, VerdictEntry};
use hayward_vocabulary::{AllocationId, Timestamp, WorkId};

use super::Applications;
use super::application_record::{AppRecord, HeldAllocation, Slot, parse_work_id};
use super::bindings::PlaceholderEnd;
use super::task_end::{self, TaskEnd};

/// A change of an allocation that belongs to an application.
pub enum AllocationChange {
    Set(Box<AllocationEntry>),
    Removed(AllocationId, WorkId),
}

impl AllocationChange {
    fn work(&self) -> &WorkId {
        match self {
            Self::Set(entry) => &entry.work,
            Self::Removed(_, work) => work,
        }
    }
}

/// Returns true if the work is a demand entry of an application.
pub fn is_application_work(work: &WorkId) -> bool {
    work.as_str().starts_with(super::WORK_ID_PREFIX)
}

impl Applications {
    /// Applies changes of allocations. All new allocations are recorded before any end is handled.
    /// A task that replaces a placeholder is thus known before the placeholder ends.
    pub fn apply_allocations(&mut self, changes: Vec<AllocationChange>, moment: &Moment) {
        let now = moment.now;
        let mut apps: BTreeSet<AppId> = BTreeSet::new();
        let mut ended_entries = Vec::new();
        let mut live_entries = Vec::new();
        for change in changes {
            let Some((uuid, slot)) = parse_work_id(change.work()) else {
                continue;
            };
            let Some(id) = self.id_by_uuid.get(&uuid).cloned() else {
                continue;
            };
            let Some(record) = self.records.get_mut(&id) else {
                continue;
            };
            match change {
                AllocationChange::Set(entry) => {
                    let ended = entry.state == AllocationState::Ended;
                    record.record_allocation(&entry, slot, ended);
                    if ended {
                        ended_entries.push((id.clone(), slot, entry));
                    } else {
                        live_entries.push((id.clone(), entry));
                    }
                }
                AllocationChange::Removed(allocation, _) => {
                    record.remove_allocation_and_settlement(&allocation, slot);
                }
            }
            apps.insert(id);
        }
        for id in &apps {
            self.mark_dirty(id);
            self.bind(id, now);
        }
        for (id, entry) in live_entries {
            self.apply_allocation_change(&id, &entry, now);
        }
        for (id, slot, entry) in ended_entries {
            self.apply_allocation_end(&id, slot, &entry, now);
        }
        for id in apps {
            self.apply_removed_allocations(&id, now);
        }
    }

    /// Applies the first full update of a term. Allocations that it does not contain do not exist.
    pub fn apply_first_full_update(
        &mut self,
        exists: impl Fn(&AllocationId) -> bool,
        moment: &Moment,
    ) {
        self.synced = true;
        for record in self.records.values_mut() {
            for settled in record.settled.values_mut() {
                settled.retain(&exists);
            }
        }
        let ids: Vec<AppId> = self.records.keys().cloned().collect();
        for id in ids {
            self.mark_dirty(&id).all = true;
            if let Some(record) = self.records.get_mut(&id) {
                record.tasks_to_check = record.tasks.keys().cloned().collect();
            }
            self.apply_removed_allocations(&id, moment.now);
        }
    }

    /// Ends the tasks whose allocation was removed before its end was observed.
    pub(super) fn apply_removed_allocations(&mut self, id: &AppId, now: Timestamp) {
        if !self.synced {
            return;
        }
        let record = self.records.get_mut(id);
        let tasks_to_check = record.map(|record| std::mem::take(&mut record.tasks_to_check));
        for task in tasks_to_check.unwrap_or_default() {
            let Some(record) = self.records.get_mut(id) else {
                return;
            };
            let allocation = record.allocation_of(&task);
            if allocation.is_none_or(|allocation| record.allocations.contains_key(allocation)) {
                continue;
            }
            record.clear_allocation(&task);
            self.mark_dirty(id).keys.insert(task.clone());
            self.apply_process_end(id, &task, TaskEnd::with_unknown_exit(), now);
        }
    }

    fn apply_allocation_change(&mut self, id: &AppId, entry: &AllocationEntry, now: Timestamp) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        let allocation = record.allocations.get(&entry.id);
        let Some(task) = allocation.and_then(|it| it.bound_task.clone()) else {
            return;
        };
        let front_task = self.partition.get(id).and_then(|it| it.tasks.get(&task));
        let (state, placeholder) =
            front_task.map_or((None, false), |it| (Some(it.state), it.placeholder));
        if placeholder {
            return;
        }
        if entry.state == AllocationState::Running && state == Some(task::State::Allocated) {
            self.step_task_and_deliver(id, &task, task::Event::Bind, now);
        }
        // A vacated process is asked to end, and the release is confirmed when it has ended.
        if let Some(vacate) = &entry.vacate
            && state.is_some_and(|it| it != task::State::Killing)
        {
            let termination = task_end::termination_for(vacate.reason);
            let input = core::Input::Preempt {
                key: task,
                termination,
            };
            self.step_core_and_deliver(id, input, now);
        }
    }

    fn apply_allocation_end(
        &mut self,
        id: &AppId,
        slot: Slot,
        entry: &AllocationEntry,
        now: Timestamp,
    ) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        if let Slot::Group(group) = slot {
            let settled = record.settled.entry(group).or_default();
            if !settled.insert(entry.id.clone()) {
                record.remove_allocation(&entry.id);
                return;
            }
        }
        self.mark_dirty(id);
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        let Some(task) = record.unbind(&entry.id) else {
            return;
        };
        let end = TaskEnd::from_allocation(entry);
        match slot {
            Slot::Group(_) => {
                let reason = entry.vacate.as_ref().map(|it| it.reason);
                let end = PlaceholderEnd {
                    demand_shrank: reason == Some(VacateReason::WorkGone),
                    termination: end.termination(),
                };
                self.apply_placeholder_end(id, &task, end, now);
            }
            Slot::Task(_) => {
                if let Some(info) = record.tasks.get_mut(&task) {
                    info.exit.clone_from(&entry.exit);
                }
                self.mark_dirty(id).keys.insert(task.clone());
                self.apply_process_end(id, &task, end, now);
            }
            Slot::Queue => {}
        }
    }

    /// Applies the end of a task's process.
    fn apply_process_end(&mut self, id: &AppId, task: &TaskId, end: TaskEnd, now: Timestamp) {
        let front_task = self.partition.get(id).and_then(|it| it.tasks.get(task));
        let Some(state) = front_task.map(|it| it.state) else {
            // The task was removed earlier. Its allocation is released now.
            let input = core::Input::Front(ToCore::ReleaseAllocation {
                key: task.clone(),
                termination: Termination::StoppedByRm,
            });
            self.step_core_and_deliver(id, input, now);
            return;
        };
        if front_task.is_some_and(|it| it.placeholder) {
            let end = PlaceholderEnd {
                demand_shrank: false,
                termination: end.termination(),
            };
            self.apply_placeholder_end(id, task, end, now);
            return;
        }
        match end {
            // The task has ended before its process.
            _ if state.is_terminated() => {}
            _ if state == task::State::Killing => {
                self.step_task_and_deliver(id, task, task::Event::Killed, now);
            }
            TaskEnd::Succeeded => self.step_task_and_deliver(id, task, task::Event::Complete, now),
            TaskEnd::Failed(failure) => {
                if let Some(applied) = self.partition.task_failed(id, task, failure, now) {
                    self.mark_dirty(id).keys.insert(task.clone());
                    self.run_effects(id, applied.step.effects, now);
                }
            }
            TaskEnd::Killed { termination, cause } => {
                if let Some(record) = self.records.get_mut(id) {
                    let message = format!("it lost its allocation: {cause}");
                    record.warn(now, Some(task.clone()), message);
                }
                let key = task.clone();
                self.step_core_and_deliver(id, core::Input::Lost { key, termination }, now);
            }
        }
    }

    /// Marks applications whose verdicts changed.
    pub fn mark_verdicts_changed(&mut self, works: &[WorkId]) {
        for work in works {
            if let Some((uuid, slot)) = parse_work_id(work)
                && let Some(id) = self.id_by_uuid.get(&uuid).cloned()
            {
                let record = self.records.get(&id);
                let task = match slot {
                    Slot::Task(number) => {
                        record.and_then(|it| it.task_by_number.get(&number).cloned())
                    }
                    Slot::Group(_) | Slot::Queue => None,
                };
                self.mark_dirty(&id).keys.extend(task);
            }
        }
    }

    /// Applies verdicts: whether a queue admits a new application, and which tasks are refused.
    pub(super) fn apply_verdicts<'a>(
        &mut self,
        id: &AppId,
        find_verdict: impl Fn(&WorkId) -> Option<&'a VerdictEntry>,
        now: Timestamp,
    ) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        let Some(core) = &record.core else { return };
        if core.head.state == core::State::New && !core.head.accepted {
            if let Some(decision) = record.admission_decision(&find_verdict) {
                self.step_core_and_deliver(id, core::Input::Admitted(decision), now);
            }
            return;
        }
        // A changed verdict or a new ask marks its task as dirty, so only dirty tasks need a check.
        let dirty = self.dirty.get(id);
        let all_keys = dirty.filter(|it| it.all).map(|_| core.pending.keys());
        let dirty_keys = dirty.filter(|it| !it.all).map(|it| it.keys.iter());
        let (all_keys, dirty_keys) = (
            all_keys.into_iter().flatten(),
            dirty_keys.into_iter().flatten(),
        );
        let requested = all_keys.chain(dirty_keys.filter(|key| core.pending.contains_key(*key)));
        let waiting = requested.filter(|key| record.allocation_of(key).is_none());
        let refused = waiting.filter_map(|key| {
            let number = record.tasks.get(key)?.number?;
            let verdict = find_verdict(&record.work_id(Slot::Task(number)))?;
            verdict
                .refused
                .then(|| (key.clone(), verdict.detail.clone()))
        });
        let refused: Vec<(TaskId, String)> = refused.collect();
        for (key, reason) in refused {
            let message = ToCore::ReleaseAsk { key: key.clone() };
            self.step_core_and_deliver(id, core::Input::Front(message), now);
            let step =
                self.partition
                    .apply_core_message(id, ToFront::AskRejected { key, reason }, now);
            self.mark_dirty(id).all = true;
            self.run_effects(id, step.effects, now);
        }
    }
}

impl AppRecord {
    /// Records an allocation, unless it is settled and already removed.
    fn record_allocation(&mut self, entry: &AllocationEntry, slot: Slot, ended: bool) {
        let settled = match slot {
            Slot::Group(group) => self.settled.get(&group),
            Slot::Task(_) | Slot::Queue => None,
        };
        let is_settled = settled.is_some_and(|it| it.contains(&entry.id));
        let bound_task = self.task_by_allocation.get(&entry.id).cloned();
        if !is_settled || self.allocations.contains_key(&entry.id) {
            let held = HeldAllocation {
                slot,
                node: entry.node.clone(),
                bound_task,
                ended,
            };
            self.allocations.insert(entry.id.clone(), held);
        }
    }

    /// Removes an allocation. Its task is checked after the whole update is applied.
    fn remove_allocation(&mut self, allocation: &AllocationId) {
        self.allocations.remove(allocation);
        self.tasks_to_check
            .extend(self.task_by_allocation.get(allocation).cloned());
    }

    /// Removes an allocation. If it is a settled placeholder, it is no longer listed as settled.
    fn remove_allocation_and_settlement(&mut self, allocation: &AllocationId, slot: Slot) {
        self.remove_allocation(allocation);
        if let Slot::Group(group) = slot
            && let Some(settled) = self.settled.get_mut(&group)
        {
            settled.remove(allocation);
        }
    }

    /// Returns the queue's decision about the application once every group has a verdict or an
    /// allocation. Without groups, the queue must have a verdict.
    fn admission_decision<'a>(
        &self,
        find_verdict: &impl Fn(&WorkId) -> Option<&'a VerdictEntry>,
    ) -> Option<Result<(), String>> {
        let groups = &self.core.as_ref()?.head.submission.task_groups;
        let groups = (0..u32::try_from(groups.len()).ok()?).map(Slot::Group);
        let mut slots: Vec<Slot> = groups.collect();
        if slots.is_empty() {
            slots.push(Slot::Queue);
        }
        let mut all_decided = true;
        for slot in slots {
            let verdict = find_verdict(&self.work_id(slot));
            if let Some(verdict) = verdict.filter(|it| it.refused) {
                return Some(Err(verdict.detail.clone()));
            }
            all_decided &= verdict.is_some() || self.allocations.values().any(|it| it.slot == slot);
        }
        all_decided.then_some(Ok(()))
    }
}
