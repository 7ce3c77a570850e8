//! Views of tasks from rows and from the running tasks in memory.

use hayward_job_converter_api::tasks::{AttemptView, EndCause, NO_ALLOCATION, TaskState, TaskView};
use hayward_job_converter_api::usage::{RunUsage, UsageSource};
use hayward_job_converter_domain::DelayedTask;
use hayward_vocabulary::{AllocationId, BadName, NodeName, Timestamp};

use crate::command::RunningRun;
use crate::store::cancelled_tasks::UnrunRow;
use crate::store::tasks::{AttemptRow, OutcomeRow};
use crate::work::run_end::{RunFacts, describe_run_end};

/// Parses the node of a row. A runner may report before its allocation is observed.
fn parse_node(node: Option<&str>) -> Result<NodeName, BadName> {
    NodeName::new(node.unwrap_or("unknown"))
}

/// Columns of the usage of a run.
struct UsageFields<'a> {
    user_us: Option<i64>,
    system_us: Option<i64>,
    max_rss_bytes: Option<i64>,
    peak_memory_bytes: Option<i64>,
    source: Option<&'a str>,
}

impl UsageFields<'_> {
    fn to_view(&self) -> Option<RunUsage> {
        Some(RunUsage {
            user_us: self.user_us?.unsigned_abs(),
            system_us: self.system_us?.unsigned_abs(),
            max_rss_bytes: self.max_rss_bytes?.unsigned_abs(),
            peak_memory_bytes: self.peak_memory_bytes.map(i64::unsigned_abs),
            source: UsageSource::from_name(self.source?),
        })
    }
}

pub fn task_view(row: OutcomeRow) -> Result<TaskView, BadName> {
    let end = describe_run_end(&RunFacts {
        cause: row.end_cause.as_deref(),
        message: row.end_message.as_deref(),
        exit_code: row.exit_code,
        signal: row.signal,
        error: row.error.as_deref(),
    });
    let state = match end.cause {
        _ if row.succeeded => TaskState::Succeeded,
        EndCause::Cancelled => TaskState::Cancelled,
        _ => TaskState::Failed,
    };
    let usage = UsageFields {
        user_us: row.user_us,
        system_us: row.system_us,
        max_rss_bytes: row.max_rss_bytes,
        peak_memory_bytes: row.peak_memory_bytes,
        source: row.usage_source.as_deref(),
    };
    Ok(TaskView {
        usage: usage.to_view(),
        task: row.task.unsigned_abs(),
        state: Some(state),
        attempt: row.attempt.unsigned_abs(),
        succeeded: row.succeeded,
        exit_code: row.exit_code,
        signal: row.signal,
        error: row.error,
        duration_us: row.duration_us.unsigned_abs(),
        node: parse_node(row.node.as_deref())?,
        allocation: AllocationId::new(row.allocation)?,
        output: row.output,
        end: Some(end),
        started_at: None,
        run_ms: None,
        retry_in_ms: None,
    })
}

pub fn running_view(run: RunningRun) -> Result<TaskView, BadName> {
    Ok(TaskView {
        task: run.task,
        state: Some(TaskState::Running),
        attempt: run.attempt,
        succeeded: false,
        exit_code: None,
        signal: None,
        error: None,
        duration_us: 0,
        node: run.node.map_or_else(|| parse_node(None), Ok)?,
        allocation: run.allocation,
        output: String::new(),
        end: None,
        usage: None,
        started_at: Some(run.started_at),
        run_ms: Some(run.run_ms),
        retry_in_ms: None,
    })
}

pub fn attempt_view(row: AttemptRow) -> Result<AttemptView, BadName> {
    let end = describe_run_end(&RunFacts {
        cause: row.end_cause.as_deref(),
        message: row.end_message.as_deref(),
        exit_code: row.exit_code,
        signal: row.signal,
        error: row.error.as_deref(),
    });
    let usage = UsageFields {
        user_us: row.user_us,
        system_us: row.system_us,
        max_rss_bytes: row.max_rss_bytes,
        peak_memory_bytes: row.peak_memory_bytes,
        source: row.usage_source.as_deref(),
    };
    Ok(AttemptView {
        duration_us: row.duration_us.map(i64::unsigned_abs),
        usage: usage.to_view(),
        attempt: row.attempt.unsigned_abs(),
        exit_code: row.exit_code,
        signal: row.signal,
        error: row.error,
        node: parse_node(row.node.as_deref())?,
        allocation: AllocationId::new(row.allocation)?,
        ended_at: Timestamp::from_unix_ms(row.ended_at_ms),
        end,
    })
}

/// Returns the views of tasks that ended without a run, from a first task on.
pub fn unrun_views(
    spans: &[UnrunRow],
    first_task: i64,
) -> impl Iterator<Item = Result<TaskView, BadName>> {
    spans.iter().flat_map(move |row| {
        let tasks = row.first.max(first_task)..row.past;
        tasks.map(move |task| unrun_view(row, task))
    })
}

fn unrun_view(row: &UnrunRow, task: i64) -> Result<TaskView, BadName> {
    let end = describe_run_end(&RunFacts {
        cause: Some(&row.state),
        message: Some(&row.message),
        ..RunFacts::default()
    });
    Ok(TaskView {
        task: task.unsigned_abs(),
        state: Some(TaskState::Cancelled),
        attempt: 0,
        succeeded: false,
        exit_code: None,
        signal: None,
        error: None,
        duration_us: 0,
        node: parse_node(None)?,
        allocation: AllocationId::new(NO_ALLOCATION)?,
        output: String::new(),
        end: Some(end),
        usage: None,
        started_at: None,
        run_ms: None,
        retry_in_ms: None,
    })
}

pub fn delayed_view(delayed: DelayedTask) -> Result<TaskView, BadName> {
    Ok(TaskView {
        usage: None,
        task: delayed.task,
        state: Some(TaskState::Delayed),
        attempt: delayed.attempt,
        succeeded: false,
        exit_code: None,
        signal: None,
        error: None,
        duration_us: 0,
        node: parse_node(None)?,
        allocation: AllocationId::new(NO_ALLOCATION)?,
        output: String::new(),
        end: None,
        started_at: None,
        run_ms: None,
        retry_in_ms: Some(delayed.due_ms),
    })
}
