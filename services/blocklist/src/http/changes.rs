//! `GET /v1/blocklist/changes`: the feed for owners of worker pools, which keep a copy of the list.

use std::time::Duration;

use axum::extract::State;
use hayward_blocklist_api::{
    BlockChange, BlockEvent, ChangeKind, ChangeReason, FeedChange, FeedChanges,
};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Query};
use hayward_service::http::problem::{Code, Problem};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::App;
use crate::store;

/// Number of changes after which a response ends. A response may have a few more, because it has
/// all changes of its last version.
const CHANGES_PER_RESPONSE: i64 = 1000;
/// Maximum wait in milliseconds.
const MAX_WAIT_MS: u64 = 25_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// The `version` of `GET /v1/blocklist`, or of the last response.
    after: u64,
    /// Milliseconds to wait for a change; at most 25,000.
    #[serde(default)]
    #[param(required = false, nullable = false, maximum = 25000)]
    wait_ms: u64,
}

/// Creates the problem for a version that is not in the log.
fn resync_problem(after: u64) -> Problem {
    let detail = "RESYNC: read GET /v1/blocklist again and continue from its version";
    Problem::new(Code::Gone, format!("version {after} is not in the log"))
        .at("/query/after", detail)
}

fn to_feed_change(version: u64, change: BlockChange) -> FeedChange {
    let (kind, reason) = match change.event {
        BlockEvent::Added => (ChangeKind::Blocked, None),
        BlockEvent::Upgraded | BlockEvent::Merged => (ChangeKind::Updated, None),
        BlockEvent::Removed if change.item.canary => {
            (ChangeKind::TrialEnded, Some(ChangeReason::Removed))
        }
        BlockEvent::Removed => (ChangeKind::Unblocked, Some(ChangeReason::Removed)),
        BlockEvent::Expired => (ChangeKind::Unblocked, Some(ChangeReason::Expired)),
        BlockEvent::TrialPassed => (ChangeKind::TrialEnded, Some(ChangeReason::Passed)),
        BlockEvent::TrialUnused => (ChangeKind::TrialEnded, Some(ChangeReason::Unused)),
        BlockEvent::Unknown => (ChangeKind::Unknown, None),
    };
    FeedChange {
        version,
        kind,
        reason,
        at: change.at,
        item: change.item,
    }
}

/// List the changes after a version, in order. With `wait_ms` the request waits for the first
/// change.
#[utoipa::path(
    get, path = "/v1/blocklist/changes", operation_id = "list_block_news", tag = "blocks",
    params(ChangesQuery),
    responses(
        (status = 200, description = "changes, or none after the wait", body = FeedChanges),
        (status = 410, description = "the version is no longer in the log; read the whole list \
            again",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn list_feed_changes(
    State(app): State<App>,
    _caller: Caller,
    Query(ChangesQuery { after, wait_ms }): Query<ChangesQuery>,
) -> Result<Json<FeedChanges>, Problem> {
    if wait_ms > MAX_WAIT_MS {
        let detail = format!("must be at most {MAX_WAIT_MS}");
        return Err(Problem::new(Code::BadRequest, "invalid query").at("/query/wait_ms", detail));
    }
    let deadline = Instant::now() + Duration::from_millis(wait_ms);
    loop {
        app.publisher.readable()?;
        let current = app.publisher.revision();
        if after > current {
            return Err(resync_problem(after));
        }
        let changes = store::load_changes_after(&app.pool, after, CHANGES_PER_RESPONSE)
            .await
            .map_err(|error| Problem::unavailable("the database is unavailable", error))?;
        let changes = changes.ok_or_else(|| resync_problem(after))?;
        let remaining = deadline.saturating_duration_since(Instant::now());
        if let Some((version, _)) = changes.last() {
            let version = *version;
            let changes = changes
                .into_iter()
                .map(|(version, change)| to_feed_change(version, change))
                .collect();
            return Ok(Json(FeedChanges { changes, version }));
        }
        if remaining.is_zero() {
            return Ok(Json(FeedChanges {
                changes: Vec::new(),
                version: current,
            }));
        }
        app.publisher
            .wait_for_revision(current + 1, remaining)
            .await;
    }
}
