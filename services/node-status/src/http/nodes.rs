//! `/v1/nodes`: reading, varying off and removing nodes.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_node_status_api::{
    LeaseView, NODES, Next, NodeEntry, NodeHistory, NodeList, NodeView, Schedulable,
};
use hayward_node_status_domain::{Due, lease_forecast};
use hayward_service::Listing;
use hayward_service::auth::Caller;
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::pagination;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::http::refusal_responses::NotOperator;
use hayward_vocabulary::NodeName;
use serde::Deserialize;
use utoipa::IntoParams;

use super::node_change_request::NodeChangeRequest;
use super::{App, NoNode, if_match, revision_header};
use crate::command::{Command, VaryNode};
use crate::store;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Maximum number of entries of a page: 100 when absent, at most 1000.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    #[param(required = false, nullable = false)]
    cursor: Option<String>,
}

impl PageQuery {
    fn limit(&self) -> Result<usize, Problem> {
        pagination::limit(self.limit, pagination::DEFAULT_LIMIT)
    }
}

/// Returns a node with its current metrics and details.
fn to_node_view(app: &App, entry: NodeEntry) -> NodeView {
    let heartbeats = &app.context.heartbeats;
    let heartbeat = heartbeats.get(entry.node.as_str()).unwrap_or_default();
    let heartbeat_age_ms = heartbeats.silence_ms(&heartbeat);
    let details = heartbeat.details();
    let now_ms = heartbeats.now_ms();
    let (limits, lease_ms) = (app.context.limits, app.context.lease_ms);
    let since_ms = now_ms.saturating_sub(heartbeat_age_ms);
    let forecast = lease_forecast::forecast(since_ms, lease_ms, limits, details.loss_delay);
    let remaining_ms = |at: u64| at.saturating_sub(now_ms);
    NodeView {
        entry,
        metrics: heartbeat.metrics(),
        heartbeat_age_ms,
        missed: count_missed(heartbeat_age_ms, app.context.period_ms()),
        version: heartbeat.version().to_string(),
        next: details.next.map(|next| Next {
            what: next.what,
            after_ms: match next.due {
                Due::Open => None,
                Due::Silence(ms) => Some(ms.saturating_sub(heartbeat_age_ms)),
                Due::At(at) => Some(remaining_ms(at)),
            },
        }),
        lease: Some(LeaseView {
            lasts_ms: lease_ms,
            ends_after_ms: remaining_ms(forecast.ends_ms),
            replacement_after_ms: forecast.lost_at_ms.map(remaining_ms),
        }),
        flaps: details.flaps,
        rivals: details.rivals,
        claimed: details.claimed,
        drain_state: details.drain_state,
        counted_in: details.counted_in,
    }
}

/// Returns the number of missed heartbeats. A single miss does not count, because a heartbeat may
/// be late.
fn count_missed(age_ms: u64, heartbeat_ms: u64) -> u64 {
    match age_ms / heartbeat_ms.max(1) {
        0 | 1 => 0,
        missed => missed,
    }
}

/// Nodes in order of name.
#[utoipa::path(
    get, path = "/v1/nodes", operation_id = "list_nodes", tag = "nodes",
    params(PageQuery),
    responses(
        (status = 200, description = "a page of nodes", body = NodeList),
    ),
)]
pub async fn list_nodes(
    State(app): State<App>,
    _caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<NodeList>, Problem> {
    let limit = page.limit()?;
    app.publisher.readable()?;
    let listing = Listing::new("/v1/nodes");
    let after = page
        .cursor
        .as_deref()
        .map(|cursor| listing.last_key(cursor));
    let (mut entries, revision) =
        app.publisher
            .page::<NodeEntry>(NODES, "", after.transpose()?.as_deref(), limit + 1);
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().filter(|_| has_more);
    let next_cursor = last.map(|(key, _)| listing.cursor(key));
    let nodes = entries
        .into_iter()
        .map(|(_, entry)| to_node_view(&app, entry))
        .collect();
    Ok(Json(NodeList {
        nodes,
        revision,
        next_cursor,
    }))
}

/// One node.
#[utoipa::path(
    get, path = "/v1/nodes/{node}", operation_id = "show_node", tag = "nodes",
    params(("node" = NodeName, Path, description = "name of the node")),
    responses(
        (status = 200, description = "the node", body = NodeView,
            headers(("ETag" = String, description = "for If-Match"))),
        NoNode,
    ),
)]
pub async fn show_node(
    State(app): State<App>,
    _caller: Caller,
    Path(node): Path<NodeName>,
) -> Result<(HeaderMap, Json<NodeView>), Problem> {
    app.publisher.readable()?;
    let tag = if_match::etag(&app.publisher, &node);
    let entry = app.publisher.get::<NodeEntry>(NODES, "", node.as_str());
    let entry = entry.ok_or_else(|| Problem::not_found(format!("node {node}")))?;
    Ok((tag, Json(to_node_view(&app, entry))))
}

/// Varies a node off or on. It stays off until it is varied on.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/schedulable", operation_id = "vary_node", tag = "nodes",
    params(
        ("node" = NodeName, Path, description = "name of the node"), DryRun,
        ("If-Match" = String, Header, description = "only if the node is as it was read; `*`: \
            whatever it is"),
    ),
    request_body = Schedulable,
    responses(
        (status = 200, description = "the node", body = NodeEntry,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NoNode,
        (status = 422, description = "invalid reason", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn vary_node(
    State(app): State<App>,
    request: NodeChangeRequest,
    Json(change): Json<Schedulable>,
) -> Result<(HeaderMap, Json<NodeEntry>), Problem> {
    let expected = request.authorize()?;
    let reason = change.reason.as_deref().unwrap_or_default();
    if reason.len() > 4096 || reason.contains('\0') {
        let detail = "takes up to 4096 bytes without zero characters";
        return Err(Problem::new(Code::Invalid, "invalid reason").at("/reason", detail));
    }
    let by = request.by();
    let request = VaryNode {
        node: request.node,
        change,
        by,
    };
    let command = |reply| Command::Vary { request, reply };
    let done = app.handle.execute_if(expected, command).await?;
    Ok((revision_header(done.revision), Json(done.value?)))
}

/// Removes a lost node.
#[utoipa::path(
    delete, path = "/v1/nodes/{node}", operation_id = "remove_node", tag = "nodes",
    params(
        ("node" = NodeName, Path, description = "name of the node"), DryRun,
        ("If-Match" = String, Header, description = "only if the node is as it was read; `*`: \
            whatever it is"),
    ),
    responses(
        (status = 204, description = "removed",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NoNode,
        (status = 409, description = "the node is not lost", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn remove_node(
    State(app): State<App>,
    request: NodeChangeRequest,
) -> Result<(StatusCode, HeaderMap), Problem> {
    let expected = request.authorize()?;
    let by = request.by();
    let node = request.node;
    let command = |reply| Command::Remove { node, by, reply };
    let done = app.handle.execute_if(expected, command).await?;
    done.value?;
    Ok((StatusCode::NO_CONTENT, revision_header(done.revision)))
}

/// History of a node, newest first. The last few hundred changes are stored.
#[utoipa::path(
    get, path = "/v1/nodes/{node}/history", operation_id = "list_node_changes", tag = "nodes",
    params(("node" = NodeName, Path, description = "name of the node"), PageQuery),
    responses(
        (status = 200, description = "a page of changes", body = NodeHistory),
        NoNode,
    ),
)]
pub async fn list_node_changes(
    State(app): State<App>,
    _caller: Caller,
    Path(node): Path<NodeName>,
    Query(page): Query<PageQuery>,
) -> Result<Json<NodeHistory>, Problem> {
    let limit = page.limit()?;
    app.publisher.rows_readable()?;
    let entry = app.publisher.get::<NodeEntry>(NODES, "", node.as_str());
    // A process in a read-only fleet has only rows and no publication (R9).
    if entry.is_none() && app.publisher.readable().is_ok() {
        return Err(Problem::not_found(format!("node {node}")));
    }
    let listing = Listing::new("/v1/nodes/{node}/history").with("node", &Some(&node));
    let before = page.cursor.as_deref().map(|cursor| listing.key(cursor));
    let before = before.transpose()?;
    let revision = app.publisher.revision();
    let fetch = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut changes = store::load_history(&app.pool, &node, before, fetch)
        .await
        .map_err(|error| Problem::unavailable("the database is unavailable", error))?;
    let has_more = changes.len() > limit;
    changes.truncate(limit);
    let last = changes.last().filter(|_| has_more);
    let next_cursor = last.map(|(serial, _)| listing.cursor(serial));
    let changes = changes.into_iter().map(|(_, change)| change).collect();
    Ok(Json(NodeHistory {
        changes,
        next_cursor,
        revision,
    }))
}

#[cfg(test)]
mod tests {
    use super::count_missed;

    /// A single late heartbeat is not missed.
    #[test]
    fn missed_heartbeats_count_from_the_second_on() {
        let counts =
            [0, 999, 1_000, 1_999, 2_000, 5_999, 6_000].map(|age| count_missed(age, 1_000));
        assert_eq!(counts, [0, 0, 0, 0, 2, 5, 6]);
    }
}
