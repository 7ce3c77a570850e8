//! Commands to runners about the runs of single tasks: stops, and signals of users (TC-108).

use hayward_job_converter_domain::HeldTask;
use hayward_publication::committer::{Batch, Moment};

use super::Ledger;
use super::submit_and_cancel::FoundWork;
use crate::command::SignalTasks;
use crate::error::Refusal;
use crate::shared_state::SharedState;
use crate::store::Rows;
use crate::work::{Job, StopSpeed, TaskAction, TaskCommand};

/// Commands have numbers from the revision times this number, so they ascend over restarts.
const NUMBERS_PER_REVISION: u64 = 65_536;

impl Ledger {
    /// Sends a signal to running tasks. Returns their number. A runner of an older version takes no
    /// signals, so its tasks do not count.
    pub(super) fn signal_tasks(
        &mut self,
        request: &SignalTasks,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<u64, Refusal> {
        let FoundWork::Open(uuid) = self.find_changeable(&request.target)? else {
            return Ok(0);
        };
        let missing = || Refusal::NoSuchWork(request.target.id.clone());
        let work = self.works.get_mut(&uuid).ok_or_else(missing)?;
        let job = work.job_mut().ok_or_else(missing)?;
        let total = job.tasks.total();
        if let Some(task) = request.task.filter(|task| *task >= total) {
            let job = request.target.id.clone();
            return Err(Refusal::NoSuchTask { job, task, total });
        }
        let runs = signalled_runs(job, request.task);
        if batch.is_dry_run() || runs.is_empty() {
            return Ok(runs.len() as u64);
        }
        push(
            &self.shared,
            job,
            &runs,
            TaskAction::Signal(request.signal),
            moment,
        );
        let (signal, caller) = (request.signal, &request.target.caller);
        let event = match request.task {
            Some(task) => format!("{signal} sent to task {task} by {caller}"),
            None => format!("{signal} sent to {} running tasks by {caller}", runs.len()),
        };
        work.record_event(event, moment, batch);
        Ok(runs.len() as u64)
    }
}

/// Returns the running tasks of runners that take commands.
fn signalled_runs(job: &Job, task: Option<u64>) -> Vec<HeldTask> {
    let is_chosen = |number: u64| task.is_none_or(|task| task == number);
    let running = job.running_tasks();
    let running = running
        .filter(|(holder, running)| is_chosen(running.task) && job.commands.is_followed_by(holder));
    let held = running.map(|(holder, running)| HeldTask {
        holder: holder.clone(),
        task: running.task,
        attempt: job.tasks.attempt_of(holder, running.task),
    });
    held.collect()
}

/// Commands runners to stop runs.
pub(super) fn push_stops(
    shared: &SharedState,
    job: &mut Job,
    held: &[HeldTask],
    speed: StopSpeed,
    moment: &Moment,
) {
    push(shared, job, held, TaskAction::Stop(speed), moment);
}

fn push(
    shared: &SharedState,
    job: &mut Job,
    held: &[HeldTask],
    action: TaskAction,
    moment: &Moment,
) {
    let base = moment.revision.saturating_mul(NUMBERS_PER_REVISION);
    for held in held {
        let command = TaskCommand {
            task: held.task,
            attempt: held.attempt,
            action,
        };
        job.commands.push(&held.holder, command, base);
        shared.commands.notify(&held.holder, moment.revision);
    }
}
