//! Applies updates of the publications `allocations` and `verdicts` of rm-scheduler to the working
//! set.

use hayward_job_converter_domain::BackoffPolicy;
use hayward_publication::committer::{Batch, Moment};
use hayward_publication::{Change, Cursor, Update};
use hayward_rm_scheduler_api::{
    ALLOCATIONS, AllocationEntry, AllocationState, VERDICTS, VacateReason, VerdictEntry,
};
use hayward_vocabulary::{AllocationId, WorkId};
use uuid::Uuid;

use super::Ledger;
use crate::applications::{self, AllocationChange};
use crate::store::Rows;
use crate::store::backoffs::BackoffRow;
use crate::store::settled_allocations::SettledRow;
use crate::work::exit_description::{describe_exit, is_caused_by_program};
use crate::work::published_entries::FinalState;
use crate::work::{Process, Work, WorkSpec, parse_work_id};

/// Position of a slot: its work, and its index in the slots of that work.
pub(super) struct WorkSlot {
    pub work: Uuid,
    pub slot: usize,
}

/// End of a process, as its allocation reports it.
struct ProcessEnd<'a> {
    entry: &'a AllocationEntry,
    /// Running time in milliseconds. `None` if the process never ran.
    ran_ms: Option<u64>,
}

impl Ledger {
    pub(super) fn work_slot(&self, id: &WorkId) -> Option<WorkSlot> {
        let (_, work, processor) = parse_work_id(id)?;
        let slot = self.works.get(&work)?.slot_at(processor)?;
        Some(WorkSlot { work, slot })
    }

    pub(super) fn apply_allocation_update(
        &mut self,
        update: Update<AllocationEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        // Events of an earlier term are in the timeline already, so the first update adds none.
        let is_first = !self.allocations.has_update();
        let changes = self.allocations.absorb(update, moment.monotonic_ms);
        batch.record_position(ALLOCATIONS, self.allocations.cursor());
        if is_first {
            self.adopt_service_processes();
        }
        let mut for_applications = Vec::new();
        for change in changes {
            match change {
                Change::Set { key, before } => {
                    let Some(entry) = self.allocations.get(&key).cloned() else {
                        continue;
                    };
                    if applications::is_application_work(&entry.work) {
                        for_applications.push(AllocationChange::Set(Box::new(entry)));
                        continue;
                    }
                    let in_timeline = !is_first || before.is_some();
                    self.apply_allocation(&entry, in_timeline, moment, batch);
                }
                Change::Removed { before, .. }
                    if applications::is_application_work(&before.work) =>
                {
                    for_applications.push(AllocationChange::Removed(before.id, before.work));
                }
                Change::Removed { before, .. } => self.remove_allocation(&before, moment, batch),
            }
        }
        self.applications
            .apply_allocations(for_applications, moment);
        if is_first {
            let allocations = &self.allocations;
            let exists = |id: &AllocationId| allocations.get(id.as_str()).is_some();
            self.applications.apply_first_full_update(exists, moment);
            self.apply_first_full_update(batch);
        }
    }

    /// Records the running processes of services at the first full update of a term. All are
    /// recorded before any loss or end is applied, because a standby among them may have to take
    /// over.
    fn adopt_service_processes(&mut self) {
        let entries: Vec<AllocationEntry> =
            self.allocations.iter().map(|(_, it)| it.clone()).collect();
        for entry in entries {
            if let Some(WorkSlot { work, slot }) = self.work_slot(&entry.work)
                && let Some(work) = self.works.get_mut(&work)
                && work.processors.is_some()
            {
                let state = &mut work.slots[slot];
                state
                    .processes
                    .insert(entry.id.clone(), Process::from_entry(&entry));
                work.update_processor(slot);
            }
        }
    }

    /// Applies the first full update of a term. It marks all work dirty and drops settled
    /// allocations that are gone.
    fn apply_first_full_update(&mut self, batch: &mut Batch<Rows>) {
        self.dirty.extend(self.works.keys());
        self.orchestrators
            .apply_first_full_update(&self.allocations, batch);
        for work in self.works.values_mut() {
            for slot in &mut work.slots {
                let allocations = &self.allocations;
                slot.settled.retain(|id| {
                    let exists = allocations.get(id.as_str()).is_some();
                    if !exists {
                        batch.rows.deleted_settled.push(id.to_string());
                    }
                    exists
                });
            }
        }
    }

    /// Applies a new or changed allocation. `in_timeline` tells whether the change is new, so that
    /// it is added to the timeline.
    pub(super) fn apply_allocation(
        &mut self,
        entry: &AllocationEntry,
        in_timeline: bool,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if self.apply_orchestrated_allocation(entry, moment, batch) {
            return;
        }
        let Some(WorkSlot { work: uuid, slot }) = self.work_slot(&entry.work) else {
            return self.update_removed_slot(entry);
        };
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        let Some(state) = work.slots.get_mut(slot) else {
            return;
        };
        let before = state.processes.get(&entry.id);
        let is_new = before.is_none();
        let state_before = before.map(|process| process.state);
        let mut process = Process::from_entry(entry);
        process.running_since_ms = before.and_then(|process| process.running_since_ms);
        let is_running = entry.state == AllocationState::Running;
        if is_running && process.running_since_ms.is_none() {
            process.running_since_ms = Some(moment.monotonic_ms);
        }
        let takes_no_tasks = process.takes_no_tasks();
        let was_marked = before.is_some_and(|process| process.marked);
        let since_ms = process.running_since_ms;
        let ran_ms = since_ms.map(|since| moment.monotonic_ms - since);
        let vacating = process.vacating && process.is_alive();
        state.processes.insert(entry.id.clone(), process);
        let ended = entry.state == AllocationState::Ended && !state.settled.contains(&entry.id);
        let event = if is_new && !ended {
            Some(format!("{} granted on {}", entry.id, entry.node))
        } else {
            let has_started = is_running && state_before != Some(AllocationState::Running);
            has_started.then(|| format!("{} runs on {}", entry.id, entry.node))
        };
        let mark = entry.marked.as_ref().filter(|_| !was_marked && !ended);
        let mark = mark.map(|mark| format!("{} is given no new tasks: {mark}", entry.id));
        for event in event.into_iter().chain(mark).filter(|_| in_timeline) {
            work.record_event(event, moment, batch);
        }
        work.update_processor(slot);
        if vacating && !is_moved(entry) {
            work.vacate_processor(slot, entry, moment);
        }
        if ended {
            let work_slot = WorkSlot { work: uuid, slot };
            self.record_process_end(&work_slot, &ProcessEnd { entry, ran_ms }, moment, batch);
        }
        if takes_no_tasks {
            self.shared.tasks.notify(&uuid, moment.revision);
        }
        self.store_processors(uuid, moment, batch);
        self.dirty.insert(uuid);
    }

    /// Records an end once. The demand then lists the allocation as settled, so that the scheduler
    /// may grant another.
    fn record_process_end(
        &mut self,
        work_slot: &WorkSlot,
        end: &ProcessEnd<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let WorkSlot { work: uuid, slot } = *work_slot;
        let ProcessEnd { entry, ran_ms } = *end;
        let is_released = self.end_lease(uuid, &entry.id);
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        let exit = entry.exit.as_ref();
        let exit_text = exit.map_or_else(|| "ended".to_owned(), describe_exit);
        let event = format!("{} on {}: {exit_text}", entry.id, entry.node);
        work.record_event(event, moment, batch);
        if let Some(job) = work.job_mut() {
            job.past.insert(uuid, entry, &mut batch.rows);
        }
        work.slots[slot].settled.insert(entry.id.clone());
        batch.rows.settled.push(SettledRow {
            allocation: entry.id.to_string(),
            slot: work.slot_id(slot).to_string(),
            work: uuid,
        });
        work.end_processor(slot, entry, moment);
        let caused_by_program =
            ended_by_program(entry) && !work.uses_counted_retry(entry) && !is_released;
        let is_held_back =
            record_end_without_progress(work, slot, caused_by_program, ran_ms, moment.monotonic_ms);
        if !is_held_back {
            return;
        }
        let policy = work.backoff_policy();
        let slot_id = work.slot_id(slot).to_string();
        let state = &mut work.slots[slot];
        let strikes = state.backoff.failures();
        let until_ms = state.backoff.held_until_ms().unwrap_or(0);
        let wait_s = until_ms.saturating_sub(moment.monotonic_ms).div_ceil(1000);
        state.hold_reason = Some(hold_reason(&exit_text, strikes, wait_s));
        let gives_up = state.backoff.is_exhausted(&policy);
        let strikes = i32::try_from(strikes).unwrap_or(i32::MAX);
        batch.rows.backoffs.push(BackoffRow {
            slot: slot_id,
            work: uuid,
            strikes,
        });
        self.hold_ends.insert((until_ms, uuid));
        if gives_up {
            let reason = format!(
                "{strikes} processes in a row ended before any task came to an end; the last one: \
                 {exit_text}"
            );
            self.end_work(uuid, FinalState::failed(reason), moment, batch);
        }
    }

    /// Ends the lease of an allocation. Its tasks wait again. Returns whether its runner was asked
    /// to end, because it had nothing to run.
    pub(super) fn end_lease(&mut self, uuid: Uuid, holder: &AllocationId) -> bool {
        self.lease_ends.remove(holder);
        let Some(job) = self.works.get_mut(&uuid).and_then(|work| work.job_mut()) else {
            return false;
        };
        let is_released = job.runners.remove(holder);
        job.commands.remove(holder);
        if job.tasks.end_leases(holder) {
            self.changed_leases.insert((uuid, holder.clone()));
            self.dirty.insert(uuid);
            self.shared.tasks.notify(&uuid, 0);
        }
        is_released
    }

    /// Handles an allocation that is no longer published.
    fn remove_allocation(
        &mut self,
        before: &AllocationEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if self.orchestrators.remove_allocation(before, batch) {
            return;
        }
        let Some(WorkSlot { work: uuid, slot }) = self.work_slot(&before.work) else {
            return self.clear_removed_slot(before);
        };
        self.end_lease(uuid, &before.id);
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        let Some(state) = work.slots.get_mut(slot) else {
            return;
        };
        let alive = state
            .processes
            .remove(&before.id)
            .is_some_and(|process| process.is_alive());
        if state.settled.remove(&before.id) {
            batch.rows.deleted_settled.push(before.id.to_string());
        }
        if let Some(job) = work.job_mut() {
            job.past.insert(uuid, before, &mut batch.rows);
        }
        work.update_processor(slot);
        if alive {
            work.vacate_processor(slot, before, moment);
            work.record_event(
                format!("{} on {} was withdrawn", before.id, before.node),
                moment,
                batch,
            );
        }
        self.store_processors(uuid, moment, batch);
        self.dirty.insert(uuid);
    }

    pub(super) fn apply_verdict_update(
        &mut self,
        update: Update<VerdictEntry>,
        batch: &mut Batch<Rows>,
    ) {
        self.verdicts_cursor = Cursor::parse(&update.cursor);
        batch.record_position(VERDICTS, self.verdicts_cursor);
        let mut changed_keys: Vec<String> = Vec::new();
        {
            let mut verdicts = self.shared.verdicts.write();
            if update.full {
                changed_keys.extend(verdicts.keys().cloned());
                verdicts.clear();
            }
            changed_keys.extend(update.removed.iter().chain(update.changed.keys()).cloned());
            for key in &update.removed {
                verdicts.remove(key);
            }
            verdicts.extend(update.changed);
        }
        let changed_keys = changed_keys
            .into_iter()
            .filter_map(|key| WorkId::new(key).ok());
        let (for_applications, changed_keys): (Vec<WorkId>, Vec<WorkId>) =
            changed_keys.partition(applications::is_application_work);
        self.applications.mark_verdicts_changed(&for_applications);
        for id in changed_keys {
            self.orchestrators.mark_work_dirty(&id);
            if let Some(WorkSlot { work, .. }) = self.work_slot(&id) {
                self.dirty.insert(work);
            }
        }
    }
}

fn hold_reason(exit: &str, strikes: u32, wait_s: u64) -> String {
    format!(
        "the last process ended: {exit}; {strikes} in a row made no progress, the next start waits \
         {wait_s} s"
    )
}

/// Returns true if the end is part of a move. The successor exists already or will be granted.
pub(super) fn is_moved(entry: &AllocationEntry) -> bool {
    let vacate = entry.vacate.as_ref();
    vacate.is_some_and(|vacate| vacate.reason == VacateReason::Moved)
}

/// Returns true if the program caused the end. A launch that every node would refuse counts too.
fn ended_by_program(entry: &AllocationEntry) -> bool {
    // A marked process gets no tasks, so it ends without progress. Its program is not the cause.
    let has_to_end = entry.vacate.is_some() || entry.marked.is_some();
    is_caused_by_program(has_to_end, entry.exit.as_ref())
}

/// Counts an end without progress. Returns true if the slot is now held back.
fn record_end_without_progress(
    work: &mut Work,
    slot: usize,
    caused_by_program: bool,
    ran_ms: Option<u64>,
    now_ms: u64,
) -> bool {
    let policy = work.backoff_policy();
    match &mut work.spec {
        WorkSpec::Reservation(_) => return false,
        WorkSpec::Service(_) => {
            if ran_ms.is_some_and(|ran| ran >= BackoffPolicy::HEALTHY_AFTER_MS) {
                work.slots[slot].backoff.clear();
            }
        }
        WorkSpec::Job(job) => {
            let made_progress = job.counted_attempts != job.counted_attempts_at_last_end;
            job.counted_attempts_at_last_end = job.counted_attempts;
            // Without waiting tasks, a process may end without any progress.
            if made_progress || job.tasks.waiting() == 0 {
                return false;
            }
        }
    }
    caused_by_program && work.slots[slot].backoff.record_failure(now_ms, &policy)
}
