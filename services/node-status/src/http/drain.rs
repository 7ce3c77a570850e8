//! `/v1/nodes/{node}/drain`: emptying a machine as an operation that can be watched (W5).

use axum::extract::State;
use axum::http::HeaderMap;
use hayward_node_status_api::drain::{DrainRequest, DrainView};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{Json, Path, Query, Trial};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal::NotOperator;
use hayward_vocabulary::NodeName;

use super::{App, NoNode, if_match, revision};
use crate::command::Command;

/// How far the emptying of a node is; of the last drain, also when it is over.
#[utoipa::path(
    get, path = "/v1/nodes/{node}/drain", operation_id = "show_drain", tag = "nodes",
    params(("node" = NodeName, Path, description = "name of the node")),
    responses(
        (status = 200, description = "the drain", body = DrainView),
        (status = 404, description = "no such node, or it was never drained", body = Problem,
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

/// Begins to empty a node, or changes the drain that lasts: its reason, its deadline, a pause.
/// Saying the same again changes nothing.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/drain", operation_id = "drain_node", tag = "nodes",
    params(
        ("node" = NodeName, Path, description = "name of the node"), Trial,
        ("If-Match" = String, Header, description = "only if the node is as it was read; `*`: \
            whatever it is"),
    ),
    request_body = DrainRequest,
    responses(
        (status = 200, description = "the drain as it is now", body = DrainView,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NoNode,
        (status = 409, description = "too little of its pool would be left", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "a reason or a deadline that cannot be meant",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn drain_node(
    State(app): State<App>,
    (caller, headers): (Caller, HeaderMap),
    Path(node): Path<NodeName>,
    Query(Trial { .. }): Query<Trial>,
    Json(request): Json<DrainRequest>,
) -> Result<(HeaderMap, Json<DrainView>), Problem> {
    caller.require(&[Scope::Operator])?;
    let seen = if_match::seen(&headers, &node)?;
    let by = caller.name.clone();
    let done = app
        .handle
        .ask_if(seen, |reply| Command::Drain {
            node,
            request,
            by,
            reply,
        })
        .await?;
    Ok((revision(done.revision), Json(done.value?)))
}

/// Ends a drain, half-way or after it was empty: the node takes work again.
#[utoipa::path(
    delete, path = "/v1/nodes/{node}/drain", operation_id = "cancel_drain", tag = "nodes",
    params(
        ("node" = NodeName, Path, description = "name of the node"), Trial,
        ("If-Match" = String, Header, description = "only if the node is as it was read; `*`: \
            whatever it is"),
    ),
    responses(
        (status = 200, description = "the drain, cancelled", body = DrainView,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator,
        (status = 404, description = "no such node, or it is not being drained",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn cancel_drain(
    State(app): State<App>,
    (caller, headers): (Caller, HeaderMap),
    Path(node): Path<NodeName>,
    Query(Trial { .. }): Query<Trial>,
) -> Result<(HeaderMap, Json<DrainView>), Problem> {
    caller.require(&[Scope::Operator])?;
    let seen = if_match::seen(&headers, &node)?;
    let by = caller.name.clone();
    let cancel = |reply| Command::CancelDrain { node, by, reply };
    let done = app.handle.ask_if(seen, cancel).await?;
    Ok((revision(done.revision), Json(done.value?)))
}
