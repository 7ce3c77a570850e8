//! `/v1/containers/{container}/logs`: what it wrote, as far as it is kept.

use std::time::Duration;

use axum::extract::State;
use hayward_container_manager_api::{ContainerState, Logs};
use hayward_container_manager_domain::Piece;
use hayward_publication::publisher::LONGEST_WAIT;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Path, Query};
use hayward_vocabulary::AllocationId;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::{Api, containers, read_failed};
use crate::store::output;

/// Pieces in one answer at most.
const PIECES: u32 = 256;
/// The end of a container rings no bell of its own; this is how late it may be noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Output travels beside the report of the end, not before it: whoever waits for more gets what
/// arrives within this time after the end.
const LATE_OUTPUT: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadOptions {
    /// Bytes of output to skip: the `next_offset` of the last answer; 0 when absent.
    #[serde(default)]
    #[param(required = false)]
    offset: u64,
    /// Seconds to wait for more before an empty answer; at most 25.
    #[serde(default, deserialize_with = "hayward_service::http::limits::wish")]
    #[param(required = false, maximum = 25)]
    wait: u64,
}

/// Read the output of a container, and wait for more of it.
#[utoipa::path(
    get, path = "/v1/containers/{container}/logs", operation_id = "read_logs", tag = "containers",
    params(("container" = AllocationId, Path, description = "its id"), ReadOptions),
    responses(
        (status = 200, description = "the oldest that is kept from there on", body = Logs),
        (status = 403, description = "not for agents and services", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "no such container, or not yours to see", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn read_logs(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<AllocationId>,
    Query(from): Query<ReadOptions>,
) -> Result<Json<Logs>, Problem> {
    let mut deadline = Instant::now() + Duration::from_secs(from.wait).min(LONGEST_WAIT);
    let mut seen_ended = false;
    let mut ear = api.bells.listen(id.as_str());
    loop {
        let ended =
            containers::find(&api, &caller, &id).await?.entry.state == ContainerState::Ended;
        if ended && !seen_ended {
            seen_ended = true;
            deadline = deadline.min(Instant::now() + LATE_OUTPUT);
        }
        let pieces = output::read(&api.pool, &id, from.offset, PIECES)
            .await
            .map_err(read_failed)?;
        if !pieces.is_empty() || Instant::now() >= deadline {
            return Ok(Json(logs_from(id, from.offset, pieces, ended)));
        }
        tokio::select! {
            () = ear.heard() => {}
            () = tokio::time::sleep_until(deadline.min(Instant::now() + POLL_INTERVAL)) => {}
        }
    }
}

fn logs_from(id: AllocationId, offset: u64, pieces: Vec<Piece>, ended: bool) -> Logs {
    let mut logs = Logs {
        id,
        offset,
        text: String::new(),
        next_offset: offset,
        ended,
    };
    for (at, piece) in pieces.into_iter().enumerate() {
        let piece = piece.from(offset);
        if at == 0 {
            logs.offset = piece.start;
        }
        logs.next_offset = piece.end();
        logs.text.push_str(&piece.text);
    }
    logs
}
