//! Tasks of a job as users read them: running tasks, outcomes, failed attempts and outputs.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use hayward_job_converter_api::tasks::{AttemptView, TaskHistory, TaskList, TaskState, TaskView};
use hayward_job_converter_api::usage::{RunUsage, UsageSource};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{AllocationId, BadName, NodeName, Timestamp, WorkId, WorkKind};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{App, work};
use crate::command::{Command, RunningRun, RunningTasksQuery};
use crate::store::tasks::{
    AttemptRow, OutcomePage, OutcomeRow, load_attempts, load_outcome, load_outcomes,
};
use crate::work::run_end::{RunFacts, describe_run_end};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TaskListQuery {
    /// Only tasks in this state. Default: all with an outcome.
    #[param(required = false, nullable = false, inline)]
    state: Option<TaskState>,
    /// Tasks, at most. Default 100, maximum 1000.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the previous page, or the number of the first task.
    #[param(required = false, nullable = false, pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TaskPageQuery {
    /// Tasks, at most. Default 100, maximum 1000.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the previous page, or the number of the first task.
    #[param(required = false, nullable = false, pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
}

/// Range of tasks that a request lists.
#[derive(Debug, Clone, Copy)]
struct Page {
    first_task: i64,
    limit: i64,
}

impl Page {
    fn parse(limit: Option<i64>, cursor: Option<&str>) -> Result<Self, Problem> {
        let limit = limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            let problem = Problem::new(Code::BadRequest, "invalid page parameters");
            return Err(problem.at("/query/limit", "takes 1 to 1000"));
        }
        let first_task = match cursor.map(str::parse::<i64>) {
            None => 0,
            Some(Ok(first_task)) if first_task >= 0 => first_task,
            Some(_) => {
                let problem = Problem::new(Code::Invalid, "the cursor belongs to another list");
                return Err(problem.at("/query/cursor", "take it from `next_cursor`"));
            }
        };
        Ok(Self { first_task, limit })
    }

    /// Removes the entry beyond the limit, and returns its task as the cursor of the next page.
    fn split_next<T>(self, found: &mut Vec<T>, task: impl Fn(&T) -> String) -> Option<String> {
        let has_more = i64::try_from(found.len()).is_ok_and(|count| count > self.limit);
        let next = if has_more { found.pop() } else { None };
        next.as_ref().map(task)
    }
}

fn unavailable(error: sqlx::Error) -> Problem {
    Problem::unavailable("the outcomes cannot be read now", error)
}

/// Returns a page of outcomes by task number, and the cursor of the next page.
async fn list_outcomes(
    app: &App,
    job: Uuid,
    page: Page,
    succeeded: Option<bool>,
) -> Result<(Vec<OutcomeRow>, Option<String>), Problem> {
    let outcome_page = OutcomePage {
        job,
        first_task: page.first_task,
        succeeded,
        limit: page.limit + 1,
    };
    let loaded = load_outcomes(&app.pool, &outcome_page).await;
    let mut rows = loaded.map_err(unavailable)?;
    let next = page.split_next(&mut rows, |row| row.task.to_string());
    Ok((rows, next))
}

/// Returns a page of running tasks by number, and the cursor of the next page.
async fn list_running(
    app: &App,
    job: Uuid,
    page: Page,
) -> Result<(Vec<TaskView>, Option<String>), Problem> {
    let query = RunningTasksQuery {
        job,
        first_task: page.first_task.unsigned_abs(),
        limit: usize::try_from(page.limit + 1).unwrap_or(usize::MAX),
    };
    let mut running = read_running(app, query).await?;
    let next = page.split_next(&mut running, |run| run.task.to_string());
    let views = running.into_iter().map(running_view);
    let views = views.collect::<Result<_, _>>().map_err(Problem::internal)?;
    Ok((views, next))
}

async fn read_running(app: &App, query: RunningTasksQuery) -> Result<Vec<RunningRun>, Problem> {
    let read = app
        .handle
        .read(|reply| Command::RunningTasks(query, reply))
        .await?;
    Ok(read.value)
}

/// Lists tasks by number: those with an outcome, or those in one state.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/tasks", operation_id = "list_tasks", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job"), TaskListQuery),
    responses(
        (status = 200, description = "a page of tasks", body = TaskList),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "the outcomes cannot be read now", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn list_tasks(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(query): Query<TaskListQuery>,
) -> Result<Json<TaskList>, Problem> {
    let revision = app.publisher.revision();
    let page = Page::parse(query.limit, query.cursor.as_deref())?;
    app.publisher.readable()?;
    let (uuid, _) = work::find_readable(&app, &caller, WorkKind::Job, &id)?;
    let succeeded = match query.state {
        Some(TaskState::Running) => {
            let (tasks, next_cursor) = list_running(&app, uuid, page).await?;
            return Ok(Json(TaskList {
                tasks,
                next_cursor,
                revision,
            }));
        }
        Some(TaskState::Succeeded) => Some(true),
        Some(TaskState::Failed) => Some(false),
        None => None,
    };
    let (rows, next_cursor) = list_outcomes(&app, uuid, page, succeeded).await?;
    let views = rows.into_iter().map(task_view);
    Ok(Json(TaskList {
        tasks: views.collect::<Result<_, _>>().map_err(Problem::internal)?,
        next_cursor,
        revision,
    }))
}

/// One task, with its failed attempts.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/tasks/{task}", operation_id = "show_job_task", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job"),
           ("task" = u64, Path, description = "number of the task, from 0")),
    responses(
        (status = 200, description = "the task", body = TaskHistory),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "the outcomes cannot be read now", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_job_task(
    State(app): State<App>,
    caller: Caller,
    Path((id, task)): Path<(WorkId, u64)>,
) -> Result<Json<TaskHistory>, Problem> {
    app.publisher.readable()?;
    let (uuid, user) = work::find_readable(&app, &caller, WorkKind::Job, &id)?;
    let counts = work::read_view(&app, &user, &id)?.tasks;
    let missing = || Problem::not_found(format_args!("task {task} of {id}"));
    if task >= counts.map_or(0, |counts| counts.total) {
        return Err(missing());
    }
    let row_task = i64::try_from(task).map_err(|_| missing())?;
    // The outcome is read last, so a task that ends in between is not missed.
    let query = RunningTasksQuery {
        job: uuid,
        first_task: task,
        limit: 1,
    };
    let running = read_running(&app, query).await?;
    let outcome = load_outcome(&app.pool, uuid, row_task).await;
    let attempts = load_attempts(&app.pool, uuid, row_task).await;
    let current = match outcome.map_err(unavailable)? {
        Some(row) => Some(task_view(row)),
        None => running
            .into_iter()
            .find(|run| run.task == task)
            .map(running_view),
    };
    let attempts = attempts.map_err(unavailable)?.into_iter();
    let attempts = attempts.map(attempt_view).collect::<Result<_, _>>();
    Ok(Json(TaskHistory {
        current: current.transpose().map_err(Problem::internal)?,
        attempts: attempts.map_err(Problem::internal)?,
    }))
}

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

fn task_view(row: OutcomeRow) -> Result<TaskView, BadName> {
    let end = describe_run_end(&RunFacts {
        cause: row.end_cause.as_deref(),
        message: row.end_message.as_deref(),
        exit_code: row.exit_code,
        signal: row.signal,
        error: row.error.as_deref(),
    });
    let state = if row.succeeded {
        TaskState::Succeeded
    } else {
        TaskState::Failed
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
    })
}

fn running_view(run: RunningRun) -> Result<TaskView, BadName> {
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
    })
}

fn attempt_view(row: AttemptRow) -> Result<AttemptView, BadName> {
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

/// Outputs of the tasks of a job, by task number.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/logs", operation_id = "read_logs", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job"), TaskPageQuery),
    responses(
        (status = 200, description = "the outputs, one after the other", body = String,
            content_type = "text/plain",
            headers(("Hayward-Next-Cursor" = String, description = "cursor of the next page"))),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "the outcomes cannot be read now", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn read_logs(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(query): Query<TaskPageQuery>,
) -> Result<(HeaderMap, String), Problem> {
    let page = Page::parse(query.limit, query.cursor.as_deref())?;
    app.publisher.readable()?;
    let (uuid, _) = work::find_readable(&app, &caller, WorkKind::Job, &id)?;
    let (rows, next) = list_outcomes(&app, uuid, page, None).await?;
    let mut text = String::new();
    for row in rows {
        text.push_str(&row.output);
        if !row.output.is_empty() && !row.output.ends_with('\n') {
            text.push('\n');
        }
    }
    let mut headers = HeaderMap::new();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain);
    if let Some(next) = next.and_then(|next| HeaderValue::try_from(next).ok()) {
        headers.insert(HeaderName::from_static("hayward-next-cursor"), next);
    }
    Ok((headers, text))
}
