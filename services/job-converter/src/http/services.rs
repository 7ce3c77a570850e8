//! `/v1/services`: lists, shows and cancels services.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use hayward_job_converter_api::{WorkList, WorkView};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::Problem;
use hayward_vocabulary::{WorkId, WorkKind};

use super::App;
use super::headers::etag;
use super::work::{self, Filter, Wait};

/// Lists services by user, then by age.
#[utoipa::path(
    get, path = "/v1/services", operation_id = "list_services", tag = "services",
    params(Filter),
    responses(
        (status = 200, description = "a page", body = WorkList),
    ),
)]
pub async fn list_services(
    State(app): State<App>,
    caller: Caller,
    Query(filter): Query<Filter>,
) -> Result<Json<WorkList>, Problem> {
    work::list(&app, &caller, WorkKind::Service, &filter)
}

/// One service; with `wait`, as soon as it reaches a state.
#[utoipa::path(
    get, path = "/v1/services/{id}", operation_id = "show_service", tag = "services",
    params(("id" = WorkId, Path, description = "id of the service"), Wait),
    responses(
        (status = 200, description = "the service", body = WorkView,
            headers(("ETag" = String, description = "for If-Match"))),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_service(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(wait): Query<Wait>,
) -> Result<(HeaderMap, Json<WorkView>), Problem> {
    let Json(view) = work::show(&app, &caller, WorkKind::Service, id, &wait).await?;
    let version_tag = view.deployment.as_ref().map(|it| etag(it.generation));
    let headers = version_tag.map(|tag| (header::ETAG, tag));
    Ok((HeaderMap::from_iter(headers), Json(view)))
}

/// Cancels a service. Cancelling again, or cancelling an ended service, changes nothing.
#[utoipa::path(
    delete, path = "/v1/services/{id}", operation_id = "cancel_service", tag = "services",
    params(("id" = WorkId, Path, description = "id of the service"), DryRun),
    responses(
        (status = 200, description = "it has ended; with `dry_run`: the resulting \
            view", body = WorkView),
        (status = 202, description = "its processes are ending", body = WorkView),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn cancel_service(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(options): Query<DryRun>,
) -> Result<(StatusCode, HeaderMap, Json<WorkView>), Problem> {
    work::cancel(&app, &caller, WorkKind::Service, id, options.into()).await
}
