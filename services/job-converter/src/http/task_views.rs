//! Tasks of a job as users read them: running tasks, outcomes, failed attempts and outputs.

mod conversion;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use hayward_job_converter_api::tasks::{TaskHistory, TaskList, TaskState, TaskView};
use hayward_job_converter_domain::DelayedTask;
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{BadName, WorkId, WorkKind};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use self::conversion::{attempt_view, delayed_view, running_view, task_view, unrun_views};
use super::{App, work};
use crate::command::{Command, RunningRun, RunningTasksQuery};
use crate::store::cancelled_tasks::{UnrunPage, load_unrun_page};
use crate::store::tasks::{OutcomePage, OutcomeRow, load_attempts, load_outcome, load_outcomes};

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
    state: Option<TaskState>,
) -> Result<(Vec<OutcomeRow>, Option<String>), Problem> {
    let outcome_page = OutcomePage {
        job,
        first_task: page.first_task,
        state: state.map(TaskState::name),
        limit: page.limit + 1,
    };
    let loaded = load_outcomes(&app.pool, &outcome_page).await;
    let mut rows = loaded.map_err(unavailable)?;
    let next = page.split_next(&mut rows, |row| row.task.to_string());
    Ok((rows, next))
}

/// Returns a page of ended tasks by number, and the cursor of the next page. Some of them have no
/// run.
async fn list_ended(
    app: &App,
    job: Uuid,
    page: Page,
    state: Option<TaskState>,
) -> Result<(Vec<TaskView>, Option<String>), Problem> {
    let (rows, next_outcome) = list_outcomes(app, job, page, state).await?;
    let unrun_page = UnrunPage {
        job,
        first_task: page.first_task,
        state: state.map(TaskState::name),
        limit: page.limit + 1,
    };
    let loaded = load_unrun_page(&app.pool, &unrun_page).await;
    let spans = loaded.map_err(unavailable)?;
    let views = rows.into_iter().map(task_view).collect::<Result<_, _>>();
    let mut views: Vec<TaskView> = views.map_err(Problem::internal)?;
    let maximum = usize::try_from(page.limit + 1).unwrap_or(usize::MAX);
    let unrun = unrun_views(&spans, page.first_task).take(maximum);
    for view in unrun {
        views.push(view.map_err(Problem::internal)?);
    }
    // The outcomes may go on beyond their page, so no later task is shown.
    let end = next_outcome.and_then(|next| next.parse().ok());
    views.retain(|view| end.is_none_or(|end: u64| view.task < end));
    views.sort_by_key(|view| view.task);
    let next = views.get(maximum - 1).map(|view| view.task);
    views.truncate(maximum - 1);
    let next = next.or(end).map(|next| next.to_string());
    Ok((views, next))
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

/// Returns a page of delayed tasks by number, and the cursor of the next page.
async fn list_delayed(
    app: &App,
    job: Uuid,
    page: Page,
) -> Result<(Vec<TaskView>, Option<String>), Problem> {
    let query = RunningTasksQuery {
        job,
        first_task: page.first_task.unsigned_abs(),
        limit: usize::try_from(page.limit + 1).unwrap_or(usize::MAX),
    };
    let mut delayed = read_delayed(app, query).await?;
    let next = page.split_next(&mut delayed, |delayed| delayed.task.to_string());
    let views = delayed.into_iter().map(delayed_view);
    let views = views.collect::<Result<_, _>>().map_err(Problem::internal)?;
    Ok((views, next))
}

async fn read_delayed(app: &App, query: RunningTasksQuery) -> Result<Vec<DelayedTask>, Problem> {
    let read = app
        .handle
        .read(|reply| Command::DelayedTasks(query, reply))
        .await?;
    Ok(read.value)
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
    let (tasks, next_cursor) = match query.state {
        Some(TaskState::Running) => list_running(&app, uuid, page).await?,
        Some(TaskState::Delayed) => list_delayed(&app, uuid, page).await?,
        state => list_ended(&app, uuid, page, state).await?,
    };
    Ok(Json(TaskList {
        tasks,
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
    let delayed = read_delayed(&app, query).await?;
    let running = read_running(&app, query).await?;
    let outcome = load_outcome(&app.pool, uuid, row_task).await;
    let attempts = load_attempts(&app.pool, uuid, row_task).await;
    let current = match outcome.map_err(unavailable)? {
        Some(row) => Some(task_view(row)),
        None => read_unrun(&app, uuid, row_task).await?.or_else(|| {
            let delayed = delayed.into_iter().find(|delayed| delayed.task == task);
            let run = running.into_iter().find(|run| run.task == task);
            run.map(running_view).or(delayed.map(delayed_view))
        }),
    };
    let attempts = attempts.map_err(unavailable)?.into_iter();
    let attempts = attempts.map(attempt_view).collect::<Result<_, _>>();
    Ok(Json(TaskHistory {
        current: current.transpose().map_err(Problem::internal)?,
        attempts: attempts.map_err(Problem::internal)?,
    }))
}

/// Returns the view of a task that ended without a run.
async fn read_unrun(
    app: &App,
    job: Uuid,
    task: i64,
) -> Result<Option<Result<TaskView, BadName>>, Problem> {
    let page = UnrunPage {
        job,
        first_task: task,
        state: None,
        limit: 1,
    };
    let loaded = load_unrun_page(&app.pool, &page).await;
    let spans = loaded.map_err(unavailable)?;
    let is_task = |view: &Result<TaskView, BadName>| {
        view.as_ref()
            .is_ok_and(|view| view.task == task.unsigned_abs())
    };
    Ok(unrun_views(&spans, task).next().filter(is_task))
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
