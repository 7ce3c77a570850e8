//! Ends pieces of work, forgets old ones, and adds entries to timelines.

use hayward_job_converter_api::{DEMAND, JOBS, WorkState};
use hayward_publication::committer::{Batch, Moment};
use uuid::Uuid;

use super::Ledger;
use crate::model::FinalWork;
use crate::store::Rows;
use crate::store::history::EventRow;
use crate::store::work::EndedRow;
use crate::work::Work;
use crate::work::published_entries::{FinalState, WorkEnd, final_view};

/// Maximum number of timeline entries of one piece of work.
const MAX_EVENTS: u32 = 1_000;

impl Work {
    /// Adds an entry to the timeline.
    pub fn record_event(
        &mut self,
        event: impl Into<String>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if self.events < MAX_EVENTS {
            self.write_event(&event.into(), moment, batch);
        } else if self.events == MAX_EVENTS {
            self.write_event("further events are not stored", moment, batch);
        }
    }

    fn write_event(&mut self, event: &str, moment: &Moment, batch: &mut Batch<Rows>) {
        self.events += 1;
        batch.rows.events.push(EventRow {
            work: self.uuid,
            number: i32::try_from(self.events).unwrap_or(i32::MAX),
            at_ms: moment.now.unix_ms(),
            revision: i64::try_from(moment.revision).unwrap_or(i64::MAX),
            event: replace_nul(event),
        });
    }
}

/// Replaces NUL, which Postgres does not store.
pub fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn state_name(state: WorkState) -> &'static str {
    match state {
        WorkState::Completed => "completed",
        WorkState::Cancelled => "cancelled",
        WorkState::Refused => "refused",
        _ => "failed",
    }
}

impl Ledger {
    /// Ends a job whose last outcome is recorded.
    pub(super) fn complete(&mut self, uuid: Uuid, moment: &Moment, batch: &mut Batch<Rows>) {
        let Some(job) = self.works.get(&uuid).and_then(|work| work.job()) else {
            return;
        };
        let (failed, total) = (job.tasks.failed(), job.tasks.total());
        let final_state = if failed == 0 {
            FinalState {
                state: WorkState::Completed,
                reason: None,
            }
        } else {
            let text = format!("{failed} of {total} tasks failed on every attempt they had");
            FinalState {
                state: WorkState::Failed,
                reason: Some(text),
            }
        };
        self.end(uuid, final_state, moment, batch);
    }

    pub(super) fn end(
        &mut self,
        uuid: Uuid,
        final_state: FinalState,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        self.end_with(uuid, &WorkEnd::new(final_state, moment.now), moment, batch);
    }

    /// Ends a piece of work once. One commit withdraws its demand and makes its view final.
    pub(super) fn end_with(
        &mut self,
        uuid: Uuid,
        end: &WorkEnd,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(mut work) = self.works.remove(&uuid) else {
            return;
        };
        for slot in 0..work.slots.len() {
            batch.withdraw(DEMAND, "", work.slot_id(slot).as_str());
        }
        batch.publish(
            JOBS,
            work.user.as_str(),
            work.id.as_str(),
            &final_view(&work, end),
        );
        work.record_event(state_name(end.state), moment, batch);
        let at_ms = end.at.unix_ms();
        let reason = end.reason.as_deref().map(replace_nul);
        batch.rows.ended.push(EndedRow {
            id: uuid,
            state: state_name(end.state),
            reason,
            at_ms,
        });
        let runner = work.job().map(|job| job.runner.id.clone());
        if let Some(job) = work.job() {
            for holder in job.tasks.holders() {
                self.lease_ends.remove(holder);
            }
        }
        if let Some(runner) = &runner {
            self.release_runner(runner, batch);
        }
        self.dirty.remove(&uuid);
        self.progressed.remove(&uuid);
        self.final_order.push_back((at_ms, uuid));
        let host_key = work.host_key();
        let Work { id, user, .. } = *work;
        self.final_works.insert(
            uuid,
            FinalWork {
                id,
                user,
                runner,
                host_key,
            },
        );
        self.shared.views.notify(&uuid, moment.revision);
        self.shared.tasks.notify(&uuid, moment.revision);
    }

    fn release_runner(&mut self, runner: &hayward_vocabulary::WorkId, batch: &mut Batch<Rows>) {
        let Some(runner_use) = self.runners.get_mut(runner) else {
            return;
        };
        runner_use.works -= 1;
        if runner_use.works == 0 {
            self.runners.remove(runner);
            batch.rows.deleted_runners.push(runner.to_string());
        }
    }

    fn release_host_key(&mut self, final_work: &FinalWork, batch: &mut Batch<Rows>) {
        if let Some(host_key) = &final_work.host_key
            && self
                .last_hosts
                .remove_service(&(final_work.user.clone(), host_key.clone()))
        {
            let deleted = (final_work.user.to_string(), host_key.clone());
            batch.rows.deleted_localities.push(deleted);
        }
    }

    /// Forgets ended work beyond the limits, at most 500 per round. Returns true if more remains.
    pub(super) fn forget_old_work(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> bool {
        const MAX_FORGOTTEN: usize = 500;
        let settings = &self.shared.settings;
        let days = i64::try_from(settings.keep_final_days).unwrap_or(i64::MAX);
        let cutoff_ms = moment
            .now
            .unix_ms()
            .saturating_sub(days.saturating_mul(24 * 3600 * 1000));
        let keep = settings.keep_final;
        for _ in 0..MAX_FORGOTTEN {
            match self.final_order.front().copied() {
                Some((at, uuid)) if self.final_order.len() > keep || at < cutoff_ms => {
                    self.final_order.pop_front();
                    let Some(final_work) = self.final_works.remove(&uuid) else {
                        continue;
                    };
                    batch.withdraw(JOBS, final_work.user.as_str(), final_work.id.as_str());
                    self.release_host_key(&final_work, batch);
                    batch.rows.forgotten.push(uuid);
                    self.shared.owners.write().remove(uuid);
                }
                _ => return false,
            }
        }
        true
    }
}
