//! `/v1/blocklist/nodes/{id}` and `/workers/{id}`: one item as people put it and look at it.

use axum::extract::State;
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hayward_blocklist_api::{
    BLOCKS, BlockAnswer, BlockEntry, BlockKind, BlockOrder, BlockView, EffectiveBlock, Via,
    WorkerBlock,
};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{Json, Path, Query, Trial};
use hayward_service::http::problem::{Code, Problem};
use hayward_service::http::refusal::NotOperator;
use hayward_vocabulary::NodeName;
use serde::Deserialize;
use utoipa::IntoParams;

use super::block_request::{OrderDraft, scope};
use super::items::{check_reason, put_one};
use super::{App, NotBlocked, revision};
use crate::command::Command;
use crate::model::{Key, Orders, Removal, etag};
use crate::view::{clearing, view};

hayward_service::refusals! {
    Otherwise = 409, "blocked otherwise, or the blocklist is switched off";
    Changed = 412, "it changed since it was read";
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Which {
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
pub struct WhichWorker {
    /// `CLUSTER`, the default, or `JOB:<id>`.
    #[param(
        required = false,
        nullable = false,
        pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$"
    )]
    scope: Option<String>,
    /// True: an item on the worker or on its node, and whether it is blocked by that.
    #[serde(default)]
    #[param(required = false, nullable = false)]
    effective: bool,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Going {
    /// `CLUSTER`, the default, or `JOB:<id>`.
    #[param(
        required = false,
        nullable = false,
        pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$"
    )]
    scope: Option<String>,
    /// Kept in the history; up to 1,024 bytes.
    #[param(
        required = false,
        nullable = false,
        max_length = 1024,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    reason: Option<String>,
    /// Say whether it could be taken away, and change nothing.
    #[serde(default)]
    #[param(required = false)]
    #[expect(dead_code, reason = "described here, and kept to by the committer")]
    dry_run: bool,
}

fn key(kind: BlockKind, identifier: String, scoped: Option<&str>) -> Result<Key, Problem> {
    let job = scope(scoped).map_err(|detail| {
        Problem::new(Code::BadRequest, "the query cannot be understood").at("/query/scope", detail)
    })?;
    Ok(Key {
        kind,
        identifier,
        job,
    })
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
    let view = view(entry, &app.context.clearings.read(), app.clock.now());
    Ok((HeaderMap::from_iter([(ETAG, tag)]), Json(view)))
}

async fn put(
    app: &App,
    caller: &Caller,
    (kind, id): (BlockKind, String),
    (draft, trial): (OrderDraft, Trial),
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    caller.require(&[Scope::Operator])?;
    let by = caller.name.clone();
    let allow_merge = draft.allow_merge;
    let source = format!("manual:{by}");
    let item = draft.checked(kind, id, (&source, &app.context.settings))?;
    let orders = Orders {
        items: vec![item],
        by,
        allow_merge,
    };
    put_one(app, orders, trial).await.map_err(by_path)
}

/// The key stands in the path here, and not in the body.
fn by_path(mut problem: Problem) -> Problem {
    for fault in &mut problem.errors {
        if fault.pointer == "/identifier" {
            "/path/id".clone_into(&mut fault.pointer);
        }
    }
    problem
}

async fn remove(
    app: &App,
    caller: &Caller,
    key: Key,
    (why, headers): (Option<String>, &HeaderMap),
) -> Result<(StatusCode, HeaderMap), Problem> {
    caller.require(&[Scope::Operator])?;
    check_reason(why.as_deref())?;
    let seen = headers.get(IF_MATCH);
    let seen = seen.map(|tag| String::from_utf8_lossy(tag.as_bytes()).into_owned());
    let removal = Removal {
        key,
        by: caller.name.clone(),
        why,
        seen: seen.filter(|tag| tag != "*"),
    };
    let done = app
        .handle
        .ask(|reply| Command::Remove(removal, reply))
        .await?;
    done.value?;
    Ok((StatusCode::NO_CONTENT, revision(done.revision)))
}

/// The item of a node, while it is in force or the node is on trial.
#[utoipa::path(
    get, path = "/v1/blocklist/nodes/{id}", operation_id = "show_node_block", tag = "blocks",
    params(("id" = String, Path, description = "name of the node"), Which),
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
    Query(which): Query<Which>,
) -> Result<(HeaderMap, Json<BlockView>), Problem> {
    let key = key(BlockKind::Node, id, which.scope.as_deref())?;
    app.publisher.readable()?;
    show(&app, &key)
}

/// Blocks a node. The same order again changes nothing; another one is a conflict, unless it may
/// be merged: the stronger action, the later end, all causes.
#[utoipa::path(
    put, path = "/v1/blocklist/nodes/{id}", operation_id = "block_node", tag = "blocks",
    params(("id" = NodeName, Path, description = "name of the node"), Trial),
    request_body = BlockOrder,
    responses(
        (status = 200, description = "nothing changed, also of a dry run",
            body = BlockAnswer),
        (status = 201, description = "added", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 202, description = "merged into what was there", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, Otherwise,
        (status = 422, description = "an order that means nothing, or no such node",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn block_node(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(trial): Query<Trial>,
    Json(draft): Json<OrderDraft>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    put(&app, &caller, (BlockKind::Node, id), (draft, trial)).await
}

/// Ends the block of a node, or its trial. Copies from before cannot bring it back.
#[utoipa::path(
    delete, path = "/v1/blocklist/nodes/{id}", operation_id = "unblock_node", tag = "blocks",
    params(("id" = String, Path, description = "name of the node"), Going,
        ("If-Match" = Option<String>, Header, description = "only if it is still as it was read")),
    responses(
        (status = 204, description = "taken away",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NotBlocked, Changed,
    ),
)]
pub async fn unblock_node(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(going): Query<Going>,
    headers: HeaderMap,
) -> Result<(StatusCode, HeaderMap), Problem> {
    let key = key(BlockKind::Node, id, going.scope.as_deref())?;
    remove(&app, &caller, key, (going.reason, &headers)).await
}

/// The item of a worker; with `effective`, whether it is blocked by itself or by its node.
#[utoipa::path(
    get, path = "/v1/blocklist/workers/{id}", operation_id = "show_worker_block", tag = "blocks",
    params(("id" = String, Path, description = "id of the worker"), WhichWorker),
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
    Query(which): Query<WhichWorker>,
) -> Result<Response, Problem> {
    let key = key(BlockKind::Worker, id, which.scope.as_deref())?;
    app.publisher.readable()?;
    if which.effective {
        return Ok(Json(effective(&app, &key)).into_response());
    }
    show(&app, &key).map(IntoResponse::into_response)
}

/// Section 2: an item on the worker, or one on the node it runs on. Which worker is on a node that
/// is blocked is what the scheduler tells of that block.
fn effective(app: &App, key: &Key) -> EffectiveBlock {
    let clearings = app.context.clearings.read();
    let now = app.clock.now();
    let answer = |via, entry| EffectiveBlock {
        blocked: true,
        via: Some(via),
        item: Some(view(entry, &clearings, now)),
        warnings: Vec::new(),
    };
    let whole = Key {
        job: None,
        ..key.clone()
    };
    let own = [key, &whole]
        .into_iter()
        .find_map(|key| live(app, &key.published()));
    if let Some(entry) = own {
        return answer(Via::Worker, entry);
    }
    let mut untold = Vec::new();
    let (all, _) = app
        .publisher
        .page::<BlockEntry>(BLOCKS, "", None, usize::MAX);
    for (_, entry) in all {
        let applies = entry.job.is_none() || entry.job == key.job;
        let blocks = entry.kind == BlockKind::Node && !entry.canary && entry.in_force(now);
        if !applies || !blocks {
            continue;
        }
        match clearing(&entry, &clearings) {
            Some(told) if told.workers.iter().any(|id| id.as_str() == key.identifier) => {
                return answer(Via::Node, entry);
            }
            Some(_) => {}
            None => untold.push(entry.identifier),
        }
    }
    let warning = "the scheduler has not said yet which workers are on";
    EffectiveBlock {
        blocked: false,
        via: None,
        item: None,
        warnings: match untold.as_slice() {
            [] => Vec::new(),
            nodes => vec![format!("{warning} {}", nodes.join(", "))],
        },
    }
}

/// Blocks a worker, as `PUT /v1/blocklist/nodes/{id}` does a node.
#[utoipa::path(
    put, path = "/v1/blocklist/workers/{id}", operation_id = "block_worker", tag = "blocks",
    params(("id" = NodeName, Path, description = "id of the worker"), Trial),
    request_body = BlockOrder,
    responses(
        (status = 200, description = "nothing changed, also of a dry run",
            body = BlockAnswer),
        (status = 201, description = "added", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 202, description = "merged into what was there", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, Otherwise,
        (status = 422, description = "an order that means nothing", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn block_worker(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(trial): Query<Trial>,
    Json(draft): Json<OrderDraft>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    put(&app, &caller, (BlockKind::Worker, id), (draft, trial)).await
}

/// Ends the block of a worker. Copies from before cannot bring it back.
#[utoipa::path(
    delete, path = "/v1/blocklist/workers/{id}", operation_id = "unblock_worker", tag = "blocks",
    params(("id" = String, Path, description = "id of the worker"), Going,
        ("If-Match" = Option<String>, Header, description = "only if it is still as it was read")),
    responses(
        (status = 204, description = "taken away",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NotBlocked, Changed,
    ),
)]
pub async fn unblock_worker(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(going): Query<Going>,
    headers: HeaderMap,
) -> Result<(StatusCode, HeaderMap), Problem> {
    let key = key(BlockKind::Worker, id, going.scope.as_deref())?;
    remove(&app, &caller, key, (going.reason, &headers)).await
}
