//! `GET /v1/blocklist/history`: who blocked what and how it ended.

use axum::extract::State;
use hayward_blocklist_api::BlockHistory;
use hayward_service::auth::Caller;
use hayward_service::extract::{Json, Query};
use hayward_service::problem::{Code, Problem};
use hayward_service::refusal::BadQuery;

use super::page::{Page, wait_for};
use super::{App, NoHistory};
use crate::store;

/// What was added, merged, removed and expired, newest first. The last ten thousand are kept.
#[utoipa::path(
    get, path = "/v1/blocklist/history", operation_id = "list_block_changes", tag = "blocks",
    params(Page),
    responses(
        (status = 200, description = "a page of changes", body = BlockHistory),
        BadQuery, NoHistory,
    ),
)]
pub async fn list_block_changes(
    State(app): State<App>,
    _caller: Caller,
    Query(page): Query<Page>,
) -> Result<Json<BlockHistory>, Problem> {
    let limit = page.limit()?;
    wait_for(&app.publisher, page.min_revision).await?;
    let before = page
        .cursor
        .as_deref()
        .map(str::parse::<i64>)
        .transpose()
        .map_err(|_| {
            Problem::new(Code::BadRequest, "this is no page").at("/query/cursor", "not one of ours")
        })?;
    let fetch = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut found = store::history(&app.pool, before, fetch)
        .await
        .map_err(|error| Problem::unavailable("the database is away", error))?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found
        .last()
        .filter(|_| more)
        .map(|(serial, _)| serial.to_string());
    let changes = found.into_iter().map(|(_, change)| change).collect();
    Ok(Json(BlockHistory {
        changes,
        next_cursor,
    }))
}
