//! `/v1/logs/{work}`: the output of all containers of a job, a service or an application. It covers
//! all instances, tasks, retries and nodes.
//!
//! The client sends a cursor with a position in each container, so the service stores nothing per
//! reader. A response is limited in chunks, bytes and containers. It contains the number of
//! omitted containers and bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use hayward_container_manager_api::{ContainerState, WorkLogChunk, WorkLogs};
use hayward_container_manager_domain::LogCursor;
use hayward_publication::publisher::MAX_WAIT;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Path, Query};
use hayward_vocabulary::{AllocationId, Timestamp, WorkId};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::{Api, database_problem, owner_filter_for_reads};
use crate::store::work_output::{self, OutputHead, ReadChunk};

/// Maximum number of chunks in one response.
const MAX_CHUNKS: u32 = 256;
/// Bytes of output after which no further chunk is added to a response.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of containers in one response; the newest are chosen.
const MAX_CONTAINERS: u32 = 256;
/// Time between two checks for started and ended containers, which send no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum value of `tail`.
const MAX_TAIL_LINES: u32 = 1000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadOptions {
    /// The `cursor` of the last response. Without one, all stored output is returned.
    #[param(
        nullable = false,
        required = false,
        pattern = "^([A-Za-z0-9][A-Za-z0-9._-]{0,127}:[0-9]{1,19}!?\
            (,[A-Za-z0-9][A-Za-z0-9._-]{0,127}:[0-9]{1,19}!?)*)?$"
    )]
    cursor: Option<String>,
    /// Seconds to wait for new output; at most 25.
    #[serde(
        default,
        deserialize_with = "hayward_service::http::limits::wait_seconds"
    )]
    #[param(required = false, maximum = 25)]
    wait: u64,
    /// Without a cursor: start with this many last lines of each container; 0 for new output only.
    #[param(nullable = false, required = false, maximum = 1000)]
    tail: Option<u32>,
    /// Without a cursor: start with the output that arrived at this time.
    #[param(value_type = Option<String>, format = DateTime, nullable = false, required = false)]
    since: Option<Timestamp>,
}

/// Read the output of all containers of a job, a service or an application, and wait for more.
///
/// `app_….N` is one task of an application, `app_…` all of them.
#[utoipa::path(
    get, path = "/v1/logs/{work}", operation_id = "read_work_logs", tag = "containers",
    params(("work" = WorkId, Path, description = "id of a job, a service or an
        application, or of one of its instances or tasks"), ReadOptions),
    responses(
        (status = 200, description = "in order of arrival; empty if nothing has started",
            body = WorkLogs),
        (status = 403, description = "not for agents and services", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "invalid parameters, or a cursor together with `tail` or \
            `since`",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn read_work_logs(
    State(api): State<Api>,
    caller: Caller,
    Path(work): Path<WorkId>,
    Query(options): Query<ReadOptions>,
) -> Result<Json<WorkLogs>, Problem> {
    let user = owner_filter_for_reads(&caller)?;
    api.publisher().rows_readable()?;
    let deadline = Instant::now() + Duration::from_secs(options.wait).min(MAX_WAIT);
    let mut changes = api.output_changed.subscribe(work.parent().to_string());
    let mut reader = WorkLogReader::new(&api, work, user, options).await?;
    loop {
        let logs = reader.read(&api).await?;
        let has_changes = !(logs.chunks.is_empty() && logs.ended.is_empty());
        if has_changes || Instant::now() >= deadline {
            return Ok(Json(logs));
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(deadline.min(Instant::now() + POLL_INTERVAL)) => {}
        }
    }
}

fn invalid_parameter(parameter: &str, detail: &str) -> Problem {
    let problem = Problem::new(Code::Invalid, "invalid start of the output");
    problem.at(format!("/query/{parameter}"), detail)
}

/// The state of one read request.
struct WorkLogReader {
    work: WorkId,
    user: Option<String>,
    cursor: LogCursor,
}

impl WorkLogReader {
    async fn new(
        api: &Api,
        work: WorkId,
        user: Option<String>,
        options: ReadOptions,
    ) -> Result<Self, Problem> {
        let mut reader = Self {
            work,
            user,
            cursor: LogCursor::default(),
        };
        let has_start = options.tail.is_some() || options.since.is_some();
        if options.tail.is_some_and(|lines| lines > MAX_TAIL_LINES) {
            return Err(invalid_parameter("tail", "must be at most 1000"));
        }
        match options.cursor {
            Some(_) if has_start => {
                let detail = "must not be used together with tail or since";
                return Err(invalid_parameter("cursor", detail));
            }
            Some(cursor) => {
                let detail = "must be the cursor of an earlier response, \
                              or absent to start from the beginning";
                reader.cursor =
                    LogCursor::parse(&cursor).ok_or_else(|| invalid_parameter("cursor", detail))?;
            }
            None if has_start => {
                reader
                    .skip_to_start(api, options.tail, options.since)
                    .await?;
            }
            None => {}
        }
        Ok(reader)
    }

    /// Returns how much output the newest containers have, and the number of older containers.
    async fn load_heads(&self, api: &Api) -> Result<(Vec<OutputHead>, u64), Problem> {
        let user = self.user.as_deref();
        let heads = work_output::load_heads(&api.pool, &self.work, user, MAX_CONTAINERS).await;
        heads.map_err(database_problem)
    }

    /// Skips the output before `tail` and `since` in each container.
    async fn skip_to_start(
        &mut self,
        api: &Api,
        tail: Option<u32>,
        since: Option<Timestamp>,
    ) -> Result<(), Problem> {
        let (heads, _) = self.load_heads(api).await?;
        let ids: Vec<String> = heads.iter().map(|head| head.entry.id.to_string()).collect();
        let mut start_offsets = Vec::new();
        if let Some(lines) = tail {
            let tail_offsets = work_output::load_tail_offsets(&api.pool, &ids, lines).await;
            start_offsets.push(tail_offsets.map_err(database_problem)?);
        }
        if let Some(time) = since {
            let since_offsets = work_output::load_offsets_since(&api.pool, &ids, time).await;
            start_offsets.push(since_offsets.map_err(database_problem)?);
        }
        // A container without such output starts at the end of what it has written.
        for head in heads {
            let start_offset = |offsets: &BTreeMap<String, u64>| {
                offsets
                    .get(head.entry.id.as_str())
                    .copied()
                    .unwrap_or(head.written)
            };
            let offset = start_offsets.iter().map(start_offset).max().unwrap_or(0);
            self.cursor
                .positions
                .entry(head.entry.id)
                .or_default()
                .offset = offset;
        }
        Ok(())
    }

    /// Reads the stored output after the cursor.
    async fn read(&mut self, api: &Api) -> Result<WorkLogs, Problem> {
        let (heads, left_out) = self.load_heads(api).await?;
        let is_behind =
            |head: &&OutputHead| self.cursor.position(&head.entry.id).offset < head.written;
        let positions: BTreeMap<AllocationId, u64> = heads
            .iter()
            .filter(is_behind)
            .map(|head| {
                (
                    head.entry.id.clone(),
                    self.cursor.position(&head.entry.id).offset,
                )
            })
            .collect();
        let chunks = if positions.is_empty() {
            Vec::new()
        } else {
            let chunks =
                work_output::read_after(&api.pool, &positions, MAX_CHUNKS, MAX_BYTES).await;
            chunks.map_err(database_problem)?
        };
        Ok(self.advance(&heads, left_out, chunks))
    }

    /// Moves the cursor over the chunks and over the containers that have ended. Returns the
    /// response with both.
    fn advance(&mut self, heads: &[OutputHead], left_out: u64, chunks: Vec<ReadChunk>) -> WorkLogs {
        // Positions of containers that are no longer listed are dropped.
        let positions = heads.iter().map(|head| {
            let id = &head.entry.id;
            (id.clone(), self.cursor.position(id))
        });
        let mut positions: BTreeMap<_, _> = positions.collect();
        let heads_by_id: BTreeMap<&AllocationId, &OutputHead> =
            heads.iter().map(|head| (&head.entry.id, head)).collect();
        let mut log_chunks = Vec::new();
        for ReadChunk {
            container,
            arrived_at,
            chunk,
        } in chunks
        {
            let (Some(head), Some(position)) =
                (heads_by_id.get(&container), positions.get_mut(&container))
            else {
                continue;
            };
            let missed_bytes = chunk.start.saturating_sub(position.offset);
            let chunk = chunk.skip_to(position.offset);
            position.offset = chunk.end();
            log_chunks.push(WorkLogChunk {
                container,
                work: head.entry.work.clone(),
                node: head.entry.node.clone(),
                at: Some(arrived_at),
                offset: chunk.start,
                missed_bytes,
                text: chunk.text,
            });
        }
        let live = heads.iter().filter(|head| !has_ended(head)).count() as u64;
        let mut ended = Vec::new();
        for head in heads {
            let Some(position) = positions.get_mut(&head.entry.id) else {
                continue;
            };
            // The output of the container is no longer stored.
            if !head.has_output && position.offset < head.written {
                log_chunks.push(deleted_output_chunk(head, position.offset));
                position.offset = head.written;
            }
            if has_ended(head) && !position.ended && position.offset >= head.written {
                position.ended = true;
                ended.push(head.entry.clone());
            }
        }
        self.cursor = LogCursor { positions };
        WorkLogs {
            chunks: log_chunks,
            ended,
            live,
            left_out,
            cursor: self.cursor.to_string(),
        }
    }
}

fn has_ended(head: &OutputHead) -> bool {
    head.entry.state == ContainerState::Ended
}

/// Creates an empty chunk that counts the output which is no longer stored.
fn deleted_output_chunk(head: &OutputHead, offset: u64) -> WorkLogChunk {
    WorkLogChunk {
        container: head.entry.id.clone(),
        work: head.entry.work.clone(),
        node: head.entry.node.clone(),
        at: None,
        offset: head.written,
        missed_bytes: head.written - offset,
        text: String::new(),
    }
}
