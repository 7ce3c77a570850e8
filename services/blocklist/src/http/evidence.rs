//! `/v1/blocklist/nodes/{id}/evidence`: the failures that count against a node.

use axum::extract::State;
use hayward_blocklist_api::Evidence;
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path};
use hayward_service::http::problem::Problem;

use super::App;
use crate::command::Command;

/// Show the evidence against a node: its facts, its score under each rule of the strategy, its
/// cost, its item, and the brake that prevents a block.
#[utoipa::path(
    get, path = "/v1/blocklist/nodes/{id}/evidence", operation_id = "show_evidence",
    tag = "evidence",
    params(("id" = String, Path, description = "name of the node")),
    responses(
        (status = 200, description = "the evidence", body = Evidence),
        (status = 404, description = "unknown node", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_evidence(
    State(app): State<App>,
    _caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Evidence>, Problem> {
    let node = id.clone();
    let evidence = app
        .handle
        .execute(|reply| Command::ShowEvidence { node, reply })
        .await?;
    let evidence = evidence.value.map(Json);
    evidence.ok_or_else(|| Problem::not_found(format!("node {id}")))
}
