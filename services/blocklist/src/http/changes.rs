//! `GET /v1/blocklist/changes`: the feed for owners that keep a copy of the list.

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

/// Most changes of one answer. Changes of the last version are never split, so an answer may hold a
/// few more.
const PAGE: i64 = 1000;
/// Longest wait in milliseconds.
const MAX_WAIT_MS: u64 = 25_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct After {
    /// Version of `GET /v1/blocklist`, or of the last answer.
    after: u64,
    /// Milliseconds to wait for a change; at most 25,000.
    #[serde(default)]
    #[param(required = false, nullable = false, maximum = 25000)]
    wait_ms: u64,
}

fn resync(after: u64) -> Problem {
    let detail = "RESYNC: read GET /v1/blocklist again and continue from its version";
    Problem::new(Code::Gone, format!("version {after} is not in the log"))
        .at("/query/after", detail)
}

fn feed_change(version: u64, change: BlockChange) -> FeedChange {
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

/// Changes after a version, in order: `BLOCKED`, `UPDATED`, `UNBLOCKED` with its reason, and
/// `TRIAL_ENDED`. With `wait_ms` the request waits for the first change.
#[utoipa::path(
    get, path = "/v1/blocklist/changes", operation_id = "list_block_news", tag = "blocks",
    params(After),
    responses(
        (status = 200, description = "changes, or none after the wait", body = FeedChanges),
        (status = 410, description = "the log does not reach back that far; read the whole list \
            again",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn list_block_news(
    State(app): State<App>,
    _caller: Caller,
    Query(After { after, wait_ms }): Query<After>,
) -> Result<Json<FeedChanges>, Problem> {
    if wait_ms > MAX_WAIT_MS {
        let detail = format!("at most {MAX_WAIT_MS}");
        return Err(Problem::new(Code::BadRequest, "wait too long").at("/query/wait_ms", detail));
    }
    let until = Instant::now() + Duration::from_millis(wait_ms);
    loop {
        app.publisher.readable()?;
        let seen = app.publisher.revision();
        if after > seen {
            return Err(resync(after));
        }
        let found = store::feed(&app.pool, after, PAGE)
            .await
            .map_err(|error| Problem::unavailable("the database is unavailable", error))?;
        let found = found.ok_or_else(|| resync(after))?;
        let rest = until.saturating_duration_since(Instant::now());
        if let Some((version, _)) = found.last() {
            let version = *version;
            let found = found.into_iter();
            let changes = found.map(|(version, change)| feed_change(version, change));
            let changes = changes.collect();
            return Ok(Json(FeedChanges { changes, version }));
        }
        if rest.is_zero() {
            let (changes, version) = (Vec::new(), seen);
            return Ok(Json(FeedChanges { changes, version }));
        }
        app.publisher.wait_for_revision(seen + 1, rest).await;
    }
}
