//! `/v1/reservations`: lists, shows and cancels reservations.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_job_converter_api::{WorkList, WorkView};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::Problem;
use hayward_vocabulary::{WorkId, WorkKind};

use super::App;
use super::work::{self, Filter, Wait};

/// Lists reservations by user, then by age.
#[utoipa::path(
    get, path = "/v1/reservations", operation_id = "list_reservations", tag = "reservations",
    params(Filter),
    responses(
        (status = 200, description = "a page", body = WorkList),
    ),
)]
pub async fn list_reservations(
    State(app): State<App>,
    caller: Caller,
    Query(filter): Query<Filter>,
) -> Result<Json<WorkList>, Problem> {
    work::list(&app, &caller, WorkKind::Reservation, &filter)
}

/// One reservation; with `wait`, as soon as it reaches a state.
#[utoipa::path(
    get, path = "/v1/reservations/{id}", operation_id = "show_reservation", tag = "reservations",
    params(("id" = WorkId, Path, description = "id of the reservation"), Wait),
    responses(
        (status = 200, description = "the reservation", body = WorkView),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_reservation(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(wait): Query<Wait>,
) -> Result<Json<WorkView>, Problem> {
    work::show(&app, &caller, WorkKind::Reservation, id, &wait).await
}

/// Cancels a reservation. Cancelling again, or cancelling an ended reservation, changes nothing.
#[utoipa::path(
    delete, path = "/v1/reservations/{id}", operation_id = "cancel_reservation",
    tag = "reservations",
    params(("id" = WorkId, Path, description = "id of the reservation"), DryRun),
    responses(
        (status = 200, description = "it has ended; with `dry_run`: the resulting \
            view", body = WorkView),
        (status = 202, description = "its processes are ending", body = WorkView),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn cancel_reservation(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(options): Query<DryRun>,
) -> Result<(StatusCode, HeaderMap, Json<WorkView>), Problem> {
    work::cancel(&app, &caller, WorkKind::Reservation, id, options.into()).await
}
