//! `PUT /v1/nodes/{node}/identity`: selects the agent that represents a node (F28).

use axum::extract::State;
use axum::http::HeaderMap;
use hayward_node_status_api::{Identity, NodeEntry};
use hayward_service::http::extract::{DryRun, Json};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal_responses::NotOperator;
use hayward_vocabulary::NodeName;

use super::node_change_request::NodeChangeRequest;
use super::{App, NoNode, revision_header};
use crate::command::{Command, IdentifyNode};

/// Selects one of several agents with the same name; the others are refused from now on.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/identity", operation_id = "identify_node", tag = "nodes",
    params(
        ("node" = NodeName, Path, description = "name of the node"), DryRun,
        ("If-Match" = String, Header, description = "only if the node is as it was read; `*`: \
            whatever it is"),
    ),
    request_body = Identity,
    responses(
        (status = 200, description = "the node", body = NodeEntry,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NoNode,
        (status = 422, description = "no agent of that instance reports", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn identify_node(
    State(app): State<App>,
    request: NodeChangeRequest,
    Json(identity): Json<Identity>,
) -> Result<(HeaderMap, Json<NodeEntry>), Problem> {
    let expected = request.authorize()?;
    let by = request.by();
    let request = IdentifyNode {
        node: request.node,
        instance: identity.agent_instance,
        by,
    };
    let command = |reply| Command::Identify { request, reply };
    let done = app.handle.execute_if(expected, command).await?;
    Ok((revision_header(done.revision), Json(done.value?)))
}
