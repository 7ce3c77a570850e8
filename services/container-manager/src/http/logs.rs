//! `/v1/containers/{container}/logs`: the stored output of one container.

use std::time::Duration;

use axum::extract::State;
use hayward_container_manager_api::{ContainerState, Logs};
use hayward_container_manager_domain::Piece;
use hayward_publication::publisher::MAX_WAIT;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Path, Query};
use hayward_vocabulary::AllocationId;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::{Api, containers, read_failed};
use crate::store::output;

/// Maximum number of pieces in one answer.
const PIECES: u32 = 256;
/// How often the end of a container is checked; it sends no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Output may arrive after the report of the end. A waiting request is answered with what arrives
/// within this time.
const LATE_OUTPUT: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadOptions {
    /// Bytes of output to skip: the `next_offset` of the last answer; 0 when absent.
    #[serde(default)]
    #[param(required = false)]
    offset: u64,
    /// Seconds to wait for new output; at most 25.
    #[serde(
        default,
        deserialize_with = "hayward_service::http::limits::wait_seconds"
    )]
    #[param(required = false, maximum = 25)]
    wait: u64,
}

/// Read the output of a container, and wait for more of it.
#[utoipa::path(
    get, path = "/v1/containers/{container}/logs", operation_id = "read_logs", tag = "containers",
    params(("container" = AllocationId, Path, description = "its id"), ReadOptions),
    responses(
        (status = 200, description = "the oldest stored output after the offset", body = Logs),
        (status = 403, description = "not for agents and services", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "no such container, or not visible to you", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn read_logs(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<AllocationId>,
    Query(from): Query<ReadOptions>,
) -> Result<Json<Logs>, Problem> {
    let mut deadline = Instant::now() + Duration::from_secs(from.wait).min(MAX_WAIT);
    let mut seen_ended = false;
    let mut changes = api.output_changed.subscribe(id.to_string());
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
            _ = changes.changed() => {}
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
