//! `/v1/blocklist/nodes/{id}` and `/workers/{id}`: the item of one node or worker.

use axum::extract::State;
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hayward_blocklist_api::{
    BLOCKS, BlockAnswer, BlockEntry, BlockKind, BlockOrder, BlockView, BlockedBy, EffectiveBlock,
    WorkerBlock,
};
use hayward_blocklist_domain::block::MANUAL_PREFIX;
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_service::http::refusal_responses::NotOperator;
use hayward_vocabulary::NodeName;
use serde::Deserialize;
use utoipa::IntoParams;

use super::block_request::{BlockOrderBody, parse_scope};
use super::items::{add_single, check_reason};
use super::{App, NotBlocked, revision_header};
use crate::command::Command;
use crate::model::{BlockRequests, Key, RemoveRequest, etag};
use crate::view::{find_evacuation, to_view};

hayward_service::refusals! {
    DifferentItem = 409, "blocked with a different item, or the blocklist is disabled";
    ItemChanged = 412, "the item has changed since it was read";
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ScopeParams {
    /// Scope of the item: `CLUSTER`, which is the default, or `JOB:<id>`.
    #[param(
        required = false,
        nullable = false,
        pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$"
    )]
    scope: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WorkerParams {
    /// Scope of the item: `CLUSTER`, which is the default, or `JOB:<id>`.
    #[param(
        required = false,
        nullable = false,
        pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$"
    )]
    scope: Option<String>,
    /// True to combine the item of the worker with that of its node.
    #[serde(default)]
    #[param(required = false, nullable = false)]
    effective: bool,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveParams {
    /// Scope of the item: `CLUSTER`, which is the default, or `JOB:<id>`.
    #[param(
        required = false,
        nullable = false,
        pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$"
    )]
    scope: Option<String>,
    /// Reason for the removal, which is stored in the history. At most 1,024 bytes.
    #[param(
        required = false,
        nullable = false,
        max_length = 1024,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    reason: Option<String>,
    /// True to check whether the item can be removed, without a change.
    #[serde(default)]
    #[param(required = false)]
    #[expect(
        dead_code,
        reason = "only described here; the committer reads it from the request"
    )]
    dry_run: bool,
}

/// Node or worker of a path.
struct BlockTarget {
    kind: BlockKind,
    identifier: String,
}

impl BlockTarget {
    fn node(identifier: String) -> Self {
        Self {
            kind: BlockKind::Node,
            identifier,
        }
    }

    fn worker(identifier: String) -> Self {
        Self {
            kind: BlockKind::Worker,
            identifier,
        }
    }

    fn into_key(self, scope_text: Option<&str>) -> Result<Key, Problem> {
        let job = parse_scope(scope_text).map_err(|detail| {
            Problem::new(Code::BadRequest, "invalid query").at("/query/scope", detail)
        })?;
        Ok(Key {
            kind: self.kind,
            identifier: self.identifier,
            job,
        })
    }

    /// Adds or merges an item of the target.
    async fn block(
        self,
        app: &App,
        caller: &Caller,
        body: BlockOrderBody,
        dry_run: DryRun,
    ) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
        caller.require(&[Scope::Operator])?;
        let caller_name = caller.name.clone();
        let allow_merge = body.allow_merge;
        let source = format!("{MANUAL_PREFIX}{caller_name}");
        let item = body.validate(self.kind, self.identifier, &source, &app.context.settings)?;
        let requests = BlockRequests {
            items: vec![item],
            caller_name,
            allow_merge,
        };
        let added = add_single(app, requests, dry_run).await;
        added.map_err(point_to_path)
    }

    /// Removes the item or the trial of the target.
    async fn unblock(
        self,
        app: &App,
        caller: &Caller,
        params: RemoveParams,
        headers: &HeaderMap,
    ) -> Result<(StatusCode, HeaderMap), Problem> {
        let key = self.into_key(params.scope.as_deref())?;
        caller.require(&[Scope::Operator])?;
        check_reason(params.reason.as_deref())?;
        let tag = headers.get(IF_MATCH);
        let tag = tag.map(|tag| String::from_utf8_lossy(tag.as_bytes()).into_owned());
        let request = RemoveRequest {
            key,
            caller_name: caller.name.clone(),
            reason: params.reason,
            if_match: tag.filter(|tag| tag != "*"),
        };
        let committed = app
            .handle
            .execute(|reply| Command::RemoveBlock(request, reply))
            .await?;
        committed.value?;
        Ok((StatusCode::NO_CONTENT, revision_header(committed.revision)))
    }
}

/// Returns the entry of a key while it is in force.
fn find_entry_in_force(app: &App, key: &str) -> Option<BlockEntry> {
    let entry = app.publisher.get::<BlockEntry>(BLOCKS, "", key);
    entry.filter(|entry| entry.is_in_force(app.clock.now()))
}

/// Creates the response with the item of a key.
fn show_item(app: &App, key: &Key) -> Result<(HeaderMap, Json<BlockView>), Problem> {
    let key = key.publication_key();
    let entry = find_entry_in_force(app, &key);
    let entry = entry.ok_or_else(|| Problem::not_found(format!("a block of {key}")))?;
    let tag = HeaderValue::from_str(&etag(&entry)).map_err(anyhow::Error::from)?;
    let view = to_view(entry, &app.context.evacuations.read(), app.clock.now());
    Ok((HeaderMap::from_iter([(ETAG, tag)]), Json(view)))
}

/// Changes pointers to the identifier, because it is in the path and not in the body.
fn point_to_path(mut problem: Problem) -> Problem {
    for fault in &mut problem.errors {
        if fault.pointer == "/identifier" {
            "/path/id".clone_into(&mut fault.pointer);
        }
    }
    problem
}

/// Show the item of a node while it is blocked or on trial.
#[utoipa::path(
    get, path = "/v1/blocklist/nodes/{id}", operation_id = "show_node_block", tag = "blocks",
    params(("id" = String, Path, description = "name of the node"), ScopeParams),
    responses(
        (status = 200, description = "the item", body = BlockView,
            headers(("ETag" = String, description = "for If-Match"))),
        NotBlocked,
    ),
)]
pub async fn show_node_block(
    State(app): State<App>,
    _caller: Caller,
    Path(id): Path<String>,
    Query(params): Query<ScopeParams>,
) -> Result<(HeaderMap, Json<BlockView>), Problem> {
    let key = BlockTarget::node(id).into_key(params.scope.as_deref())?;
    app.publisher.readable()?;
    show_item(&app, &key)
}

/// Block a node. A repeated request changes nothing. A different request is a conflict unless
/// `allow_merge` is set. A merge results in the stronger action, the later end and all causes.
#[utoipa::path(
    put, path = "/v1/blocklist/nodes/{id}", operation_id = "block_node", tag = "blocks",
    params(("id" = NodeName, Path, description = "name of the node"), DryRun),
    request_body = BlockOrder,
    responses(
        (status = 200, description = "nothing changed, or a dry run",
            body = BlockAnswer),
        (status = 201, description = "added", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 202, description = "merged into the existing item", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, DifferentItem,
        (status = 422, description = "invalid request, or unknown node",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn block_node(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(dry_run): Query<DryRun>,
    Json(body): Json<BlockOrderBody>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    let target = BlockTarget::node(id);
    target.block(&app, &caller, body, dry_run).await
}

/// End the block or the trial of a node. Older copies cannot restore it.
#[utoipa::path(
    delete, path = "/v1/blocklist/nodes/{id}", operation_id = "unblock_node", tag = "blocks",
    params(("id" = String, Path, description = "name of the node"), RemoveParams,
        ("If-Match" = Option<String>, Header, description = "ETag of the item that was read")),
    responses(
        (status = 204, description = "removed",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NotBlocked, ItemChanged,
    ),
)]
pub async fn unblock_node(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(params): Query<RemoveParams>,
    headers: HeaderMap,
) -> Result<(StatusCode, HeaderMap), Problem> {
    let target = BlockTarget::node(id);
    target.unblock(&app, &caller, params, &headers).await
}

/// Show the item of a worker. With `effective`, show the combined state of the worker and its node.
#[utoipa::path(
    get, path = "/v1/blocklist/workers/{id}", operation_id = "show_worker_block", tag = "blocks",
    params(("id" = String, Path, description = "id of the worker"), WorkerParams),
    responses(
        (status = 200, description = "the item; with `effective`, an `EffectiveBlock`",
            body = WorkerBlock, headers(("ETag" = String, description = "for If-Match"))),
        NotBlocked,
    ),
)]
pub async fn show_worker_block(
    State(app): State<App>,
    _caller: Caller,
    Path(id): Path<String>,
    Query(params): Query<WorkerParams>,
) -> Result<Response, Problem> {
    let key = BlockTarget::worker(id).into_key(params.scope.as_deref())?;
    app.publisher.readable()?;
    if params.effective {
        return Ok(Json(find_effective_block(&app, &key)).into_response());
    }
    show_item(&app, &key).map(IntoResponse::into_response)
}

/// Returns the block that applies to a worker: its own item, or else that of its node. The
/// scheduler publishes which workers are on a blocked node.
fn find_effective_block(app: &App, key: &Key) -> EffectiveBlock {
    let evacuations = app.context.evacuations.read();
    let now = app.clock.now();
    let blocked_by = |via, entry| EffectiveBlock {
        blocked: true,
        via: Some(via),
        item: Some(to_view(entry, &evacuations, now)),
        warnings: Vec::new(),
    };
    let cluster_key = Key {
        job: None,
        ..key.clone()
    };
    // An item for the job of the request is preferred to one for the whole cluster.
    let own_item = [key, &cluster_key]
        .into_iter()
        .find_map(|key| find_entry_in_force(app, &key.publication_key()));
    if let Some(entry) = own_item {
        return blocked_by(BlockedBy::Worker, entry);
    }
    // Blocked nodes whose workers the scheduler has not reported. The worker may be on one of them.
    let mut unreported_nodes = Vec::new();
    let (entries, _) = app
        .publisher
        .page::<BlockEntry>(BLOCKS, "", None, usize::MAX);
    for (_, entry) in entries {
        let applies_to_job = entry.job.is_none() || entry.job == key.job;
        let is_node_block =
            entry.kind == BlockKind::Node && !entry.canary && entry.is_in_force(now);
        if !applies_to_job || !is_node_block {
            continue;
        }
        match find_evacuation(&entry, &evacuations) {
            Some(evacuation)
                if evacuation
                    .workers
                    .iter()
                    .any(|id| id.as_str() == key.identifier) =>
            {
                return blocked_by(BlockedBy::Node, entry);
            }
            Some(_) => {}
            None => unreported_nodes.push(entry.identifier),
        }
    }
    let warning = "the scheduler has not yet reported the workers on";
    EffectiveBlock {
        blocked: false,
        via: None,
        item: None,
        warnings: match unreported_nodes.as_slice() {
            [] => Vec::new(),
            nodes => vec![format!("{warning} {}", nodes.join(", "))],
        },
    }
}

/// Block a worker. It works like `PUT /v1/blocklist/nodes/{id}`.
#[utoipa::path(
    put, path = "/v1/blocklist/workers/{id}", operation_id = "block_worker", tag = "blocks",
    params(("id" = NodeName, Path, description = "id of the worker"), DryRun),
    request_body = BlockOrder,
    responses(
        (status = 200, description = "nothing changed, or a dry run",
            body = BlockAnswer),
        (status = 201, description = "added", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 202, description = "merged into the existing item", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, DifferentItem,
        (status = 422, description = "invalid request", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn block_worker(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(dry_run): Query<DryRun>,
    Json(body): Json<BlockOrderBody>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    let target = BlockTarget::worker(id);
    target.block(&app, &caller, body, dry_run).await
}

/// End the block of a worker. Older copies cannot restore it.
#[utoipa::path(
    delete, path = "/v1/blocklist/workers/{id}", operation_id = "unblock_worker", tag = "blocks",
    params(("id" = String, Path, description = "id of the worker"), RemoveParams,
        ("If-Match" = Option<String>, Header, description = "ETag of the item that was read")),
    responses(
        (status = 204, description = "removed",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NotBlocked, ItemChanged,
    ),
)]
pub async fn unblock_worker(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(params): Query<RemoveParams>,
    headers: HeaderMap,
) -> Result<(StatusCode, HeaderMap), Problem> {
    let target = BlockTarget::worker(id);
    target.unblock(&app, &caller, params, &headers).await
}
