//! Publications for rm-scheduler and agents.

use axum::extract::State;
use axum::response::Response;
use hayward_container_manager_api::{
    CONTAINERS, ContainerEntry, DESIRED, DesiredEntry, REQUESTS, RequestEntry,
};
use hayward_publication::Update;
use hayward_publication::endpoint::{SinceQuery, respond};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal_responses::ServicesOnly;
use hayward_service::{Caller, Path, Query};
use hayward_vocabulary::NodeName;

use super::Api;

/// Follow the containers.
#[utoipa::path(
    get, path = "/v1/containers/publication", operation_id = "follow_containers",
    tag = "publications", params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<ContainerEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_containers(
    State(api): State<Api>,
    caller: Caller,
    Query(since): Query<SinceQuery>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    respond(api.publisher(), CONTAINERS, "", &since, true).await
}

/// Follow the desired set of a node.
#[utoipa::path(
    get, path = "/v1/desired/{node}/publication", operation_id = "follow_desired",
    tag = "publications",
    params(
        ("node" = NodeName, Path, description = "an agent may follow only its own node"),
        SinceQuery,
    ),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<DesiredEntry>),
        (status = 403, description = "for the agent of that node, and services", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_desired(
    State(api): State<Api>,
    caller: Caller,
    Path(node): Path<NodeName>,
    Query(since): Query<SinceQuery>,
) -> Result<Response, Problem> {
    if caller.service().is_none() {
        caller.require_agent(&node)?;
    }
    respond(api.publisher(), DESIRED, node.as_str(), &since, true).await
}

/// Follow the requests for a second allocation of a process.
#[utoipa::path(
    get, path = "/v1/requests/publication", operation_id = "follow_requests",
    tag = "publications", params(SinceQuery),
    responses(
        (status = 200, description = "all entries, or the changes", body = Update<RequestEntry>),
        ServicesOnly,
    ),
)]
pub async fn follow_requests(
    State(api): State<Api>,
    caller: Caller,
    Query(since): Query<SinceQuery>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    respond(api.publisher(), REQUESTS, "", &since, true).await
}
