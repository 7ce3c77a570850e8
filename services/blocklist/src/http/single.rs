//! `/v1/blocklist/nodes/{id}` and `/workers/{id}`: the item of one target.

use axum::extract::State;
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hayward_blocklist_api::{
    BLOCKS, BlockAnswer, BlockEntry, BlockKind, BlockOrder, BlockView, EffectiveBlock, Via,
    WorkerBlock,
};
use hayward_blocklist_domain::block::MANUAL;
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_service::http::refusal::NotOperator;
use hayward_vocabulary::NodeName;
use serde::Deserialize;
use utoipa::IntoParams;

use super::block_request::{BlockOrderBody, scope};
use super::items::{add_one, check_reason};
use super::{App, NotBlocked, revision};
use crate::command::Command;
use crate::model::{BlockRequests, Key, RemoveRequest, etag};
use crate::view::{evacuation, view};

hayward_service::refusals! {
    DifferentItem = 409, "blocked with a different item, or the blocklist is disabled";
    Changed = 412, "the item changed since it was read";
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ScopeParams {
    /// `CLUSTER`, the default, or `JOB:<id>`.
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
    /// `CLUSTER`, the default, or `JOB:<id>`.
    #[param(
        required = false,
        nullable = false,
        pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$"
    )]
    scope: Option<String>,
    /// True combines the item of the worker with that of its node.
    #[serde(default)]
    #[param(required = false, nullable = false)]
    effective: bool,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveParams {
    /// `CLUSTER`, the default, or `JOB:<id>`.
    #[param(
        required = false,
        nullable = false,
        pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$"
    )]
    scope: Option<String>,
    /// Reason, stored in the history; up to 1,024 bytes.
    #[param(
        required = false,
        nullable = false,
        max_length = 1024,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    reason: Option<String>,
    /// Checks whether the item could be removed, and changes nothing.
    #[serde(default)]
    #[param(required = false)]
    #[expect(dead_code, reason = "described here, honoured by the committer")]
    dry_run: bool,
}

/// The target that a path names: a node or a worker.
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

    fn key(self, scope_text: Option<&str>) -> Result<Key, Problem> {
        let job = scope(scope_text).map_err(|detail| {
            Problem::new(Code::BadRequest, "invalid query").at("/query/scope", detail)
        })?;
        Ok(Key {
            kind: self.kind,
            identifier: self.identifier,
            job,
        })
    }

    /// Adds or merges the item of the target.
    async fn block(
        self,
        app: &App,
        caller: &Caller,
        body: BlockOrderBody,
        trial: DryRun,
    ) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
        caller.require(&[Scope::Operator])?;
        let by = caller.name.clone();
        let allow_merge = body.allow_merge;
        let source = format!("{MANUAL}{by}");
        let item = body.validate(self.kind, self.identifier, &source, &app.context.settings)?;
        let requests = BlockRequests {
            items: vec![item],
            by,
            allow_merge,
        };
        let added = add_one(app, requests, trial).await;
        added.map_err(with_path_pointers)
    }

    /// Removes the item or the trial of the target.
    async fn unblock(
        self,
        app: &App,
        caller: &Caller,
        params: RemoveParams,
        headers: &HeaderMap,
    ) -> Result<(StatusCode, HeaderMap), Problem> {
        let key = self.key(params.scope.as_deref())?;
        caller.require(&[Scope::Operator])?;
        check_reason(params.reason.as_deref())?;
        let tag = headers.get(IF_MATCH);
        let tag = tag.map(|tag| String::from_utf8_lossy(tag.as_bytes()).into_owned());
        let request = RemoveRequest {
            key,
            by: caller.name.clone(),
            why: params.reason,
            if_match: tag.filter(|tag| tag != "*"),
        };
        let done = app
            .handle
            .ask(|reply| Command::RemoveBlock(request, reply))
            .await?;
        done.value?;
        Ok((StatusCode::NO_CONTENT, revision(done.revision)))
    }
}

fn live(app: &App, key: &str) -> Option<BlockEntry> {
    let entry = app.publisher.get::<BlockEntry>(BLOCKS, "", key);
    entry.filter(|entry| entry.in_force(app.clock.now()))
}

fn show(app: &App, key: &Key) -> Result<(HeaderMap, Json<BlockView>), Problem> {
    let key = key.published();
    let entry = live(app, &key);
    let entry = entry.ok_or_else(|| Problem::not_found(format!("a block of {key}")))?;
    let tag = HeaderValue::from_str(&etag(&entry)).map_err(anyhow::Error::from)?;
    let view = view(entry, &app.context.evacuations.read(), app.clock.now());
    Ok((HeaderMap::from_iter([(ETAG, tag)]), Json(view)))
}

/// Points faults of the identifier at the path, because the body does not hold it.
fn with_path_pointers(mut problem: Problem) -> Problem {
    for fault in &mut problem.errors {
        if fault.pointer == "/identifier" {
            "/path/id".clone_into(&mut fault.pointer);
        }
    }
    problem
}

/// The item of a node, while it is blocked or on trial.
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
    let key = BlockTarget::node(id).key(params.scope.as_deref())?;
    app.publisher.readable()?;
    show(&app, &key)
}

/// Blocks a node. Repeating the request changes nothing. A different request is a conflict unless
/// `allow_merge` is set: then the stronger action, the later end and all causes apply.
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
    Query(trial): Query<DryRun>,
    Json(body): Json<BlockOrderBody>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    let target = BlockTarget::node(id);
    target.block(&app, &caller, body, trial).await
}

/// Ends the block or the trial of a node. Older copies cannot restore it.
#[utoipa::path(
    delete, path = "/v1/blocklist/nodes/{id}", operation_id = "unblock_node", tag = "blocks",
    params(("id" = String, Path, description = "name of the node"), RemoveParams,
        ("If-Match" = Option<String>, Header, description = "ETag of the item that was read")),
    responses(
        (status = 204, description = "removed",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NotBlocked, Changed,
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

/// The item of a worker; with `effective`, the combined state of the worker and its node.
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
    let key = BlockTarget::worker(id).key(params.scope.as_deref())?;
    app.publisher.readable()?;
    if params.effective {
        return Ok(Json(effective(&app, &key)).into_response());
    }
    show(&app, &key).map(IntoResponse::into_response)
}

/// The item of the worker, or the item of its node. The scheduler publishes which workers are on a
/// blocked node.
fn effective(app: &App, key: &Key) -> EffectiveBlock {
    let evacuations = app.context.evacuations.read();
    let now = app.clock.now();
    let answer = |via, entry| EffectiveBlock {
        blocked: true,
        via: Some(via),
        item: Some(view(entry, &evacuations, now)),
        warnings: Vec::new(),
    };
    let for_all_jobs = Key {
        job: None,
        ..key.clone()
    };
    let own_item = [key, &for_all_jobs]
        .into_iter()
        .find_map(|key| live(app, &key.published()));
    if let Some(entry) = own_item {
        return answer(Via::Worker, entry);
    }
    let mut unknown = Vec::new();
    let (all, _) = app
        .publisher
        .page::<BlockEntry>(BLOCKS, "", None, usize::MAX);
    for (_, entry) in all {
        let applies = entry.job.is_none() || entry.job == key.job;
        let blocks = entry.kind == BlockKind::Node && !entry.canary && entry.in_force(now);
        if !applies || !blocks {
            continue;
        }
        match evacuation(&entry, &evacuations) {
            Some(evacuation)
                if evacuation
                    .workers
                    .iter()
                    .any(|id| id.as_str() == key.identifier) =>
            {
                return answer(Via::Node, entry);
            }
            Some(_) => {}
            None => unknown.push(entry.identifier),
        }
    }
    let warning = "the scheduler has not reported yet which workers are on";
    EffectiveBlock {
        blocked: false,
        via: None,
        item: None,
        warnings: match unknown.as_slice() {
            [] => Vec::new(),
            nodes => vec![format!("{warning} {}", nodes.join(", "))],
        },
    }
}

/// Blocks a worker, like `PUT /v1/blocklist/nodes/{id}` blocks a node.
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
    Query(trial): Query<DryRun>,
    Json(body): Json<BlockOrderBody>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    let target = BlockTarget::worker(id);
    target.block(&app, &caller, body, trial).await
}

/// Ends the block of a worker. Older copies cannot restore it.
#[utoipa::path(
    delete, path = "/v1/blocklist/workers/{id}", operation_id = "unblock_worker", tag = "blocks",
    params(("id" = String, Path, description = "id of the worker"), RemoveParams,
        ("If-Match" = Option<String>, Header, description = "ETag of the item that was read")),
    responses(
        (status = 204, description = "removed",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NotBlocked, Changed,
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
