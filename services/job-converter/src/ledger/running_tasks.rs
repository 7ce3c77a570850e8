//! Reads the tasks that run now. Runners report them, and no row stores them.

use std::collections::BTreeMap;

use hayward_job_converter_domain::RunningTask;
use hayward_publication::committer::Moment;
use hayward_vocabulary::{AllocationId, Timestamp};

use super::Ledger;
use crate::command::{RunningRun, RunningTasksQuery};
use crate::work::Work;

impl Ledger {
    /// Returns the running tasks of a job by number. Work that has ended runs none.
    pub(super) fn running_tasks(
        &self,
        query: RunningTasksQuery,
        moment: &Moment,
    ) -> Vec<RunningRun> {
        let Some(work) = self.works.get(&query.job) else {
            return Vec::new();
        };
        let Some(job) = work.job() else {
            return Vec::new();
        };
        let by_task: BTreeMap<u64, (&AllocationId, RunningTask)> = job
            .running_tasks()
            .filter(|(_, running)| running.task >= query.first_task)
            .map(|(holder, running)| (running.task, (holder, running)))
            .collect();
        by_task
            .into_values()
            .take(query.limit)
            .map(|(holder, running)| running_run(work, holder, running, moment.now))
            .collect()
    }
}

fn running_run(
    work: &Work,
    holder: &AllocationId,
    running: RunningTask,
    now: Timestamp,
) -> RunningRun {
    let started_at = Timestamp::from_unix_ms(running.started_at_ms);
    RunningRun {
        task: running.task,
        attempt: work
            .job()
            .map_or(1, |job| job.tasks.attempt_of(holder, running.task)),
        node: work.node_of(holder).cloned(),
        allocation: holder.clone(),
        started_at,
        run_ms: now.ms_since(started_at),
    }
}
