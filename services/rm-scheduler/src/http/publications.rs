//! Handlers of the publications that neighbours follow by long poll.

use axum::extract::State;
use axum::response::Response;
use hayward_publication::Update;
use hayward_publication::endpoint::{Reader, SinceQuery};
use hayward_rm_scheduler_api::node_publications::{
    CLEARINGS, ClearingEntry, FAILURES, FactEntry, MACHINES, MachineEntry,
};
use hayward_rm_scheduler_api::{
    ALLOCATIONS, AllocationEntry, CLOSED, ClosedEntry, PROCESSORS, ProcessorEntry, VERDICTS,
    VerdictEntry,
};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal_responses::ServicesOnly;

use super::Api;

/// Follows the allocations.
#[utoipa::path(
    get, path = "/v1/allocations/publication", operation_id = "follow_allocations",
    tag = "publications", params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes",
            body = Update<AllocationEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_allocations(
    State(api): State<Api>,
    reader: Reader,
) -> Result<Response, Problem> {
    reader.follow(api.publisher(), ALLOCATIONS).await
}

/// Follows the verdicts, which explain why work waits.
#[utoipa::path(
    get, path = "/v1/verdicts/publication", operation_id = "follow_verdicts",
    tag = "publications", params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<VerdictEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_verdicts(State(api): State<Api>, reader: Reader) -> Result<Response, Problem> {
    reader.follow(api.publisher(), VERDICTS).await
}

/// Follows the facts about nodes: results of attempts and times of silence.
#[utoipa::path(
    get, path = "/v1/failures/publication", operation_id = "follow_failures", tag = "publications",
    params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<FactEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_failures(State(api): State<Api>, reader: Reader) -> Result<Response, Problem> {
    reader.follow(api.publisher(), FAILURES).await
}

/// Follows the list of nodes, which blocklist needs to limit automatic blocks.
#[utoipa::path(
    get, path = "/v1/machines/publication", operation_id = "follow_machines", tag = "publications",
    params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<MachineEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_machines(State(api): State<Api>, reader: Reader) -> Result<Response, Problem> {
    reader.follow(api.publisher(), MACHINES).await
}

/// Follows the progress of evacuations of nodes and workers.
#[utoipa::path(
    get, path = "/v1/clearings/publication", operation_id = "follow_clearings",
    tag = "publications", params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<ClearingEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_clearings(State(api): State<Api>, reader: Reader) -> Result<Response, Problem> {
    reader.follow(api.publisher(), CLEARINGS).await
}

/// Follows the processes that services should have.
#[utoipa::path(
    get, path = "/v1/processors/publication", operation_id = "follow_processors",
    tag = "publications", params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<ProcessorEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_processors(
    State(api): State<Api>,
    reader: Reader,
) -> Result<Response, Problem> {
    reader.follow(api.publisher(), PROCESSORS).await
}

/// Follows the nodes that take no new work, or none of one job or service.
#[utoipa::path(
    get, path = "/v1/closed/publication", operation_id = "follow_closed", tag = "publications",
    params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<ClosedEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_closed(State(api): State<Api>, reader: Reader) -> Result<Response, Problem> {
    reader.follow(api.publisher(), CLOSED).await
}
