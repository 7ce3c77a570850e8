//! `/v1/blocklist/items`: adds, lists and removes items.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_blocklist_api::{
    BLOCKS, BlockAnswer, BlockBatch, BlockBatchAnswer, BlockEntry, BlockList, BlockOutcome,
    BlockRequest,
};
use hayward_blocklist_domain::block::MANUAL_PREFIX;
use hayward_service::Listing;
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_service::http::refusal_responses::NotOperator;
use serde::Deserialize;
use utoipa::IntoParams;

use super::block_request::{BlockBatchBody, BlockRequestBody};
use super::page::PageQuery;
use super::{App, Disabled, InvalidItem, NotBlocked, require_reporter, revision_header};
use crate::command::Command;
use crate::error::strip_batch_pointers;
use crate::model::{AddResult, BlockRequests, Key, RemoveRequest, STALE_COPY, parse_kind};

/// Maximum length of the reason for a removal.
const MAX_REASON_BYTES: usize = 1024;

/// Converts the result of one request to the API.
pub fn to_api_answer(result: AddResult, revision: u64) -> BlockAnswer {
    BlockAnswer {
        outcome: result.outcome,
        reason: result.reason.map(str::to_owned),
        item: result.item,
        revision,
        warnings: result.warnings,
    }
}

/// Returns the HTTP status of an outcome: 201 for an added item, 202 for a merged one, 200 for no
/// change.
pub fn to_status(outcome: BlockOutcome) -> StatusCode {
    match outcome {
        BlockOutcome::Added => StatusCode::CREATED,
        BlockOutcome::Upgraded | BlockOutcome::Merged => StatusCode::ACCEPTED,
        BlockOutcome::None | BlockOutcome::Unknown => StatusCode::OK,
    }
}

/// Adds a single item and creates the response.
pub async fn add_single(
    app: &App,
    requests: BlockRequests,
    DryRun { dry_run }: DryRun,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    let committed = app
        .handle
        .execute(|reply| Command::AddBlocks(requests, reply))
        .await?;
    let results = committed
        .value
        .map_err(|refusal| strip_batch_pointers(refusal.into()))?;
    let result = results.into_iter().next();
    let result =
        result.ok_or_else(|| Problem::internal(anyhow::anyhow!("an add returned no result")))?;
    let status = if dry_run {
        StatusCode::OK
    } else {
        to_status(result.outcome)
    };
    let revision = committed.revision;
    let answer = to_api_answer(result, revision);
    Ok((status, revision_header(revision), Json(answer)))
}

/// Creates the key from the kind and the identifier in a path.
fn key_from_path(kind_text: &str, identifier: String) -> Result<Key, Problem> {
    let kind = parse_kind(kind_text).ok_or_else(|| {
        Problem::new(Code::BadRequest, "invalid path").at(
            "/path/type",
            format!("{kind_text:?} must be node or worker"),
        )
    })?;
    Ok(Key {
        kind,
        identifier,
        job: None,
    })
}

/// Add an item, or merge it into the existing one. A merge results in the stronger action, the
/// later end, and all causes and sources.
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
    Query(dry_run): Query<DryRun>,
    Json(body): Json<BlockRequestBody>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    caller.require(&[Scope::Operator])?;
    let caller_name = caller.name.clone();
    let items = vec![body.validate(
        &format!("{MANUAL_PREFIX}{caller_name}"),
        &app.context.settings,
    )?];
    let requests = BlockRequests {
        items,
        caller_name,
        allow_merge: true,
    };
    add_single(&app, requests, dry_run).await
}

/// Add or merge many items, either all or none. A repeated request changes nothing. Owners and
/// strategies set their name as the source. Automatic items are limited by the brakes.
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
    let caller_name = require_reporter(&caller)?.to_owned();
    let items = batch.validate(&caller_name, &app.context.settings)?;
    let requests = BlockRequests {
        items,
        caller_name,
        allow_merge: true,
    };
    let committed = app
        .handle
        .execute(|reply| Command::AddBlocks(requests, reply))
        .await?;
    let (revision, results) = (committed.revision, committed.value?);
    let count = |outcome: BlockOutcome, stale: bool| {
        let matching = results.iter().filter(|result| {
            result.outcome == outcome && (result.reason == Some(STALE_COPY)) == stale
        });
        u64::try_from(matching.count()).unwrap_or(u64::MAX)
    };
    let answer = BlockBatchAnswer {
        added: count(BlockOutcome::Added, false),
        upgraded: count(BlockOutcome::Upgraded, false),
        merged: count(BlockOutcome::Merged, false),
        unchanged: count(BlockOutcome::None, false),
        stale: count(BlockOutcome::None, true),
        revision,
        results: results
            .into_iter()
            .map(|result| to_api_answer(result, revision))
            .collect(),
    };
    Ok((revision_header(revision), Json(answer)))
}

/// List the items in force, in order of kind and identifier.
#[utoipa::path(
    get, path = "/v1/blocklist/items", operation_id = "list_blocks", tag = "blocks",
    params(PageQuery),
    responses(
        (status = 200, description = "a page of items", body = BlockList),
    ),
)]
pub async fn list_blocks(
    State(app): State<App>,
    _caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<BlockList>, Problem> {
    let limit = page.limit()?;
    app.publisher.readable()?;
    let listing = Listing::new("/v1/blocklist/items");
    let after = page
        .cursor
        .as_deref()
        .map(|cursor| listing.last_key(cursor));
    let (mut entries, revision) =
        app.publisher
            .page::<BlockEntry>(BLOCKS, "", after.transpose()?.as_deref(), limit + 1);
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().filter(|_| has_more);
    let next_cursor = last.map(|(key, _)| listing.cursor(key));
    let now = app.clock.now();
    let items = entries
        .into_iter()
        .map(|(_, entry)| entry)
        .filter(|entry| entry.is_in_force(now));
    Ok(Json(BlockList {
        items: items.collect(),
        revision,
        next_cursor,
    }))
}

/// Show one item while it is in force.
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
    let key = key_from_path(&kind, identifier)?.publication_key();
    app.publisher.readable()?;
    let entry = app.publisher.get::<BlockEntry>(BLOCKS, "", &key);
    let entry = entry.filter(|entry| entry.is_in_force(app.clock.now()));
    entry
        .map(Json)
        .ok_or_else(|| Problem::not_found(format!("a block of {key}")))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveParams {
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

/// Remove an item. Older copies cannot restore it.
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
    Query(RemoveParams { reason, .. }): Query<RemoveParams>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    caller.require(&[Scope::Operator])?;
    let key = key_from_path(&kind, identifier)?;
    check_reason(reason.as_deref())?;
    let request = RemoveRequest {
        key,
        caller_name: caller.name.clone(),
        reason,
        if_match: None,
    };
    let committed = app
        .handle
        .execute(|reply| Command::RemoveBlock(request, reply))
        .await?;
    committed.value?;
    Ok((StatusCode::NO_CONTENT, revision_header(committed.revision)))
}

/// Checks the length and the characters of a reason.
pub fn check_reason(reason: Option<&str>) -> Result<(), Problem> {
    let is_invalid =
        |text: &str| text.len() > MAX_REASON_BYTES || text.chars().any(char::is_control);
    if reason.is_some_and(is_invalid) {
        let detail = "must have at most 1,024 bytes and no control characters";
        return Err(Problem::new(Code::Invalid, "invalid reason").at("/query/reason", detail));
    }
    Ok(())
}
