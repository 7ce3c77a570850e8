//! `/v1/blocklist/items`: adding, looking, removing.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_blocklist_api::{
    BLOCKS, BlockAnswer, BlockBatch, BlockBatchAnswer, BlockEntry, BlockList, BlockOutcome,
    BlockRequest,
};
use hayward_service::Listing;
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{Json, Path, Query, Trial};
use hayward_service::http::problem::{Code, Problem};
use hayward_service::http::refusal::NotOperator;
use serde::Deserialize;
use utoipa::IntoParams;

use super::block_request::{Draft, Drafts};
use super::page::Page;
use super::{App, NoItem, NotBlocked, SwitchedOff, reporter, revision};
use crate::command::Command;
use crate::error::of_one;
use crate::model::{Done, Key, Orders, Removal, STALE, kind};

pub fn answer(done: Done, revision: u64) -> BlockAnswer {
    BlockAnswer {
        outcome: done.outcome,
        reason: done.reason.map(str::to_owned),
        item: done.item,
        revision,
        warnings: done.warnings,
    }
}

/// 201 added, 202 merged into what was there, 200 unchanged.
pub fn status(outcome: BlockOutcome) -> StatusCode {
    match outcome {
        BlockOutcome::Added => StatusCode::CREATED,
        BlockOutcome::Upgraded | BlockOutcome::Merged => StatusCode::ACCEPTED,
        BlockOutcome::None | BlockOutcome::Unknown => StatusCode::OK,
    }
}

/// Puts one item, and answers what became of it.
pub async fn put_one(
    app: &App,
    orders: Orders,
    Trial { dry_run }: Trial,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    let asked = app.handle.ask(|reply| Command::Add(orders, reply)).await?;
    let done = asked.value.map_err(|refusal| of_one(refusal.into()))?;
    let done = done.into_iter().next();
    let done = done.ok_or_else(|| Problem::internal(anyhow::anyhow!("an add without outcome")))?;
    let status = if dry_run {
        StatusCode::OK
    } else {
        status(done.outcome)
    };
    let at = asked.revision;
    Ok((status, revision(at), Json(answer(done, at))))
}

fn key(kind_text: &str, identifier: String) -> Result<Key, Problem> {
    let kind = kind(kind_text).ok_or_else(|| {
        Problem::new(Code::BadRequest, "the path cannot be understood").at(
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

/// Adds an item, or merges it into the one that is there: the stronger action, the later end, all
/// causes and sources.
#[utoipa::path(
    put, path = "/v1/blocklist/items", operation_id = "add_block", tag = "blocks",
    params(Trial), request_body = BlockRequest,
    responses(
        (status = 200, description = "nothing changed", body = BlockAnswer),
        (status = 201, description = "added", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 202, description = "merged into what was there", body = BlockAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, SwitchedOff, NoItem,
    ),
)]
pub async fn add_block(
    State(app): State<App>,
    caller: Caller,
    Query(trial): Query<Trial>,
    Json(draft): Json<Draft>,
) -> Result<(StatusCode, HeaderMap, Json<BlockAnswer>), Problem> {
    caller.require(&[Scope::Operator])?;
    let by = caller.name.clone();
    let items = vec![draft.checked(&format!("manual:{by}"), &app.context.settings)?];
    let allow_merge = true;
    let orders = Orders {
        items,
        by,
        allow_merge,
    };
    put_one(&app, orders, trial).await
}

/// Adds or merges many items, all or none of them. Safe to repeat: merging twice is merging once.
/// For owners and strategies, who name themselves as the source; automatic items keep to the
/// brakes.
#[utoipa::path(
    post, path = "/v1/blocklist/items", operation_id = "add_blocks", tag = "blocks",
    params(Trial), request_body = BlockBatch,
    responses(
        (status = 200, description = "one result per key, in order", body = BlockBatchAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, SwitchedOff, NoItem,
    ),
)]
pub async fn add_blocks(
    State(app): State<App>,
    caller: Caller,
    Query(Trial { .. }): Query<Trial>,
    Json(drafts): Json<Drafts>,
) -> Result<(HeaderMap, Json<BlockBatchAnswer>), Problem> {
    if !drafts.is_automatic() {
        caller.require(&[Scope::Operator])?;
    }
    let by = reporter(&caller)?.to_owned();
    let items = drafts.checked(&by, &app.context.settings)?;
    let orders = Orders {
        items,
        by,
        allow_merge: true,
    };
    let committed = app.handle.ask(|reply| Command::Add(orders, reply)).await?;
    let (at, done) = (committed.revision, committed.value?);
    let count = |outcome: BlockOutcome, stale: bool| {
        let of_kind = done
            .iter()
            .filter(|done| done.outcome == outcome && (done.reason == Some(STALE)) == stale);
        u64::try_from(of_kind.count()).unwrap_or(u64::MAX)
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
    let listing = Listing::of("/v1/blocklist/items");
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
    let kind = key(&kind, identifier)?;
    app.publisher.readable()?;
    let key = kind.published();
    let entry = app.publisher.get::<BlockEntry>(BLOCKS, "", &key);
    let entry = entry.filter(|entry| entry.in_force(app.clock.now()));
    entry
        .map(Json)
        .ok_or_else(|| Problem::not_found(format!("a block of {key}")))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Why {
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

/// Takes an item away. Copies from before cannot bring it back.
#[utoipa::path(
    delete, path = "/v1/blocklist/items/{type}/{identifier}", operation_id = "remove_block",
    tag = "blocks",
    params(
        ("type" = String, Path, description = "`node` or `worker`", pattern = "^(node|worker)$"),
        ("identifier" = String, Path, description = "name of the node, or id of the worker"),
        Why,
    ),
    responses(
        (status = 204, description = "taken away",
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, NotBlocked,
    ),
)]
pub async fn remove_block(
    State(app): State<App>,
    caller: Caller,
    Path((kind, identifier)): Path<(String, String)>,
    Query(Why { reason: why, .. }): Query<Why>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    caller.require(&[Scope::Operator])?;
    let key = key(&kind, identifier)?;
    check_reason(why.as_deref())?;
    let removal = Removal {
        key,
        by: caller.name.clone(),
        why,
        seen: None,
    };
    let done = app
        .handle
        .ask(|reply| Command::Remove(removal, reply))
        .await?;
    done.value?;
    Ok((StatusCode::NO_CONTENT, revision(done.revision)))
}

pub fn check_reason(why: Option<&str>) -> Result<(), Problem> {
    if why.is_some_and(|why| why.len() > 1024 || why.chars().any(char::is_control)) {
        let detail = "takes up to 1,024 bytes without control characters";
        return Err(Problem::new(Code::Invalid, "this is no reason").at("/query/reason", detail));
    }
    Ok(())
}
