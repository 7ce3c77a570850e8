//! `GET /v1/blocklist/history`: past changes, each with its caller and reason.

use axum::extract::State;
use hayward_blocklist_api::BlockHistory;
use hayward_service::Listing;
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Query};
use hayward_service::http::problem::Problem;

use super::App;
use super::page::PageQuery;
use crate::store;

/// List the additions, merges, removals and expiries, newest first. At least the last 10,000 are
/// stored.
#[utoipa::path(
    get, path = "/v1/blocklist/history", operation_id = "list_block_changes", tag = "blocks",
    params(PageQuery),
    responses(
        (status = 200, description = "a page of changes", body = BlockHistory),
    ),
)]
pub async fn list_block_changes(
    State(app): State<App>,
    _caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<BlockHistory>, Problem> {
    let limit = page.limit()?;
    app.publisher.rows_readable()?;
    let listing = Listing::new("/v1/blocklist/history");
    let before = page.cursor.as_deref().map(|cursor| listing.key(cursor));
    let before = before.transpose()?;
    let revision = app.publisher.revision();
    let fetch_limit = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = store::load_history(&app.pool, before, fetch_limit)
        .await
        .map_err(|error| Problem::unavailable("the database is unavailable", error))?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| has_more);
    let next_cursor = last.map(|(serial, _)| listing.cursor(serial));
    let changes = rows.into_iter().map(|(_, change)| change).collect();
    Ok(Json(BlockHistory {
        changes,
        next_cursor,
        revision,
    }))
}
