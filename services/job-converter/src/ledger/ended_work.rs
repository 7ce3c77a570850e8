//! Ends pieces of work, and forgets ended work that is too old.

use hayward_job_converter_api::{DEMAND, JOBS, WorkState};
use hayward_job_converter_domain::EndedTasks;
use hayward_publication::committer::{Batch, Moment};
use hayward_vocabulary::{UserName, WorkId};
use uuid::Uuid;

use super::Ledger;
use super::task_cancellation::write_unrun;
use super::timeline::replace_nul;
use crate::store::Rows;
use crate::store::work::EndedRow;
use crate::work::published_entries::{FinalState, WorkEnd, final_view};
use crate::work::{FailedTask, Job, Work};

/// Maximum number of pieces of work that one round forgets.
const MAX_FORGOTTEN: usize = 500;

/// Ended work. Its view stays published until it is forgotten.
pub struct FinalWork {
    pub id: WorkId,
    pub user: UserName,
    /// Work id in the scope of the runner's token. `None` if the work is no job.
    pub runner: Option<WorkId>,
    /// Name under which the last nodes of its processors are stored. `None` without host affinity.
    pub host_key: Option<String>,
}

/// Returns the column value of a final state.
fn state_name(state: WorkState) -> &'static str {
    match state {
        WorkState::Completed => "completed",
        WorkState::Cancelled => "cancelled",
        WorkState::Refused => "refused",
        _ => "failed",
    }
}

/// Describes the failure of a job: of one task by its end, of many by their number and an example.
fn failure_reason(job: &Job) -> String {
    let (failed, total) = (job.tasks.failed(), job.tasks.total());
    match &job.example_failure {
        Some(example) if total == 1 => example.message.clone(),
        Some(FailedTask { task, message }) => {
            format!("{failed} of {total} tasks failed, for example task {task}: {message}")
        }
        None => format!("{failed} of {total} tasks failed"),
    }
}

/// Returns the final state of a job whose tasks all have an outcome. Tasks that were cancelled one
/// by one were not wanted, so they are no failure.
fn completed_state(job: &Job) -> FinalState {
    let tasks = &job.tasks;
    let (succeeded, cancelled, total) = (tasks.succeeded(), tasks.cancelled(), tasks.total());
    if tasks.failed() > 0 {
        return state_with_failures(job);
    }
    let state = if succeeded == 0 && cancelled > 0 {
        WorkState::Cancelled
    } else {
        WorkState::Completed
    };
    let reason = format!("{succeeded} of {total} tasks succeeded, {cancelled} cancelled");
    FinalState {
        state,
        reason: (cancelled > 0).then_some(reason),
    }
}

/// Returns the final state of a job with failed tasks.
fn state_with_failures(job: &Job) -> FinalState {
    let tasks = &job.tasks;
    let ended = EndedTasks {
        succeeded: tasks.succeeded(),
        cancelled: tasks.cancelled(),
        total: tasks.total(),
    };
    let Some(percent) = job.submission.success_percent else {
        return FinalState::failed(failure_reason(job));
    };
    if !ended.reach(percent) {
        let reason = failure_reason(job);
        return FinalState::failed(format!("{reason}; {percent} % had to succeed"));
    }
    let (succeeded, failed, total) = (ended.succeeded, tasks.failed(), ended.total);
    let cancelled = match ended.cancelled {
        0 => String::new(),
        cancelled => format!(", {cancelled} cancelled"),
    };
    let reason = format!(
        "{succeeded} of {total} tasks succeeded, {failed} failed{cancelled}; {percent} % had to \
         succeed"
    );
    FinalState {
        state: WorkState::Completed,
        reason: Some(reason),
    }
}

impl Ledger {
    /// Ends a job whose tasks all have an outcome.
    pub(super) fn end_completed_job(
        &mut self,
        uuid: Uuid,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(job) = self.works.get(&uuid).and_then(|work| work.job()) else {
            return;
        };
        let final_state = completed_state(job);
        self.end_work(uuid, final_state, moment, batch);
    }

    /// Ends a piece of work now, in this state.
    pub(super) fn end_work(
        &mut self,
        uuid: Uuid,
        final_state: FinalState,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        self.end_work_with(uuid, &WorkEnd::new(final_state, moment.now), moment, batch);
    }

    /// Ends a piece of work once. One commit withdraws its demand and makes its view final.
    pub(super) fn end_work_with(
        &mut self,
        uuid: Uuid,
        end: &WorkEnd,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(mut work) = self.works.remove(&uuid) else {
            return;
        };
        write_unrun(&mut work, moment, batch);
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

    /// Deletes the token of a job's runners if no other open job uses it.
    fn release_runner(&mut self, runner: &WorkId, batch: &mut Batch<Rows>) {
        let Some(runner_use) = self.runners.get_mut(runner) else {
            return;
        };
        runner_use.works -= 1;
        if runner_use.works == 0 {
            self.runners.remove(runner);
            batch.rows.deleted_runners.push(runner.to_string());
        }
    }

    /// Deletes the last nodes of a service if no other readable service has its name.
    fn release_host_key(&mut self, final_work: &FinalWork, batch: &mut Batch<Rows>) {
        if let Some(host_key) = &final_work.host_key
            && self
                .last_hosts
                .remove_service(&(final_work.user.clone(), host_key.clone()))
        {
            let deleted = (final_work.user.to_string(), host_key.clone());
            batch.rows.deleted_last_hosts.push(deleted);
        }
    }

    /// Forgets ended work beyond the limits, at most [`MAX_FORGOTTEN`] pieces per
    /// round. Returns true if more may remain.
    pub(super) fn forget_old_work(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> bool {
        let settings = &self.shared.settings;
        let days = i64::try_from(settings.keep_final_days).unwrap_or(i64::MAX);
        let cutoff_ms = moment
            .now
            .unix_ms()
            .saturating_sub(days.saturating_mul(24 * 3600 * 1000));
        let max_count = settings.keep_final;
        for _ in 0..MAX_FORGOTTEN {
            match self.final_order.front().copied() {
                Some((ended_at_ms, uuid))
                    if self.final_order.len() > max_count || ended_at_ms < cutoff_ms =>
                {
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
