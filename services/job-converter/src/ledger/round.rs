//! One round of the working set: ends expired leases and holds, publishes all changed entries, and
//! deletes old state.

use std::time::Duration;

use hayward_job_converter_api::{DEMAND, JOBS, WorkState};
use hayward_job_converter_domain::OpenWorkState;
use hayward_publication::committer::{Batch, Moment, Wake};
use uuid::Uuid;

use super::Ledger;
use crate::store::Rows;
use crate::work::published_entries::{self, FinalState, WorkEnd};

impl Ledger {
    pub(super) fn run_round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.end_expired_leases(moment, batch);
        self.end_holds(moment);
        self.end_delays(moment);
        if moment.monotonic_ms >= self.next_progress_ms && !self.progressed.is_empty() {
            self.next_progress_ms = moment.monotonic_ms + self.shared.settings.progress_ms;
            let progressed = std::mem::take(&mut self.progressed);
            self.dirty.extend(progressed);
        }
        self.refresh(moment, batch);
        self.refresh_orchestrated(moment, batch);
        self.write_leases(moment, batch);
        let removed_keys = self.keys.sweep(moment.now, self.shared.settings.keep_keys);
        let has_more = self.forget_old_work(moment, batch) || !removed_keys.is_empty();
        batch.rows.deleted_keys = removed_keys;
        let application_wait_ms = self.run_applications(moment, batch);
        self.next_wake(has_more, application_wait_ms, moment)
    }

    /// Runs due applications. Returns the milliseconds until the next one is due.
    fn run_applications(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Option<u64> {
        let shared = self.shared.clone();
        let (changed, wait_ms) =
            self.applications
                .run(&shared.verdicts.read(), &shared.accounts, moment, batch);
        for uuid in changed {
            shared.views.notify(&uuid, moment.revision);
        }
        wait_ms
    }

    fn end_expired_leases(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        while let Some((due, holder)) = self.lease_order.first().cloned()
            && due <= moment.monotonic_ms
        {
            self.lease_order.pop_first();
            match self.lease_ends.get(&holder).copied() {
                // The lease was renewed since this entry was made.
                Some((_, end)) if end > moment.monotonic_ms => {
                    self.lease_order.insert((end, holder));
                }
                Some((uuid, _)) => {
                    if let Some(work) = self.works.get_mut(&uuid) {
                        let event =
                            format!("{holder} did not renew its lease; its tasks wait again");
                        work.record_event(event, moment, batch);
                    }
                    self.end_lease(uuid, &holder);
                }
                None => {}
            }
        }
    }

    /// Ends the holds of work after failures that are over.
    fn end_holds(&mut self, moment: &Moment) {
        while let Some((due, uuid)) = self.hold_ends.first().copied()
            && due <= moment.monotonic_ms
        {
            self.hold_ends.pop_first();
            self.orchestrators.mark_dirty(uuid);
            if let Some(work) = self.works.get_mut(&uuid) {
                for slot in &mut work.slots {
                    if !slot.backoff.is_held(moment.monotonic_ms) {
                        slot.hold_reason = None;
                    }
                }
                self.dirty.insert(uuid);
            }
        }
    }

    /// Publishes the current entries of dirty work. Before the first update of `allocations` in
    /// this term, the processes are unknown and the published entries stay.
    fn refresh(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let synced = self.allocations.has_update();
        let (ready, deferred): (Vec<Uuid>, Vec<Uuid>) = std::mem::take(&mut self.dirty)
            .into_iter()
            .partition(|uuid| synced || self.works.get(uuid).is_some_and(|work| work.cancelled));
        for uuid in ready {
            self.refresh_one(uuid, synced, moment, batch);
        }
        self.dirty.extend(deferred);
    }

    /// Publishes the view and the demand of one piece of work, or ends the work.
    fn refresh_one(&mut self, uuid: Uuid, synced: bool, moment: &Moment, batch: &mut Batch<Rows>) {
        self.progressed.remove(&uuid);
        let settings = &self.shared.settings;
        let synced_work = self.works.get_mut(&uuid).filter(|_| synced);
        let (final_state, due) = synced_work.map_or((None, None), |work| {
            work.advance_processors(settings, moment)
        });
        self.hold_ends.extend(due.map(|due| (due, uuid)));
        self.store_processors(uuid, moment, batch);
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        // The last tasks may have ended without a report, because they were cancelled.
        if !work.cancelled && work.job().is_some_and(|job| job.tasks.is_over()) {
            return self.end_completed_job(uuid, moment, batch);
        }
        let shared = self.shared.clone();
        let verdicts = shared.verdicts.read();
        let verdict = (0..work.slots.len())
            .filter(|slot| work.slots[*slot].live_count() == 0)
            .filter_map(|slot| verdicts.get(work.slot_id(slot).as_str()))
            .max_by_key(|verdict| verdict.refused);
        let refused = verdict.filter(|verdict| verdict.refused);
        let work_end = |state| WorkEnd::new(state, moment.now);
        let end = match OpenWorkState::from_facts(&work.facts(refused.is_some())) {
            _ if final_state.is_some() && !work.cancelled => final_state.map(work_end),
            OpenWorkState::Cancelled if synced => Some(work_end(FinalState {
                state: WorkState::Cancelled,
                reason: None,
            })),
            OpenWorkState::Refused => refused.map(|verdict| WorkEnd::refused(verdict, moment.now)),
            _ => None,
        };
        if end.is_none() {
            let view = published_entries::view(work, verdict);
            batch.publish(JOBS, work.user.as_str(), work.id.as_str(), &view);
        }
        drop(verdicts);
        if let Some(end) = end {
            self.end_work_with(uuid, &end, moment, batch);
            return;
        }
        if !work.cancelled {
            for slot in 0..work.slots.len() {
                let grace_ms = shared.settings.stop_grace_ms;
                if let Some(mut entry) =
                    published_entries::demand(work, slot, moment.monotonic_ms, grace_ms)
                {
                    shared.accounts.add_to(&mut entry, &mut batch.rows);
                    batch.publish(DEMAND, "", entry.work.as_str(), &entry);
                    work.slots[slot].task_ms = entry.task_ms;
                }
            }
        }
        shared.views.notify(&uuid, moment.revision);
    }

    /// Returns when the next round is due, at the earliest of all deadlines.
    fn next_wake(&self, has_more: bool, application_wait_ms: Option<u64>, moment: &Moment) -> Wake {
        if has_more {
            return Wake::After(Duration::from_millis(10));
        }
        let lease_end = self.lease_order.first().map(|(due, _)| *due);
        let hold_end = self.hold_ends.first().map(|(due, _)| *due);
        let delay_end = self.delay_ends.first().map(|(due, _)| *due);
        let progress = (!self.progressed.is_empty()).then_some(self.next_progress_ms);
        let application = application_wait_ms.map(|ms| moment.monotonic_ms.saturating_add(ms));
        match [lease_end, hold_end, delay_end, progress, application]
            .into_iter()
            .flatten()
            .min()
        {
            None => Wake::OnCommand,
            Some(due) => Wake::After(Duration::from_millis(
                due.saturating_sub(moment.monotonic_ms).max(1),
            )),
        }
    }
}
