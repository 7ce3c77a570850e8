//! `/v1/nodes/{node}/drain`: draining a node.

use axum::extract::State;
use axum::http::HeaderMap;
use hayward_node_status_api::drain::{DrainRequest, DrainView};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{DryRun, Json, Path};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal_responses::NotOperator;
use hayward_vocabulary::NodeName;

use super::node_change_request::NodeChangeRequest;
use super::{App, NoNode, revision_header};
use crate::command::{Command, DrainNode};

/// State and progress of the last drain of a node, also after its end.
#[utoipa::path(
    get, path = "/v1/nodes/{node}/drain", operation_id = "show_drain", tag = "nodes",
    params(("node" = NodeName, Path, description = "name of the node")),
    responses(
        (status = 200, description = "the drain", body = DrainView),
        (status = 404, description = "unknown node, or it was never drained", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_drain(
    State(app): State<App>,
    _caller: Caller,
    Path(node): Path<NodeName>,
) -> Result<Json<DrainView>, Problem> {
    let show = |reply| Command::ShowDrain { node, reply };
    Ok(Json(app.handle.read(show).await?.value?))
}

/// Begins a drain, or changes the reason, the deadline or the pause of the active one. Repeating
/// the request changes nothing.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/drain", operation_id = "drain_node", tag = "nodes",
    params(
        ("node" = NodeName, Path, description = "name of the node"), DryRun,
        ("If-Match" = String, Header, description = "only if the node is as it was read; `*`: \
            whatever it is"),
    ),
    request_body = DrainRequest,
    responses(
        (status = 200, description = "the drain", body = DrainView,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NoNode,
        (status = 409, description = "too few nodes of its pool would be left", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "invalid reason or deadline",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn drain_node(
    State(app): State<App>,
    request: NodeChangeRequest,
    Json(drain): Json<DrainRequest>,
) -> Result<(HeaderMap, Json<DrainView>), Problem> {
    let expected = request.authorize()?;
    let by = request.by();
    let request = DrainNode {
        node: request.node,
        request: drain,
        by,
    };
    let command = |reply| Command::Drain { request, reply };
    let done = app.handle.execute_if(expected, command).await?;
    Ok((revision_header(done.revision), Json(done.value?)))
}

/// Cancels a drain, before or after the node is empty: the node takes work again.
#[utoipa::path(
    delete, path = "/v1/nodes/{node}/drain", operation_id = "cancel_drain", tag = "nodes",
    params(
        ("node" = NodeName, Path, description = "name of the node"), DryRun,
        ("If-Match" = String, Header, description = "only if the node is as it was read; `*`: \
            whatever it is"),
    ),
    responses(
        (status = 200, description = "the cancelled drain", body = DrainView,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator,
        (status = 404, description = "unknown node, or it is not being drained",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn cancel_drain(
    State(app): State<App>,
    request: NodeChangeRequest,
) -> Result<(HeaderMap, Json<DrainView>), Problem> {
    let expected = request.authorize()?;
    let by = request.by();
    let node = request.node;
    let command = |reply| Command::CancelDrain { node, by, reply };
    let done = app.handle.execute_if(expected, command).await?;
    Ok((revision_header(done.revision), Json(done.value?)))
}
