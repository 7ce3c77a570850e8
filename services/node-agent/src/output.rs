//! Sending on what containers write: new bytes only, a little at a time, and of a container that
//! writes faster than that only the end (I25). Losing a request loses nothing: the place is moved
//! on only when it was accepted.
//!
//! An end is looked after at once, and whoever reports it is told when the last of the output has
//! arrived: once an end is known above, the container is soon forgotten here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::{ContainerReport, ContainerState, OutputChunk, OutputReport};
use hayward_service::{Client, ClientError, Shutdown};
use hayward_vocabulary::{AllocationId, NodeName};
use http::Method;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::agent::Board;
use crate::backoff::Pause;
use crate::fault_points::{self, Point};
use crate::report::refused_items;
use crate::runtime::{Piece, Runtime};

const LOOK: Duration = Duration::from_millis(250);
const PER_CONTAINER: u64 = 64 << 10;
const PER_REPORT: u64 = 256 << 10;
const BACKLOG: u64 = 256 << 10;
const LAST: Duration = Duration::from_secs(2);

/// Ended containers of which nothing is left to send.
pub type Drained = Arc<BTreeSet<AllocationId>>;

pub struct Shipper {
    pub client: Client,
    pub node: NodeName,
    pub runtime: Arc<dyn Runtime>,
    pub board: watch::Receiver<Board>,
    pub drained: watch::Sender<Drained>,
}

type Sent = BTreeMap<AllocationId, u64>;

impl Shipper {
    pub async fn run(mut self, stop: Shutdown) {
        let mut sent = Sent::new();
        tokio::select! {
            () = self.ship_on(&mut sent) => {}
            () = stop.wait() => {}
        }
        // What the last containers said before they were ended.
        let rest = async {
            while let Some(chunks) = self.gather(&sent, false) {
                let ends = ends(&chunks);
                if self.send(chunks).await.is_err() {
                    break;
                }
                sent.extend(ends);
            }
            self.tell(&mut sent);
        };
        let _ = timeout(LAST, rest).await;
    }

    async fn ship_on(&mut self, sent: &mut Sent) {
        let mut pause = Pause::default();
        let mut look_at = Instant::now();
        loop {
            // Between two looks at everything only what has ended is looked at.
            let all = Instant::now() >= look_at;
            if all {
                look_at = Instant::now() + LOOK;
            }
            self.board.mark_unchanged();
            let chunks = self.gather(sent, !all);
            let more = chunks.is_some();
            if let Some(chunks) = chunks {
                let ends = ends(&chunks);
                fault_points::pass(Point::OutputBefore);
                match self.send(chunks).await {
                    Ok(()) => {
                        fault_points::pass(Point::OutputAfter);
                        pause.reset();
                        sent.extend(ends);
                    }
                    Err(error) => {
                        if pause.is_new() {
                            tracing::warn!(%error, cause = ?error, "cannot send output on");
                        }
                        // I26: sent again, it would be refused again, and hold up the others.
                        if is_final(&error) {
                            sent.extend(ends);
                        } else {
                            let foreign = refused_items(&error, "chunks");
                            let named = foreign.into_iter().filter_map(|at| ends.get(at));
                            sent.extend(named.cloned());
                        }
                        pause.wait().await;
                    }
                }
            }
            self.tell(sent);
            if !more {
                // Where nothing can write there is nothing to look at before the board changes.
                let writes = self.runtime.writes() && !self.board.borrow().containers.is_empty();
                tokio::select! {
                    changed = self.board.changed() => if changed.is_err() { return },
                    () = sleep_until(look_at), if writes => {}
                }
            }
        }
    }

    /// Says which ended containers have nothing left to send, and drops what is forgotten.
    fn tell(&self, sent: &mut Sent) {
        let containers = Arc::clone(&self.board.borrow().containers);
        let before = Arc::clone(&self.drained.borrow());
        let is_drained = |report: &&ContainerReport| {
            let from = sent.get(&report.id).copied().unwrap_or(0);
            let has_more = || self.runtime.output(&report.id, from, 1, BACKLOG).is_some();
            report.state == ContainerState::Ended && (before.contains(&report.id) || !has_more())
        };
        let drained: BTreeSet<_> = containers
            .iter()
            .filter(is_drained)
            .map(|report| report.id.clone())
            .collect();
        self.drained.send_if_modified(|told| {
            let news = **told != drained;
            *told = Arc::new(drained);
            news
        });
        let known: BTreeSet<_> = containers.iter().map(|report| &report.id).collect();
        sent.retain(|id, _| known.contains(id));
    }

    /// New output of all containers, or of the ended ones, within the limits; none when there is
    /// none.
    fn gather(&self, sent: &Sent, ended_only: bool) -> Option<Vec<OutputChunk>> {
        let containers = Arc::clone(&self.board.borrow().containers);
        let drained = Arc::clone(&self.drained.borrow());
        let mut room = PER_REPORT;
        let mut chunks = Vec::new();
        for report in containers.iter() {
            let most = room.min(PER_CONTAINER);
            if most == 0 {
                break;
            }
            let ended = report.state == ContainerState::Ended;
            if drained.contains(&report.id) || (ended_only && !ended) {
                continue;
            }
            let from = sent.get(&report.id).copied().unwrap_or(0);
            let Some(mut piece) = self.runtime.output(&report.id, from, most, BACKLOG) else {
                continue;
            };
            let last = ended && (piece.bytes.len() as u64) < most;
            if !last {
                keep_whole_characters(&mut piece);
            }
            if piece.bytes.is_empty() {
                continue;
            }
            let bytes = piece.bytes.len() as u64;
            room -= bytes;
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

/// The request itself is wrong.
fn is_final(error: &ClientError) -> bool {
    let status = error.problem().map(|problem| problem.status().as_u16());
    matches!(status, Some(400 | 413 | 422))
}

fn ends(chunks: &[OutputChunk]) -> Vec<(AllocationId, u64)> {
    let end = |chunk: &OutputChunk| (chunk.id.clone(), chunk.offset + chunk.bytes);
    chunks.iter().map(end).collect()
}

/// Leaves the beginning of a character at the end for the next piece.
fn keep_whole_characters(piece: &mut Piece) {
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
    fn a_character_is_not_cut_in_two() {
        let mut piece = Piece {
            offset: 0,
            bytes: "aä".as_bytes()[..2].to_vec(),
        };
        keep_whole_characters(&mut piece);
        assert_eq!(piece.bytes, b"a");
        let mut piece = Piece {
            offset: 0,
            bytes: vec![b'a', 0xff, b'b'],
        };
        keep_whole_characters(&mut piece);
        assert_eq!(piece.bytes.len(), 3);
    }
}
