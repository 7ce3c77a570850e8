//! Cancels single tasks of a job, and tells runners to stop their runs (TC-134).

use std::sync::Arc;

use hayward_job_converter_domain::{HeldTask, NumberedCommand, UnrunSpan};
use hayward_publication::committer::{Batch, Moment};

use super::Ledger;
use super::restore::to_u64;
use super::submit_and_cancel::FoundWork;
use super::task_signals::push_stops;
use crate::command::{CancelTasks, CancelledTasks, RunnerCommandsQuery};
use crate::error::Refusal;
use crate::store::Rows;
use crate::store::cancelled_tasks::{TaskStopRow, UnrunRow};
use crate::work::task_numbers::format_task_numbers;
use crate::work::{Job, StopSpeed, TaskCommand, Work};

impl Ledger {
    /// Cancels tasks. Cancelling again, or cancelling ended tasks, changes nothing.
    pub(super) fn cancel_tasks(
        &mut self,
        cancel: &CancelTasks,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<CancelledTasks, Refusal> {
        let named = cancel.tasks.len();
        let uuid = match self.find_changeable(&cancel.target)? {
            FoundWork::Open(uuid) => uuid,
            FoundWork::Ended => {
                return Ok(CancelledTasks {
                    ended: named,
                    ..CancelledTasks::default()
                });
            }
        };
        let missing = || Refusal::NoSuchWork(cancel.target.id.clone());
        let work = self.works.get_mut(&uuid).ok_or_else(missing)?;
        let job = work.job_mut().ok_or_else(missing)?;
        let total = job.tasks.total();
        let last = cancel.tasks.spans().last().map_or(0, |(_, end)| end);
        if last > total {
            let task = last - 1;
            return Err(Refusal::NoTaskWithNumber { task, total });
        }
        if batch.is_dry_run() {
            return Ok(preview(job, cancel));
        }
        let (result, held) = cancel_all(job, cancel);
        batch
            .rows
            .task_stops
            .extend(held.iter().map(|held| TaskStopRow {
                job: uuid,
                task: to_i64(held.task),
                requested_by: cancel.target.caller.clone(),
            }));
        push_stops(&self.shared, job, &held, cancel.speed, moment);
        if result.cancelled + result.stopping > 0 {
            let numbers = format_task_numbers(&cancel.tasks);
            let event = format!("tasks {numbers} cancelled by {}", cancel.target.caller);
            work.record_event(event, moment, batch);
            write_unrun(work, moment, batch);
        }
        self.dirty.insert(uuid);
        self.shared.tasks.notify(&uuid, moment.revision);
        Ok(result)
    }

    /// Returns the commands to a runner after a number.
    pub(super) fn runner_commands(
        &mut self,
        query: &RunnerCommandsQuery,
    ) -> Result<Vec<NumberedCommand<TaskCommand>>, Refusal> {
        let uuid = self.find_runner_job(&query.job, &query.runner)?;
        // The runners of an ended job end without a command.
        let job = self.job(uuid);
        Ok(job.map_or_else(Vec::new, |job| {
            job.commands.take_after(&query.allocation, query.after)
        }))
    }

    pub(super) fn restore_unrun(&mut self, rows: &[UnrunRow]) {
        for row in rows {
            if let Some(job) = self.job(row.job) {
                let (start, end) = (to_u64(row.first), to_u64(row.past));
                job.tasks.restore_cancelled(start, end);
            }
        }
    }

    /// Restores the cancellations of leased tasks, and tells their runners again.
    pub(super) fn restore_task_stops(&mut self, rows: &[TaskStopRow], moment: &Moment) {
        for row in rows {
            if let Some(job) = self.job(row.job) {
                let by = Arc::from(row.requested_by.as_str());
                job.tasks.restore_cancelling(to_u64(row.task), &by);
            }
        }
        let shared = Arc::clone(&self.shared);
        for work in self.works.values_mut() {
            if let Some(job) = work.job_mut() {
                let held = job.tasks.cancelling();
                push_stops(&shared, job, &held, StopSpeed::Graceful, moment);
            }
        }
    }
}

/// Counts the tasks that a cancellation would change.
fn preview(job: &Job, cancel: &CancelTasks) -> CancelledTasks {
    let mut tasks = job.tasks.clone();
    let by = Arc::from(cancel.target.caller.as_str());
    let effects = cancel.tasks.spans();
    let effects = effects.map(|(start, end)| tasks.cancel(start, end, &by));
    effects.fold(CancelledTasks::default(), |sum, effect| CancelledTasks {
        cancelled: sum.cancelled + effect.cancelled,
        stopping: sum.stopping + effect.stopping.len() as u64,
        ended: sum.ended + effect.ended,
    })
}

/// Cancels the tasks in the table. Also returns those whose runs have to be stopped.
fn cancel_all(job: &mut Job, cancel: &CancelTasks) -> (CancelledTasks, Vec<HeldTask>) {
    let by = Arc::from(cancel.target.caller.as_str());
    let (mut result, mut stopping) = (CancelledTasks::default(), Vec::new());
    for (start, end) in cancel.tasks.spans() {
        let effect = job.tasks.cancel(start, end, &by);
        result.cancelled += effect.cancelled;
        result.ended += effect.ended;
        result.stopping += effect.stopping.len() as u64;
        stopping.extend(effect.stopping);
    }
    (result, stopping)
}

/// Writes the outcomes of tasks that ended without a run.
pub(super) fn write_unrun(work: &mut Work, moment: &Moment, batch: &mut Batch<Rows>) {
    let job_id = work.uuid;
    let Some(job) = work.job_mut() else { return };
    let spans = job.tasks.take_unstored().into_iter();
    batch.rows.unrun.extend(spans.map(|span| {
        let UnrunSpan { start, end, by } = span;
        UnrunRow {
            job: job_id,
            first: to_i64(start),
            past: to_i64(end),
            state: "cancelled".to_owned(),
            message: format!("cancelled by {by}"),
            ended_at_ms: moment.now.unix_ms(),
        }
    }));
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
