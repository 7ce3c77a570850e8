//! `/v1/jobs`: lists, shows and cancels jobs.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_job_converter_api::{WorkList, WorkView};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path, Query};
use hayward_service::http::problem::Problem;
use hayward_vocabulary::{WorkId, WorkKind};

use super::App;
use super::work::{self, CancelOptions, Filter, Wait};

/// Lists jobs by user, then by age.
#[utoipa::path(
    get, path = "/v1/jobs", operation_id = "list_jobs", tag = "jobs",
    params(Filter),
    responses(
        (status = 200, description = "a page", body = WorkList),
    ),
)]
pub async fn list_jobs(
    State(app): State<App>,
    caller: Caller,
    Query(filter): Query<Filter>,
) -> Result<Json<WorkList>, Problem> {
    work::list(&app, &caller, WorkKind::Job, &filter)
}

/// One job; with `wait`, as soon as it reaches a state.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", operation_id = "show_job", tag = "jobs",
    params(("id" = WorkId, Path, description = "id of the job"), Wait),
    responses(
        (status = 200, description = "the job", body = WorkView),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_job(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(wait): Query<Wait>,
) -> Result<Json<WorkView>, Problem> {
    work::show(&app, &caller, WorkKind::Job, id, &wait).await
}

/// Cancels a job. Cancelling again, or cancelling an ended job, changes nothing.
#[utoipa::path(
    delete, path = "/v1/jobs/{id}", operation_id = "cancel_job", tag = "jobs",
    params(("id" = WorkId, Path, description = "id of the job"), CancelOptions),
    responses(
        (status = 200, description = "it has ended; with `dry_run`: the resulting \
            view", body = WorkView),
        (status = 202, description = "its processes are ending", body = WorkView),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn cancel_job(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(options): Query<CancelOptions>,
) -> Result<(StatusCode, HeaderMap, Json<WorkView>), Problem> {
    work::cancel(&app, &caller, WorkKind::Job, id, options).await
}
