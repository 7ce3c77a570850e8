//! `/v1/containers/{container}/logs`: the stored output of one container.

use std::time::Duration;

use axum::extract::State;
use hayward_container_manager_api::{ContainerState, Logs};
use hayward_container_manager_domain::Chunk;
use hayward_publication::publisher::MAX_WAIT;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Path, Query};
use hayward_vocabulary::AllocationId;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::{Api, containers, database_problem};
use crate::store::output;

/// Maximum number of chunks in one response.
const MAX_CHUNKS: u32 = 256;
/// Time between two checks whether the container has ended. An end sends no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time that a request waits for more output after the end of the container. Output may
/// arrive after the report of the end.
const LATE_OUTPUT_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadOptions {
    /// Bytes of output to skip: the `next_offset` of the last response. Default: 0.
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
    params(("container" = AllocationId, Path, description = "id of the container"), ReadOptions),
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
    Query(options): Query<ReadOptions>,
) -> Result<Json<Logs>, Problem> {
    let mut deadline = Instant::now() + Duration::from_secs(options.wait).min(MAX_WAIT);
    let mut was_ended = false;
    let mut changes = api.output_changed.subscribe(id.to_string());
    loop {
        let ended = containers::find_container(&api, &caller, &id)
            .await?
            .entry
            .state
            == ContainerState::Ended;
        if ended && !was_ended {
            was_ended = true;
            deadline = deadline.min(Instant::now() + LATE_OUTPUT_WAIT);
        }
        let chunks = output::read(&api.pool, &id, options.offset, MAX_CHUNKS)
            .await
            .map_err(database_problem)?;
        if !chunks.is_empty() || Instant::now() >= deadline {
            return Ok(Json(join_chunks(id, options.offset, chunks, ended)));
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(deadline.min(Instant::now() + POLL_INTERVAL)) => {}
        }
    }
}

fn join_chunks(id: AllocationId, offset: u64, chunks: Vec<Chunk>, ended: bool) -> Logs {
    let mut logs = Logs {
        id,
        offset,
        text: String::new(),
        next_offset: offset,
        ended,
    };
    for (index, chunk) in chunks.into_iter().enumerate() {
        let chunk = chunk.skip_to(offset);
        if index == 0 {
            logs.offset = chunk.start;
        }
        logs.next_offset = chunk.end();
        logs.text.push_str(&chunk.text);
    }
    logs
}
