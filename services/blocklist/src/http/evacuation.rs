//! `/v1/blocklist/nodes/{id}/evacuation`: the progress of the evacuation of a node.

use axum::extract::State;
use hayward_blocklist_api::{BLOCKS, BlockAction, BlockEntry, BlockKind, EvacuationProgress};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path};
use hayward_service::http::problem::Problem;

use super::App;
use crate::view::{find_evacuation, to_progress};

/// Show the progress of the evacuation of a node.
#[utoipa::path(
    get, path = "/v1/blocklist/nodes/{id}/evacuation", operation_id = "show_evacuation",
    tag = "evidence",
    params(("id" = String, Path, description = "name of the node")),
    responses(
        (status = 200, description = "the progress", body = EvacuationProgress),
        (status = 404, description = "the node is not being evacuated", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_evacuation(
    State(app): State<App>,
    _caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<EvacuationProgress>, Problem> {
    app.publisher.readable()?;
    let key = BlockKind::Node.key(&id);
    let entry = app.publisher.get::<BlockEntry>(BLOCKS, "", &key);
    let is_evacuation = |entry: &BlockEntry| {
        entry.action == BlockAction::Evacuate && entry.is_in_force(app.clock.now())
    };
    let entry = entry.filter(is_evacuation);
    let entry = entry.ok_or_else(|| Problem::not_found(format!("an evacuation of {key}")))?;
    let evacuations = app.context.evacuations.read();
    Ok(Json(to_progress(find_evacuation(&entry, &evacuations))))
}
