//! `GET /v1/blocks/publication`, which only rm-scheduler follows (D15).

use axum::extract::State;
use axum::response::Response;
use hayward_blocklist_api::{BLOCKS, BlockEntry};
use hayward_publication::Update;
use hayward_publication::endpoint::{Reader, SinceQuery};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal_responses::NotAService;

use super::App;

/// Follow the blocks: the changes of the publication since a cursor, or all entries.
#[utoipa::path(
    get, path = "/v1/blocks/publication", operation_id = "follow_blocks", tag = "publication",
    params(SinceQuery),
    responses(
        (status = 200, description = "changes, or none after the wait", body = Update<BlockEntry>),
        NotAService,
    ),
)]
pub async fn follow_blocks(State(app): State<App>, reader: Reader) -> Result<Response, Problem> {
    reader.follow(&app.publisher, BLOCKS).await
}
