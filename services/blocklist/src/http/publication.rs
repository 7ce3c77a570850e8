//! `GET /v1/blocks/publication`, which rm-scheduler alone follows (D15).

use axum::extract::State;
use axum::response::Response;
use hayward_blocklist_api::{BLOCKS, BlockEntry};
use hayward_publication::{Update, endpoint};
use hayward_service::auth::Caller;
use hayward_service::extract::Query;
use hayward_service::problem::Problem;

use super::App;

/// What changed of the blocks since a cursor, or all of them.
#[utoipa::path(
    get, path = "/v1/blocks/publication", operation_id = "follow_blocks", tag = "publication",
    params(endpoint::Since),
    responses(
        (status = 200, description = "news, or nothing after the wait", body = Update<BlockEntry>),
        (status = 403, description = "not a service", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "not the leader", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_blocks(
    State(app): State<App>,
    caller: Caller,
    Query(since): Query<endpoint::Since>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    endpoint::answer(&app.publisher, BLOCKS, "", &since, true).await
}
