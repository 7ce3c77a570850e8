//! What neighbours follow.

use axum::extract::State;
use axum::response::Response;
use hayward_publication::Update;
use hayward_publication::endpoint::{Since, answer};
use hayward_rm_scheduler_api::evidence::{
    CLEARINGS, ClearingEntry, FAILURES, FactEntry, MACHINES, MachineEntry,
};
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, VERDICTS, VerdictEntry};
use hayward_service::problem::Problem;
use hayward_service::{Caller, Query};

use super::Api;

/// Follow the allocations.
#[utoipa::path(
    get, path = "/v1/allocations/publication", operation_id = "follow_allocations",
    tag = "publications", params(Since),
    responses(
        (status = 200, description = "everything, or what changed",
            body = Update<AllocationEntry>),
        (status = 400, description = "not readable", body = Problem,
            content_type = "application/problem+json"),
        (status = 401, description = "no acceptable token", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "for services only", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_allocations(
    State(api): State<Api>,
    caller: Caller,
    Query(since): Query<Since>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    answer(api.publisher(), ALLOCATIONS, "", &since, true).await
}

/// Follow the verdicts: why work waits.
#[utoipa::path(
    get, path = "/v1/verdicts/publication", operation_id = "follow_verdicts",
    tag = "publications", params(Since),
    responses(
        (status = 200, description = "everything, or what changed", body = Update<VerdictEntry>),
        (status = 400, description = "not readable", body = Problem,
            content_type = "application/problem+json"),
        (status = 401, description = "no acceptable token", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "for services only", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_verdicts(
    State(api): State<Api>,
    caller: Caller,
    Query(since): Query<Since>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    answer(api.publisher(), VERDICTS, "", &since, true).await
}

/// Follow what is told of machines: how attempts fared on them, and their silence.
#[utoipa::path(
    get, path = "/v1/failures/publication", operation_id = "follow_failures", tag = "publications",
    params(Since),
    responses(
        (status = 200, description = "everything, or what changed", body = Update<FactEntry>),
        (status = 400, description = "not readable", body = Problem,
            content_type = "application/problem+json"),
        (status = 401, description = "no acceptable token", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "for services only", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_failures(
    State(api): State<Api>,
    caller: Caller,
    Query(since): Query<Since>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    answer(api.publisher(), FAILURES, "", &since, true).await
}

/// Follow the machines that brakes count over.
#[utoipa::path(
    get, path = "/v1/machines/publication", operation_id = "follow_machines", tag = "publications",
    params(Since),
    responses(
        (status = 200, description = "everything, or what changed", body = Update<MachineEntry>),
        (status = 400, description = "not readable", body = Problem,
            content_type = "application/problem+json"),
        (status = 401, description = "no acceptable token", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "for services only", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_machines(
    State(api): State<Api>,
    caller: Caller,
    Query(since): Query<Since>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    answer(api.publisher(), MACHINES, "", &since, true).await
}

/// Follow how far the emptying of machines and workers is.
#[utoipa::path(
    get, path = "/v1/clearings/publication", operation_id = "follow_clearings",
    tag = "publications", params(Since),
    responses(
        (status = 200, description = "everything, or what changed", body = Update<ClearingEntry>),
        (status = 400, description = "not readable", body = Problem,
            content_type = "application/problem+json"),
        (status = 401, description = "no acceptable token", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "for services only", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_clearings(
    State(api): State<Api>,
    caller: Caller,
    Query(since): Query<Since>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    answer(api.publisher(), CLEARINGS, "", &since, true).await
}
