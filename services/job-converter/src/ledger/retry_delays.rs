//! Delays between the attempts of tasks (TC-127).

use hayward_job_converter_domain::DelayedTask;
use hayward_publication::committer::Moment;
use uuid::Uuid;

use super::Ledger;
use super::restore::to_u64;
use crate::command::RunningTasksQuery;
use crate::store::load_open_state::FailuresRow;
use crate::work::retry_policy::REQUEST_AHEAD_MS;

impl Ledger {
    /// Delays tasks until the times in their rows. The remaining time is measured by the monotonic
    /// clock from now on.
    pub(super) fn restore_delays(&mut self, rows: &[FailuresRow], moment: &Moment) {
        let now = moment.now.unix_ms();
        for row in rows {
            let Some(retry_at_ms) = row.retry_at_ms.filter(|at| *at > now) else {
                continue;
            };
            let Some(job) = self.job(row.job) else {
                continue;
            };
            let task = to_u64(row.task);
            let failures = u32::try_from(row.failures).unwrap_or(u32::MAX);
            // A wall clock that went back must not make the delay longer.
            let longest = job.retry.delay_ms(task, failures);
            let remaining = to_u64(retry_at_ms - now).min(longest);
            job.tasks.delay(task, moment.monotonic_ms + remaining);
        }
        let jobs: Vec<Uuid> = self.works.keys().copied().collect();
        for job in jobs {
            self.schedule_delays(job);
        }
    }

    /// Notes when the next delayed task of a job requests a process, and when it waits again.
    pub(super) fn schedule_delays(&mut self, uuid: Uuid) {
        let job = self.works.get(&uuid).and_then(|work| work.job());
        if let Some(due) = job.and_then(|job| job.tasks.next_due_ms()) {
            self.delay_ends.insert((due, uuid));
            let request_at = due.saturating_sub(REQUEST_AHEAD_MS);
            self.delay_ends.insert((request_at, uuid));
        }
    }

    /// Makes the tasks wait again that are due.
    pub(super) fn end_delays(&mut self, moment: &Moment) {
        while let Some((at, uuid)) = self.delay_ends.first().copied()
            && at <= moment.monotonic_ms
        {
            self.delay_ends.pop_first();
            let Some(job) = self.job(uuid) else { continue };
            let released = job.tasks.release_due(moment.monotonic_ms);
            let next_due = job.tasks.next_due_ms();
            if released > 0 {
                self.shared.tasks.notify(&uuid, moment.revision);
            }
            self.dirty.insert(uuid);
            self.delay_ends.extend(next_due.map(|due| (due, uuid)));
        }
    }

    /// Returns the delayed tasks of a job by number. Their times are milliseconds from now.
    pub(super) fn delayed_tasks(
        &self,
        query: RunningTasksQuery,
        moment: &Moment,
    ) -> Vec<DelayedTask> {
        let work = self.works.get(&query.job);
        let Some(job) = work.and_then(|work| work.job()) else {
            return Vec::new();
        };
        let delayed = job.tasks.delayed_from(query.first_task).take(query.limit);
        let from_now = delayed.map(|delayed| DelayedTask {
            due_ms: delayed.due_ms.saturating_sub(moment.monotonic_ms),
            ..delayed
        });
        from_now.collect()
    }
}
