//! `/v1/blocklist/items`: adding, listing and removing items.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_blocklist_api::{
    BLOCKS, BlockAnswer, BlockBatch, BlockBatchAnswer, BlockEntry, BlockList, BlockOutcome,
    BlockRequest,
};
use hayward_service::Listing;
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_service::http::refusal::NotOperator;
use serde::Deserialize;
use utoipa::IntoParams;

use super::block_request::{BlockBatchBody, BlockRequestBody};
use super::page::Page;
use super::{App, Disabled, InvalidItem, NotBlocked, reporter, revision};
use crate::command::Command;
use crate::error::for_single_item;
use crate::model::{AddResult, BlockRequests, Key, RemoveRequest, STALE, parse_kind};

pub fn answer(done: AddResult, revision: u64) -> BlockAnswer {
    BlockAnswer {
        outcome: done.outcome,
        reason: done.reason.map(str::to_owned),
        item: done.item,
        revision,
        warnings: done.warnings,
    }
}

/// 201 for an added item, 202 for a merged one, 200 for no change.
pub fn status(outcome: BlockOutcome) -> StatusCode {
    match outcome {
        BlockOutcome::Added => StatusCode::CREATED,
        BlockOutcome::Upgraded | BlockOutcome::Merged => StatusCode::ACCEPTED,
        BlockOutcome::None | BlockOutcome::Unknown => StatusCode::OK,
    }
}

/// Adds one item and returns its outcome.
pub async fn add_one(
    app: &App,
    requests: BlockRequests,
    DryRun { dry_run }: DryRun,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    let done = app
        .handle
        .ask(|reply| Command::AddBlocks(requests, reply))
        .await?;
    let results = done
        .value
        .map_err(|refusal| for_single_item(refusal.into()))?;
    let result = results.into_iter().next();
    let result =
        result.ok_or_else(|| Problem::internal(anyhow::anyhow!("an add returned no result")))?;
    let status = if dry_run {
        StatusCode::OK
    } else {
        status(result.outcome)
    };
    let at = done.revision;
    Ok((status, revision(at), Json(answer(result, at))))
}

fn key(kind_text: &str, identifier: String) -> Result<Key, Problem> {
    let kind = parse_kind(kind_text).ok_or_else(|| {
        Problem::new(Code::BadRequest, "invalid path").at(
            "/path/type",
            format!("{kind_text:?} is neither node nor worker"),
        )
    })?;
    let job = None;
    Ok(Key {
        kind,
        identifier,
        job,
    })
}

/// Adds an item, or merges it into an existing one: the stronger action, the later end, all causes
/// and sources.
#[utoipa::path(
    put, path = "/v1/blocklist/items", operation_id = "add_block", tag = "blocks",
    params(DryRun), request_body = BlockRequest,
    responses(
        (status = 200, description = "nothing changed", body = BlockAnswer),
        (status = 201, description = "added", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 202, description = "merged into the existing item", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, Disabled, InvalidItem,
    ),
)]
pub async fn add_block(
    State(app): State<App>,
    caller: Caller,
    Query(trial): Query<DryRun>,
    Json(body): Json<BlockRequestBody>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    caller.require(&[Scope::Operator])?;
    let by = caller.name.clone();
    let items = vec![body.validate(&format!("manual:{by}"), &app.context.settings)?];
    let allow_merge = true;
    let requests = BlockRequests {
        items,
        by,
        allow_merge,
    };
    add_one(&app, requests, trial).await
}

/// Adds or merges many items, all or none. Repeating the request changes nothing. Owners and
/// strategies name themselves as the source; automatic items obey the brakes.
#[utoipa::path(
    post, path = "/v1/blocklist/items", operation_id = "add_blocks", tag = "blocks",
    params(DryRun), request_body = BlockBatch,
    responses(
        (status = 200, description = "one result per key, in order", body = BlockBatchAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, Disabled, InvalidItem,
    ),
)]
pub async fn add_blocks(
    State(app): State<App>,
    caller: Caller,
    Query(DryRun { .. }): Query<DryRun>,
    Json(batch): Json<BlockBatchBody>,
) -> Result<(HeaderMap, Json<BlockBatchAnswer>), Problem> {
    if !batch.is_automatic() {
        caller.require(&[Scope::Operator])?;
    }
    let by = reporter(&caller)?.to_owned();
    let items = batch.validate(&by, &app.context.settings)?;
    let requests = BlockRequests {
        items,
        by,
        allow_merge: true,
    };
    let committed = app
        .handle
        .ask(|reply| Command::AddBlocks(requests, reply))
        .await?;
    let (at, done) = (committed.revision, committed.value?);
    let count = |outcome: BlockOutcome, stale: bool| {
        let matching = done
            .iter()
            .filter(|done| done.outcome == outcome && (done.reason == Some(STALE)) == stale);
        u64::try_from(matching.count()).unwrap_or(u64::MAX)
    };
    let counted = BlockBatchAnswer {
        results: Vec::new(),
        added: count(BlockOutcome::Added, false),
        upgraded: count(BlockOutcome::Upgraded, false),
        merged: count(BlockOutcome::Merged, false),
        unchanged: count(BlockOutcome::None, false),
        stale: count(BlockOutcome::None, true),
        revision: at,
    };
    let results = done.into_iter().map(|done| answer(done, at)).collect();
    Ok((revision(at), Json(BlockBatchAnswer { results, ..counted })))
}

/// Items in force, in order of kind and identifier.
#[utoipa::path(
    get, path = "/v1/blocklist/items", operation_id = "list_blocks", tag = "blocks",
    params(Page),
    responses(
        (status = 200, description = "a page of items", body = BlockList),
    ),
)]
pub async fn list_blocks(
    State(app): State<App>,
    _caller: Caller,
    Query(page): Query<Page>,
) -> Result<Json<BlockList>, Problem> {
    let limit = page.limit()?;
    app.publisher.readable()?;
    let listing = Listing::new("/v1/blocklist/items");
    let after = page.cursor.as_deref().map(|cursor| listing.last(cursor));
    let (mut found, revision) =
        app.publisher
            .page::<BlockEntry>(BLOCKS, "", after.transpose()?.as_deref(), limit + 1);
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| more);
    let next_cursor = last.map(|(key, _)| listing.cursor(key));
    let now = app.clock.now();
    let items = found
        .into_iter()
        .map(|(_, entry)| entry)
        .filter(|entry| entry.in_force(now));
    Ok(Json(BlockList {
        items: items.collect(),
        revision,
        next_cursor,
    }))
}

/// One item, while it is in force.
#[utoipa::path(
    get, path = "/v1/blocklist/items/{type}/{identifier}", operation_id = "show_block",
    tag = "blocks",
    params(
        ("type" = String, Path, description = "`node` or `worker`", pattern = "^(node|worker)$"),
        ("identifier" = String, Path, description = "name of the node, or id of the worker"),
    ),
    responses(
        (status = 200, description = "the item", body = BlockEntry),
        NotBlocked,
    ),
)]
pub async fn show_block(
    State(app): State<App>,
    _caller: Caller,
    Path((kind, identifier)): Path<(String, String)>,
) -> Result<Json<BlockEntry>, Problem> {
    let key = key(&kind, identifier)?.published();
    app.publisher.readable()?;
    let entry = app.publisher.get::<BlockEntry>(BLOCKS, "", &key);
    let entry = entry.filter(|entry| entry.in_force(app.clock.now()));
    entry
        .map(Json)
        .ok_or_else(|| Problem::not_found(format!("a block of {key}")))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveParams {
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

/// Removes an item. Older copies cannot restore it.
#[utoipa::path(
    delete, path = "/v1/blocklist/items/{type}/{identifier}", operation_id = "remove_block",
    tag = "blocks",
    params(
        ("type" = String, Path, description = "`node` or `worker`", pattern = "^(node|worker)$"),
        ("identifier" = String, Path, description = "name of the node, or id of the worker"),
        RemoveParams,
    ),
    responses(
        (status = 204, description = "removed",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NotBlocked,
    ),
)]
pub async fn remove_block(
    State(app): State<App>,
    caller: Caller,
    Path((kind, identifier)): Path<(String, String)>,
    Query(RemoveParams { reason: why, .. }): Query<RemoveParams>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    caller.require(&[Scope::Operator])?;
    let key = key(&kind, identifier)?;
    check_reason(why.as_deref())?;
    let request = RemoveRequest {
        key,
        by: caller.name.clone(),
        why,
        if_match: None,
    };
    let done = app
        .handle
        .ask(|reply| Command::RemoveBlock(request, reply))
        .await?;
    done.value?;
    Ok((StatusCode::NO_CONTENT, revision(done.revision)))
}

pub fn check_reason(why: Option<&str>) -> Result<(), Problem> {
    if why.is_some_and(|why| why.len() > 1024 || why.chars().any(char::is_control)) {
        let detail = "takes up to 1,024 bytes without control characters";
        return Err(Problem::new(Code::Invalid, "invalid reason").at("/query/reason", detail));
    }
    Ok(())
}
