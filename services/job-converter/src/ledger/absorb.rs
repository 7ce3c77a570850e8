//! Applies updates of `allocations` and `verdicts`.

use hayward_job_converter_api::WorkState;
use hayward_job_converter_domain::Pace;
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
use crate::store::settled::{BrakeRow, SettledRow};
use crate::work::exits::{how_it_ended, is_own};
use crate::work::projections::FinalState;
use crate::work::{Process, What, Work, read_id};

/// Slot of a piece of work.
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
        let (_, work, place) = read_id(id)?;
        let slot = self.works.get(&work)?.slot_at(place)?;
        Some(WorkSlot { work, slot })
    }

    pub(super) fn absorb_allocations(
        &mut self,
        update: Update<AllocationEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        // Events before this term are in the timeline already.
        let first = !self.allocations.heard();
        let changes = self.allocations.absorb(update, moment.monotonic_ms);
        batch.followed(ALLOCATIONS, self.allocations.cursor());
        if first {
            self.adopt();
        }
        let mut for_applications = Vec::new();
        for change in changes {
            match change {
                Change::Set { key, before } => {
                    let Some(entry) = self.allocations.get(&key).cloned() else {
                        continue;
                    };
                    if applications::owns(&entry.work) {
                        for_applications.push(AllocationChange::Set(Box::new(entry)));
                        continue;
                    }
                    let in_timeline = !first || before.is_some();
                    self.allocation_is(&entry, in_timeline, moment, batch);
                }
                Change::Removed { before, .. } if applications::owns(&before.work) => {
                    for_applications.push(AllocationChange::Removed(before.id, before.work));
                }
                Change::Removed { before, .. } => self.allocation_left(&before, moment, batch),
            }
        }
        self.applications
            .absorb_allocations(for_applications, moment);
        if first {
            let known = &self.allocations;
            let known = |id: &AllocationId| known.get(id.as_str()).is_some();
            self.applications.absorb_first_full(known, moment);
            self.absorb_first_full(batch);
        }
    }

    /// Records the running processes of services at the first full update of a term. This precedes
    /// any loss or end, since one of these processes may have to take over.
    fn adopt(&mut self) {
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
                work.observe(slot);
            }
        }
    }

    /// Applies the first full update of a term. It marks all work dirty and drops settled
    /// allocations that are gone.
    fn absorb_first_full(&mut self, batch: &mut Batch<Rows>) {
        self.dirty.extend(self.works.keys());
        self.orchestrators
            .absorb_first_full(&self.allocations, batch);
        for work in self.works.values_mut() {
            for slot in &mut work.slots {
                let known = &self.allocations;
                slot.settled.retain(|id| {
                    let stays = known.get(id.as_str()).is_some();
                    if !stays {
                        batch.rows.settled_gone.push(id.to_string());
                    }
                    stays
                });
            }
        }
    }

    pub(super) fn allocation_is(
        &mut self,
        entry: &AllocationEntry,
        in_timeline: bool,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if self.absorb_share(entry, moment, batch) {
            return;
        }
        let Some(WorkSlot { work: uuid, slot }) = self.work_slot(&entry.work) else {
            return self.removed_slot_changed(entry);
        };
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        let Some(state) = work.slots.get_mut(slot) else {
            return;
        };
        let before = state.processes.get(&entry.id);
        let new = before.is_none();
        let was = before.map(|process| process.state);
        let mut process = Process::from_entry(entry);
        process.running_since_ms = before.and_then(|process| process.running_since_ms);
        let runs = entry.state == AllocationState::Running;
        if runs && process.running_since_ms.is_none() {
            process.running_since_ms = Some(moment.monotonic_ms);
        }
        let leaving = process.takes_no_tasks();
        let was_marked = before.is_some_and(|process| process.marked);
        let since_ms = process.running_since_ms;
        let ran_ms = since_ms.map(|since| moment.monotonic_ms - since);
        let vacating = process.vacating && process.alive();
        state.processes.insert(entry.id.clone(), process);
        let ended = entry.state == AllocationState::Ended && !state.settled.contains(&entry.id);
        let event = if new && !ended {
            Some(format!("{} granted on {}", entry.id, entry.node))
        } else {
            let starts = runs && was != Some(AllocationState::Running);
            starts.then(|| format!("{} runs on {}", entry.id, entry.node))
        };
        let mark = entry.marked.as_ref().filter(|_| !was_marked && !ended);
        let mark = mark.map(|mark| format!("{} is given no new tasks: {mark}", entry.id));
        for event in event.into_iter().chain(mark).filter(|_| in_timeline) {
            work.record_event(event, moment, batch);
        }
        work.observe(slot);
        if vacating && !is_moved(entry) {
            work.processor_leaves(slot, entry, moment);
        }
        if ended {
            let at = WorkSlot { work: uuid, slot };
            self.process_ended(&at, &ProcessEnd { entry, ran_ms }, moment, batch);
        }
        if leaving {
            self.shared.tasks.notify(&uuid, moment.revision);
        }
        self.store_processors(uuid, moment, batch);
        self.dirty.insert(uuid);
    }

    /// Records an end once. The demand then lists it as settled.
    fn process_ended(
        &mut self,
        at: &WorkSlot,
        end: &ProcessEnd<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let WorkSlot { work: uuid, slot } = *at;
        let ProcessEnd { entry, ran_ms } = *end;
        self.end_lease(uuid, &entry.id);
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        let exit = entry.exit.as_ref();
        let how = exit.map_or_else(|| "ended".to_owned(), how_it_ended);
        let event = format!("{} on {}: {how}", entry.id, entry.node);
        work.record_event(event, moment, batch);
        if let Some(job) = work.job_mut() {
            job.past.remember(uuid, entry, &mut batch.rows);
        }
        work.slots[slot].settled.insert(entry.id.clone());
        batch.rows.settled.push(SettledRow {
            allocation: entry.id.to_string(),
            slot: work.slot_id(slot).to_string(),
            work: uuid,
        });
        work.processor_ended(slot, entry, moment);
        let own = by_itself(entry) && !work.counts_retries(entry);
        let struck = brake(work, slot, own, ran_ms, moment.monotonic_ms);
        if !struck {
            return;
        }
        let pace = work.pace();
        let slot_id = work.slot_id(slot).to_string();
        let state = &mut work.slots[slot];
        let strikes = state.brake.strikes();
        let until = state.brake.held_until_ms().unwrap_or(0);
        let wait_s = until.saturating_sub(moment.monotonic_ms).div_ceil(1000);
        state.hold_reason = Some(hold_reason(&how, strikes, wait_s));
        let gives_up = state.brake.gives_up(&pace);
        let strikes = i32::try_from(strikes).unwrap_or(i32::MAX);
        batch.rows.brakes.push(BrakeRow {
            slot: slot_id,
            work: uuid,
            strikes,
        });
        self.holds.insert((until, uuid));
        if gives_up {
            let reason = format!(
                "{strikes} processes in a row ended before any task came to an end; the last one: \
                 {how}"
            );
            let last = FinalState {
                state: WorkState::Failed,
                reason: Some(reason),
            };
            self.end(uuid, last, moment, batch);
        }
    }

    /// Ends the lease of an allocation. Its tasks wait again.
    pub(super) fn end_lease(&mut self, uuid: Uuid, holder: &AllocationId) {
        self.lease_ends.remove(holder);
        let Some(job) = self.works.get_mut(&uuid).and_then(|work| work.job_mut()) else {
            return;
        };
        if job.tasks.end(holder) {
            self.changed_leases.insert((uuid, holder.clone()));
            self.dirty.insert(uuid);
            self.shared.tasks.notify(&uuid, 0);
        }
    }

    fn allocation_left(
        &mut self,
        before: &AllocationEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if self.orchestrators.remove_share(before, batch) {
            return;
        }
        let Some(WorkSlot { work: uuid, slot }) = self.work_slot(&before.work) else {
            return self.removed_slot_gone(before);
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
            .is_some_and(|process| process.alive());
        if state.settled.remove(&before.id) {
            batch.rows.settled_gone.push(before.id.to_string());
        }
        if let Some(job) = work.job_mut() {
            job.past.remember(uuid, before, &mut batch.rows);
        }
        work.observe(slot);
        if alive {
            work.processor_leaves(slot, before, moment);
            work.record_event(
                format!("{} on {} was withdrawn", before.id, before.node),
                moment,
                batch,
            );
        }
        self.store_processors(uuid, moment, batch);
        self.dirty.insert(uuid);
    }

    pub(super) fn absorb_verdicts(
        &mut self,
        update: Update<VerdictEntry>,
        batch: &mut Batch<Rows>,
    ) {
        self.verdicts_cursor = Cursor::parse(&update.cursor);
        batch.followed(VERDICTS, self.verdicts_cursor);
        let mut touched: Vec<String> = Vec::new();
        {
            let mut verdicts = self.shared.verdicts.write();
            if update.full {
                touched.extend(verdicts.keys().cloned());
                verdicts.clear();
            }
            touched.extend(update.removed.iter().chain(update.changed.keys()).cloned());
            for key in &update.removed {
                verdicts.remove(key);
            }
            verdicts.extend(update.changed);
        }
        let touched = touched.into_iter().filter_map(|key| WorkId::new(key).ok());
        let (for_applications, touched): (Vec<WorkId>, Vec<WorkId>) =
            touched.partition(applications::owns);
        self.applications.verdicts_changed(&for_applications);
        for id in touched {
            self.orchestrators.mark_work_dirty(&id);
            if let Some(WorkSlot { work, .. }) = self.work_slot(&id) {
                self.dirty.insert(work);
            }
        }
    }
}

fn hold_reason(how: &str, strikes: u32, wait_s: u64) -> String {
    format!(
        "the last process ended: {how}; {strikes} in a row made no progress, the next start waits \
         {wait_s} s"
    )
}

/// Returns true if the end is part of a move. The successor exists already or will be granted.
pub(super) fn is_moved(entry: &AllocationEntry) -> bool {
    let vacate = entry.vacate.as_ref();
    vacate.is_some_and(|vacate| vacate.reason == VacateReason::Moved)
}

/// Returns true if the program caused the end, or no other node would do better.
fn by_itself(entry: &AllocationEntry) -> bool {
    // A marked process gets no tasks, so it ends without progress.
    let sent_away = entry.vacate.is_some() || entry.marked.is_some();
    is_own(sent_away, entry.exit.as_ref())
}

/// Counts an end without progress. Returns true if the slot is now held back.
fn brake(work: &mut Work, slot: usize, own: bool, ran_ms: Option<u64>, now_ms: u64) -> bool {
    let pace = work.pace();
    match &mut work.what {
        What::Reservation(_) => return false,
        What::Service(_) => {
            if ran_ms.is_some_and(|ran| ran >= Pace::WELL_AFTER_MS) {
                work.slots[slot].brake.clear();
            }
        }
        What::Job(job) => {
            let moved = job.counted != job.counted_at_last_end;
            job.counted_at_last_end = job.counted;
            // Without waiting tasks, a process may end without any progress.
            if moved || job.tasks.waiting() == 0 {
                return false;
            }
        }
    }
    own && work.slots[slot].brake.strike(now_ms, &pace)
}
