//! Sending on what containers write: new bytes only, a little at a time, and of a container that
//! writes faster than that only the end (I25). Losing a request loses nothing: the place is moved
//! on only when it was accepted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::{ContainerState, OutputChunk, OutputReport};
use hayward_service::{Client, Shutdown};
use hayward_vocabulary::{AllocationId, NodeName};
use http::Method;
use tokio::sync::watch;

use crate::agent::Board;
use crate::pause::Pause;
use crate::runtime::{Piece, Runtime};

const LOOK: Duration = Duration::from_millis(250);
const PER_CONTAINER: u64 = 64 << 10;
const PER_REPORT: u64 = 256 << 10;
const BACKLOG: u64 = 256 << 10;

pub struct Shipper {
    pub client: Client,
    pub node: NodeName,
    pub runtime: Arc<dyn Runtime>,
    pub board: watch::Receiver<Board>,
}

impl Shipper {
    pub async fn run(self, stop: Shutdown) {
        let mut sent = BTreeMap::new();
        tokio::select! {
            () = self.ship_on(&mut sent) => {}
            () = stop.wait() => {}
        }
        // What the last containers said before they were ended.
        if let Some(chunks) = self.gather(&sent) {
            let _ = tokio::time::timeout(Duration::from_secs(2), self.send(chunks)).await;
        }
    }

    async fn ship_on(&self, sent: &mut BTreeMap<AllocationId, u64>) {
        let mut pause = Pause::default();
        loop {
            let Some(chunks) = self.gather(sent) else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let ends: Vec<_> = chunks
                .iter()
                .map(|chunk| (chunk.id.clone(), chunk.offset + chunk.bytes))
                .collect();
            match self.send(chunks).await {
                Ok(()) => {
                    pause.reset();
                    sent.extend(ends);
                }
                Err(error) => {
                    if pause.is_new() {
                        tracing::warn!(%error, cause = ?error, "cannot send output on");
                    }
                    pause.wait().await;
                }
            }
            self.drop_forgotten(sent);
        }
    }

    fn drop_forgotten(&self, sent: &mut BTreeMap<AllocationId, u64>) {
        let board = self.board.borrow();
        let known: std::collections::BTreeSet<_> =
            board.containers.iter().map(|report| &report.id).collect();
        sent.retain(|id, _| known.contains(id));
    }

    /// New output of all containers, within the limits; none when there is none.
    fn gather(&self, sent: &BTreeMap<AllocationId, u64>) -> Option<Vec<OutputChunk>> {
        let containers = Arc::clone(&self.board.borrow().containers);
        let mut room = PER_REPORT;
        let mut chunks = Vec::new();
        for report in containers.iter() {
            let most = room.min(PER_CONTAINER);
            if most == 0 {
                break;
            }
            let from = sent.get(&report.id).copied().unwrap_or(0);
            let Some(mut piece) = self.runtime.output(&report.id, from, most, BACKLOG) else {
                continue;
            };
            let last = report.state == ContainerState::Ended && (piece.bytes.len() as u64) < most;
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

    async fn send(&self, chunks: Vec<OutputChunk>) -> Result<(), hayward_service::ClientError> {
        let path = format!("/v1/nodes/{}/output", self.node);
        let call = self
            .client
            .call(Method::PUT, path)
            .body(&OutputReport { chunks });
        call.send::<serde_json::Value>().await.map(drop)
    }
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
