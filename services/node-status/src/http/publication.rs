//! `GET /v1/nodes/publication`, which rm-scheduler follows.

use axum::extract::State;
use axum::response::Response;
use hayward_node_status_api::{NODES, NodeEntry};
use hayward_publication::Update;
use hayward_publication::endpoint::{Reader, SinceQuery};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal_responses::NotAService;

use super::App;

/// Changes of the publication since a cursor, or all entries.
#[utoipa::path(
    get, path = "/v1/nodes/publication", operation_id = "follow_nodes", tag = "publication",
    params(SinceQuery),
    responses(
        (status = 200, description = "changes, or none after the wait", body = Update<NodeEntry>),
        NotAService,
    ),
)]
pub async fn follow_nodes(State(app): State<App>, reader: Reader) -> Result<Response, Problem> {
    reader.follow(&app.publisher, NODES).await
}
