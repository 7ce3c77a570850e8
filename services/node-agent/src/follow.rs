//! Following the node's own desired set with a long poll.
//!
//! The set is asked for in full at every start and kept in memory. Of what was seen, only the
//! newest position stays on disk: a full answer of the same history from before it means that the
//! database went back in time, and then nothing is done on its word (R9).

mod update;

use std::path::PathBuf;
use std::time::Duration;

use hayward_service::{Client, ClientError, Shutdown};
use hayward_vocabulary::NodeName;
use http::Method;
use tokio::sync::mpsc;

use crate::backoff::Pause;
use crate::fault_points::{self, Point};
use crate::files;

pub use update::{Position, Update};

const WAIT: Duration = Duration::from_secs(25);

pub struct Follower {
    pub client: Client,
    pub node: NodeName,
    /// Where the newest position is kept.
    pub position: Option<PathBuf>,
    /// Newest position that anything was done on the word of (I7).
    pub obeyed: Option<Position>,
    pub updates: mpsc::Sender<Update>,
}

impl Follower {
    pub async fn run(self, stop: Shutdown) {
        tokio::select! {
            () = self.follow() => {}
            () = stop.wait() => {}
        }
    }

    async fn follow(&self) {
        let mut cursor: Option<String> = None;
        let kept = self
            .position
            .as_ref()
            .and_then(|path| Position::parse(std::fs::read_to_string(path).ok()?.trim()));
        // Two copies: a journal may be lost, and a note may be.
        let mut seen = match (self.obeyed.clone(), kept) {
            (Some(obeyed), Some(kept)) => Some(obeyed.newer(kept)),
            (obeyed, kept) => obeyed.or(kept),
        };
        let mut pause = Pause::default();
        loop {
            match self.ask(cursor.as_deref()).await {
                Ok(update) => {
                    pause.reset();
                    let position = Position::parse(&update.cursor);
                    let back = position.as_ref().zip(seen.as_ref());
                    if back.is_some_and(|(now, seen)| now.is_before(seen)) {
                        tracing::error!(
                            cursor = %update.cursor,
                            "container-manager went back in time; the agent changes nothing"
                        );
                        // It is told what was seen here: then the whole fleet stops (R9).
                        cursor = seen.as_ref().map(ToString::to_string);
                        pause.wait().await;
                        continue;
                    }
                    cursor = Some(update.cursor.clone());
                    if position != seen {
                        seen = position;
                        self.keep(&update.cursor);
                    }
                    if !update.is_empty() && self.updates.send(update).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    if pause.is_new() {
                        tracing::warn!(%error, cause = ?error, "cannot follow the desired set");
                    }
                    pause.wait().await;
                }
            }
        }
    }

    async fn ask(&self, cursor: Option<&str>) -> Result<Update, ClientError> {
        let path = format!("/v1/desired/{}/publication", self.node);
        let mut call = self.client.call(Method::GET, path);
        if let Some(cursor) = cursor {
            call = call.query("since", cursor).query("wait", WAIT.as_secs());
        }
        call.timeout(WAIT + Duration::from_secs(10)).send().await
    }

    fn keep(&self, cursor: &str) {
        // A position that was not kept is one that a later check cannot use: no harm is done.
        fault_points::pass(Point::PositionBefore);
        if let Some(path) = &self.position
            && let Err(error) = files::note(path, cursor.as_bytes())
        {
            tracing::warn!(%error, "the position in the desired set cannot be kept");
        }
        fault_points::pass(Point::PositionAfter);
    }
}
