//! Routes of task runners, which lease tasks of a job and report their outcomes.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use hayward_job_converter_api::submission::{JobSubmission, Tasks};
use hayward_job_converter_api::tasks::{LeaseAnswer, LeaseRequest, LeasedTask, ReportRequest};
use hayward_job_converter_domain::Leased;
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::WorkId;

use super::App;
use super::headers::revision_headers;
use crate::command::{Command, LeaseGrant, LeaseTasks};
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
    let reads_terms = request.terms.is_some();
    let (grant, committed_revision) = lease(&app, &caller, job, request).await?;
    let tasks = match &grant.job {
        Some(job) => {
            let leased = grant.leased.iter();
            let tasks = leased.map(|leased| to_leased_task(job, *leased));
            if reads_terms {
                tasks.collect()
            } else {
                tasks.map(|task| to_older_task(job, task)).collect()
            }
        }
        None => Vec::new(),
    };
    let lease_ms = app.shared.settings.task_lease_ms;
    Ok((
        revision_headers(committed_revision),
        Json(LeaseAnswer {
            tasks,
            lease_ms,
            done: grant.done,
            terms: grant.terms,
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
        terms: None,
        terms_version: 0,
    };
    let (grant, committed_revision) = lease(&app, &caller, job, request).await?;
    let lease_ms = app.shared.settings.task_lease_ms;
    let answer = LeaseAnswer {
        tasks: Vec::new(),
        lease_ms,
        done: grant.done,
        terms: None,
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

/// Creates a leased task for a runner that has the terms of the job.
fn to_leased_task(job: &JobSubmission, Leased { task, attempt }: Leased) -> LeasedTask {
    let arguments = match &job.tasks {
        Tasks::Arguments(vectors) => usize::try_from(task)
            .ok()
            .and_then(|index| vectors.get(index))
            .cloned()
            .unwrap_or_default(),
        Tasks::Count(_) => Vec::new(),
    };
    LeasedTask {
        task,
        attempt,
        arguments,
        argv: Vec::new(),
        environment: BTreeMap::new(),
        working_directory: None,
    }
}

/// Adds to a task all that an older runner reads. Appended arguments stay unchanged: a file name
/// may look like a placeholder.
fn to_older_task(job: &JobSubmission, task: LeasedTask) -> LeasedTask {
    let mut argv = fill_placeholder(&job.command, "{task}", task.task);
    argv.extend(task.arguments);
    LeasedTask {
        task: task.task,
        attempt: task.attempt,
        arguments: Vec::new(),
        argv,
        environment: job.environment.clone(),
        working_directory: job.working_directory.clone(),
    }
}
