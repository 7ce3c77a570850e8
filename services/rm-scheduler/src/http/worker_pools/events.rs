//! Handler of `/v1/pools/{pool}/events`: events for the owner of a pool, by long poll.

use std::time::Duration;

use axum::extract::State;
use hayward_rm_scheduler_api::worker_pools::{EventList, OWNER_EPOCH};
use hayward_service::http::problem::Problem;
use hayward_service::{Json, Path, Query};
use hayward_vocabulary::WorkId;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use super::super::Api;
use super::caller_headers::CallerWithHeaders;
use super::{NoPool, NotBound, OtherOwner, require_reader, send_command, validation};
use crate::command::PoolCommand;

/// Maximum milliseconds that a request waits for an event.
const MAX_WAIT_MS: u64 = 25_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Number of the last event that was read: `after` of the last answer, or `event_seq` of the
    /// connection.
    #[serde(default)]
    #[param(required = false)]
    after: u64,
    /// Milliseconds to wait for an event before an empty answer; at most 25,000.
    #[serde(default)]
    #[param(required = false, maximum = 25_000)]
    wait_ms: u64,
}

/// Reads the events of a pool that are newer than `after`. For an owner that sends its epoch and
/// its connection, both must be the newest ones, and each request renews the lease of the owner.
/// The owner may read the events of a stopped pool until it has read the last one.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/events", operation_id = "follow_pool_events", tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"), EventsQuery,
        ("X-Owner-Epoch" = Option<u64>, Header, description = "for the owner"),
        ("X-Connection" = Option<u64>, Header, description = "for the owner"),
    ),
    responses(
        (status = 200, description = "oldest first; empty at the end of the wait",
            body = EventList),
        OtherOwner, NoPool, NotBound,
        (status = 410, description = "these events are not kept: connect again; or the pool is \
            stopped, and its owner has heard all", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_pool_events(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path(pool): Path<WorkId>,
    Query(query): Query<EventsQuery>,
) -> Result<Json<EventList>, Problem> {
    require_reader(&caller_with_headers.caller, &pool)?;
    let is_owner = caller_with_headers.caller.owns(pool.as_str())
        && caller_with_headers.headers.contains_key(OWNER_EPOCH);
    let caller = is_owner
        .then(|| validation::pool_caller(&caller_with_headers, &pool))
        .transpose()?;
    // The lease of an owner must not end during the wait, so the wait is at most half a lease.
    let lease_ms = api.context.settings.pool_owner_lease_ms;
    let max_wait_ms = MAX_WAIT_MS.min(lease_ms / 2);
    let wait = Duration::from_millis(query.wait_ms.min(max_wait_ms));
    let (deadline, after) = (Instant::now() + wait, query.after);
    let mut new_events = api.context.pool_events.subscribe();
    loop {
        new_events.mark_unchanged();
        let command = |reply| PoolCommand::ReadEvents {
            pool: pool.clone(),
            caller,
            after,
            reply,
        };
        let list = send_command(&api, command).await?.value;
        let timed_out = Instant::now() >= deadline;
        if timed_out || !list.events.is_empty() {
            return Ok(Json(list));
        }
        // The event may be of another pool, so the events are read again in every case.
        drop(timeout_at(deadline, new_events.changed()).await);
    }
}
