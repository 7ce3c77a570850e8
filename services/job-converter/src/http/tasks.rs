//! Tasks of a job. Task runners lease tasks and report their outcomes, and users read the outcomes
//! and outputs.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use hayward_job_converter_api::submission::{JobSubmission, Tasks};
use hayward_job_converter_api::tasks::{
    LeaseAnswer, LeaseRequest, LeasedTask, ReportRequest, TaskList, TaskView,
};
use hayward_job_converter_domain::Leased;
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{AllocationId, NodeName, WorkId, WorkKind};
use serde::Deserialize;
use utoipa::IntoParams;

use super::headers::revision_headers;
use super::{App, work};
use crate::command::Command;
use crate::command::{LeaseGrant, LeaseTasks};
use crate::store::tasks::{OutcomeRow, load_outcomes};
use crate::work::parse_work_id;
use crate::work::published_entries::fill_placeholder;

/// Maximum time in milliseconds that a request waits for tasks.
const MAX_WAIT_MS: u64 = 25_000;
/// Time in milliseconds after which a process ends whose slots are all idle, while nothing of its
/// job waits (TC-8).
const IDLE_END_MS: u64 = 1_000;
/// Maximum number of reports in one request.
const MAX_REPORTS: usize = 10_000;

/// Reports finished tasks, renews the lease and leases more tasks.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/tasks/leases", operation_id = "lease_tasks", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job")),
    request_body = LeaseRequest,
    responses(
        (status = 200, description = "all reports are recorded; the leased tasks",
            body = LeaseAnswer),
        (status = 403, description = "a token for another job", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "no such job", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "the job has no such task", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn lease_tasks(
    State(app): State<App>,
    caller: Caller,
    Path(job): Path<WorkId>,
    Json(request): Json<LeaseRequest>,
) -> Result<(HeaderMap, Json<LeaseAnswer>), Problem> {
    let (grant, committed_revision) = lease(&app, &caller, job, request).await?;
    let tasks = match &grant.job {
        Some(job) => grant
            .leased
            .iter()
            .map(|leased| to_leased_task(job, *leased))
            .collect(),
        None => Vec::new(),
    };
    let lease_ms = app.shared.settings.task_lease_ms;
    Ok((
        revision_headers(committed_revision),
        Json(LeaseAnswer {
            tasks,
            lease_ms,
            done: grant.done,
        }),
    ))
}

/// Reports finished tasks.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/tasks/reports", operation_id = "report_tasks", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job")),
    request_body = ReportRequest,
    responses(
        (status = 200, description = "all reports are recorded", body = LeaseAnswer),
        (status = 403, description = "a token for another job", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "no such job", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "the job has no such task", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn report_tasks(
    State(app): State<App>,
    caller: Caller,
    Path(job): Path<WorkId>,
    Json(ReportRequest {
        allocation,
        finished,
    }): Json<ReportRequest>,
) -> Result<(HeaderMap, Json<LeaseAnswer>), Problem> {
    let request = LeaseRequest {
        allocation,
        finished,
        want: 0,
        returned: Vec::new(),
        slots: None,
        idle: 0,
        running: Vec::new(),
        request: 0,
        held: None,
        wait_ms: 0,
    };
    let (grant, committed_revision) = lease(&app, &caller, job, request).await?;
    let lease_ms = app.shared.settings.task_lease_ms;
    let answer = LeaseAnswer {
        tasks: Vec::new(),
        lease_ms,
        done: grant.done,
    };
    Ok((revision_headers(committed_revision), Json(answer)))
}

/// Sends the request, and repeats the lease until there are tasks or the wait is over. Only the
/// first request carries reports.
async fn lease(
    app: &App,
    caller: &Caller,
    job: WorkId,
    mut request: LeaseRequest,
) -> Result<(LeaseGrant, u64), Problem> {
    let runner = caller
        .runner()
        .cloned()
        .ok_or_else(|| Problem::forbidden("only task runners of a job may do this"))?;
    let (_, uuid, _) = parse_work_id(&job).ok_or_else(|| Problem::not_found(&job))?;
    if request.finished.len() > MAX_REPORTS {
        let detail = format!("more than {MAX_REPORTS} reports");
        return Err(Problem::new(Code::Invalid, "too much at once").at("/finished", detail));
    }
    // A request that does not wait only reports.
    let is_idle_runner = request.wait_ms >= IDLE_END_MS
        && request
            .slots
            .is_some_and(|slots| slots > 0 && request.idle >= slots);
    let max_wait_ms = if is_idle_runner {
        IDLE_END_MS
    } else {
        MAX_WAIT_MS
    };
    let wait = Duration::from_millis(request.wait_ms.min(max_wait_ms));
    let deadline = tokio::time::Instant::now() + wait;
    let mut changes = app.shared.tasks.subscribe(uuid);
    let mut is_over = false;
    loop {
        let next_request = LeaseRequest {
            finished: Vec::new(),
            returned: Vec::new(),
            ..request.clone()
        };
        let lease = Box::new(LeaseTasks {
            job: job.clone(),
            runner: runner.clone(),
            request,
            ends_idle_runner: is_over && is_idle_runner,
        });
        let committed = app
            .handle
            .execute(|reply| Command::Lease(lease, reply))
            .await?;
        let grant = committed.value?;
        let is_done = grant.done || !grant.leased.is_empty() || next_request.want == 0;
        if is_done || is_over {
            return Ok((grant, committed.revision));
        }
        let change = tokio::time::timeout_at(deadline, changes.changed()).await;
        is_over = change.is_err();
        if is_over && !is_idle_runner {
            return Ok((grant, committed.revision));
        }
        request = next_request;
    }
}

/// Fills in the placeholders of a task's command. Appended arguments stay unchanged: a file name
/// may look like a placeholder.
fn to_leased_task(job: &JobSubmission, Leased { task, attempt }: Leased) -> LeasedTask {
    let mut argv = fill_placeholder(&job.command, "{task}", task);
    if let Tasks::Arguments(vectors) = &job.tasks {
        let arguments = usize::try_from(task)
            .ok()
            .and_then(|index| vectors.get(index));
        argv.extend(arguments.into_iter().flatten().cloned());
    }
    LeasedTask {
        task,
        attempt,
        argv,
        environment: job.environment.clone(),
        working_directory: job.working_directory.clone(),
    }
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

/// Returns a page of outcomes by task number, and the cursor of the next page.
async fn load_page(
    app: &App,
    caller: &Caller,
    id: &WorkId,
    page: &TaskPageQuery,
) -> Result<(Vec<OutcomeRow>, Option<String>), Problem> {
    let invalid_field = |field: &str, detail: &str| {
        Problem::new(Code::BadRequest, "invalid page parameters")
            .at(format!("/query/{field}"), detail)
    };
    let limit = page.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(invalid_field("limit", "takes 1 to 1000"));
    }
    let first_task = match page.cursor.as_deref().map(str::parse::<i64>) {
        None => 0,
        Some(Ok(first_task)) if first_task >= 0 => first_task,
        Some(_) => {
            let problem = Problem::new(Code::Invalid, "the cursor belongs to another list");
            return Err(problem.at("/query/cursor", "take it from `next_cursor`"));
        }
    };
    app.publisher.readable()?;
    let (uuid, _) = work::find_readable(app, caller, WorkKind::Job, id)?;
    let unavailable = |error| Problem::unavailable("the outcomes cannot be read now", error);
    let mut rows = load_outcomes(&app.pool, uuid, first_task, limit + 1)
        .await
        .map_err(unavailable)?;
    let has_more = i64::try_from(rows.len()).is_ok_and(|found| found > limit);
    let next = if has_more {
        rows.pop().map(|row| row.task.to_string())
    } else {
        None
    };
    Ok((rows, next))
}

/// Lists tasks with an outcome, by number.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/tasks", operation_id = "list_tasks", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job"), TaskPageQuery),
    responses(
        (status = 200, description = "a page of outcomes", body = TaskList),
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
    Query(query): Query<TaskPageQuery>,
) -> Result<Json<TaskList>, Problem> {
    let revision = app.publisher.revision();
    let (rows, next_cursor) = load_page(&app, &caller, &id, &query).await?;
    let tasks = rows
        .into_iter()
        .map(task_view)
        .collect::<Result<_, _>>()
        .map_err(Problem::internal)?;
    Ok(Json(TaskList {
        tasks,
        next_cursor,
        revision,
    }))
}

fn task_view(row: OutcomeRow) -> Result<TaskView, hayward_vocabulary::BadName> {
    Ok(TaskView {
        task: row.task.unsigned_abs(),
        attempt: row.attempt.unsigned_abs(),
        succeeded: row.succeeded,
        exit_code: row.exit_code,
        signal: row.signal,
        error: row.error,
        duration_us: row.duration_us.unsigned_abs(),
        // A runner may report before its allocation is observed.
        node: NodeName::new(row.node.as_deref().unwrap_or("unknown"))?,
        allocation: AllocationId::new(row.allocation)?,
        output: row.output,
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
    let (rows, next) = load_page(&app, &caller, &id, &query).await?;
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
