//! Sends the output of containers to container-manager: only new bytes, in small pieces. If a
//! container writes faster than pieces are sent, older output is skipped (I25). The offset of a
//! container advances only when a request was accepted, so a lost request loses no output.
//!
//! The last output of an ended container is sent at once. Its end is reported only afterwards,
//! because the container is removed soon after that report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::{ContainerReport, ContainerState, OutputChunk, OutputReport};
use hayward_service::{Client, ClientError, Shutdown};
use hayward_vocabulary::{AllocationId, NodeName};
use http::Method;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::agent::AgentStatus;
use crate::backoff::Backoff;
use crate::fault_points::{self, Point};
use crate::report::{Flushed, refused_items};
use crate::runtime::{OutputPiece, Runtime};

const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum bytes of one container in a request.
const MAX_CONTAINER_BYTES: u64 = 64 << 10;
/// Maximum bytes in a request.
const MAX_REPORT_BYTES: u64 = 256 << 10;
/// Maximum bytes of a container that wait to be sent. Older output is skipped.
const MAX_BACKLOG_BYTES: u64 = 256 << 10;
/// Time limit for sending the remaining output when the agent stops.
const FINAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Background loop that sends the output of containers.
pub struct OutputSender {
    pub client: Client,
    pub node: NodeName,
    pub runtime: Arc<dyn Runtime>,
    pub status: watch::Receiver<AgentStatus>,
    /// Ended containers whose output was sent completely.
    pub flushed: watch::Sender<Flushed>,
}

/// Offset of the next byte to send, by container.
type SentOffsets = BTreeMap<AllocationId, u64>;

impl OutputSender {
    pub async fn run(mut self, stop: Shutdown) {
        let mut sent = SentOffsets::new();
        tokio::select! {
            () = self.send_loop(&mut sent) => {}
            () = stop.wait() => {}
        }
        // The remaining output is sent before the agent ends.
        let last_send = async {
            while let Some(chunks) = self.collect_chunks(&sent, false) {
                let ends = end_offsets(&chunks);
                if self.send(chunks).await.is_err() {
                    break;
                }
                sent.extend(ends);
            }
            self.publish_flushed(&mut sent);
        };
        let _ = timeout(FINAL_TIMEOUT, last_send).await;
    }

    async fn send_loop(&mut self, sent: &mut SentOffsets) {
        let mut backoff = Backoff::default();
        let mut next_poll = Instant::now();
        loop {
            // Between two full polls, only ended containers are read.
            let is_full_poll = Instant::now() >= next_poll;
            if is_full_poll {
                next_poll = Instant::now() + POLL_INTERVAL;
            }
            self.status.mark_unchanged();
            let chunks = self.collect_chunks(sent, !is_full_poll);
            let has_more = chunks.is_some();
            if let Some(chunks) = chunks {
                let ends = end_offsets(&chunks);
                fault_points::pass(Point::OutputBefore);
                match self.send(chunks).await {
                    Ok(()) => {
                        fault_points::pass(Point::OutputAfter);
                        backoff.reset();
                        sent.extend(ends);
                    }
                    Err(error) => {
                        if backoff.is_first_failure() {
                            tracing::warn!(%error, cause = ?error, "cannot send output");
                        }
                        // A retry would be refused again and block other output (I26).
                        if is_permanent(&error) {
                            sent.extend(ends);
                        } else {
                            let refused_indices = refused_items(&error, "chunks");
                            let refused_ends = refused_indices
                                .into_iter()
                                .filter_map(|index| ends.get(index));
                            sent.extend(refused_ends.cloned());
                        }
                        backoff.wait().await;
                    }
                }
            }
            self.publish_flushed(sent);
            if !has_more {
                // If no container writes, the loop waits for a change of the status.
                let may_have_output =
                    self.runtime.has_output() && !self.status.borrow().containers.is_empty();
                tokio::select! {
                    changed = self.status.changed() => if changed.is_err() { return },
                    () = sleep_until(next_poll), if may_have_output => {}
                }
            }
        }
    }

    /// Publishes the ended containers whose output was sent. Drops offsets of forgotten containers.
    fn publish_flushed(&self, sent: &mut SentOffsets) {
        let containers = Arc::clone(&self.status.borrow().containers);
        let flushed_before = Arc::clone(&self.flushed.borrow());
        let is_flushed = |report: &&ContainerReport| {
            let offset = sent.get(&report.id).copied().unwrap_or(0);
            let has_more = || {
                self.runtime
                    .output(&report.id, offset, 1, MAX_BACKLOG_BYTES)
                    .is_some()
            };
            report.state == ContainerState::Ended
                && (flushed_before.contains(&report.id) || !has_more())
        };
        let flushed: BTreeSet<_> = containers
            .iter()
            .filter(is_flushed)
            .map(|report| report.id.clone())
            .collect();
        self.flushed.send_if_modified(|published| {
            let changed = **published != flushed;
            *published = Arc::new(flushed);
            changed
        });
        let known: BTreeSet<_> = containers.iter().map(|report| &report.id).collect();
        sent.retain(|id, _| known.contains(id));
    }

    /// Collects new output of all containers, or only of ended ones, within the limits. Returns
    /// `None` if there is none.
    fn collect_chunks(&self, sent: &SentOffsets, ended_only: bool) -> Option<Vec<OutputChunk>> {
        let containers = Arc::clone(&self.status.borrow().containers);
        let flushed = Arc::clone(&self.flushed.borrow());
        let mut remaining = MAX_REPORT_BYTES;
        let mut chunks = Vec::new();
        for report in containers.iter() {
            let max_bytes = remaining.min(MAX_CONTAINER_BYTES);
            if max_bytes == 0 {
                break;
            }
            let ended = report.state == ContainerState::Ended;
            if flushed.contains(&report.id) || (ended_only && !ended) {
                continue;
            }
            let offset = sent.get(&report.id).copied().unwrap_or(0);
            let Some(mut piece) =
                self.runtime
                    .output(&report.id, offset, max_bytes, MAX_BACKLOG_BYTES)
            else {
                continue;
            };
            let is_last_piece = ended && (piece.bytes.len() as u64) < max_bytes;
            if !is_last_piece {
                truncate_to_whole_characters(&mut piece);
            }
            if piece.bytes.is_empty() {
                continue;
            }
            let bytes = piece.bytes.len() as u64;
            remaining -= bytes;
            let text = String::from_utf8_lossy(&piece.bytes).replace('\0', "\u{fffd}");
            chunks.push(OutputChunk {
                id: report.id.clone(),
                offset: piece.offset,
                text,
                bytes,
            });
        }
        (!chunks.is_empty()).then_some(chunks)
    }

    async fn send(&self, chunks: Vec<OutputChunk>) -> Result<(), ClientError> {
        let path = format!("/v1/nodes/{}/output", self.node);
        let call = self
            .client
            .call(Method::PUT, path)
            .body(&OutputReport { chunks });
        call.send::<serde_json::Value>().await.map(drop)
    }
}

/// Returns whether a retry of the request would fail too.
fn is_permanent(error: &ClientError) -> bool {
    let status = error.problem().map(|problem| problem.status().as_u16());
    matches!(status, Some(400 | 413 | 422))
}

fn end_offsets(chunks: &[OutputChunk]) -> Vec<(AllocationId, u64)> {
    let end_offset = |chunk: &OutputChunk| (chunk.id.clone(), chunk.offset + chunk.bytes);
    chunks.iter().map(end_offset).collect()
}

/// Leaves an incomplete character at the end for the next piece.
fn truncate_to_whole_characters(piece: &mut OutputPiece) {
    if let Err(error) = std::str::from_utf8(&piece.bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        piece.bytes.truncate(error.valid_up_to());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_not_split() {
        let mut piece = OutputPiece {
            offset: 0,
            bytes: "aä".as_bytes()[..2].to_vec(),
        };
        truncate_to_whole_characters(&mut piece);
        assert_eq!(piece.bytes, b"a");
        let mut piece = OutputPiece {
            offset: 0,
            bytes: vec![b'a', 0xff, b'b'],
        };
        truncate_to_whole_characters(&mut piece);
        assert_eq!(piece.bytes.len(), 3);
    }
}
