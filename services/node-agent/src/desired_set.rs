//! Follows the desired set of the node by long polling.
//!
//! The set is fetched in full at every start and stays in memory. Only the newest position is
//! on disk. A full set of the same history but from an older position means that the database was
//! restored. The agent then ignores the set (R9).

mod update;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hayward_service::{Client, ClientError, Shutdown};
use hayward_vocabulary::NodeName;
use http::Method;
use tokio::sync::mpsc;

use crate::atomic_files;
use crate::backoff::Backoff;
use crate::fault_points::{self, Point};

pub use update::{Position, Update};

/// Time for which container-manager may wait for a change before it answers.
const POLL_TIMEOUT: Duration = Duration::from_secs(25);

/// Returns the path of the file with the newest position in the desired set.
pub fn position_file(state_dir: &Path) -> PathBuf {
    state_dir.join("position")
}

/// Background loop that follows the desired set.
pub struct DesiredSetFollower {
    pub client: Client,
    pub node: NodeName,
    /// File with the newest position. `None` if the position is not stored.
    pub position_file: Option<PathBuf>,
    /// Newest position that the journal records as acted on (I7).
    pub last_applied: Option<Position>,
    pub updates: mpsc::Sender<Update>,
}

impl DesiredSetFollower {
    pub async fn run(self, stop: Shutdown) {
        tokio::select! {
            () = self.follow() => {}
            () = stop.wait() => {}
        }
    }

    async fn follow(&self) {
        let mut cursor: Option<String> = None;
        let stored = self
            .position_file
            .as_ref()
            .and_then(|path| Position::parse(std::fs::read_to_string(path).ok()?.trim()));
        // The position has two copies, because either the journal or the file may be lost.
        let mut newest = match (self.last_applied.clone(), stored) {
            (Some(last_applied), Some(stored)) => Some(last_applied.newer_of(stored)),
            (last_applied, stored) => last_applied.or(stored),
        };
        let mut backoff = Backoff::default();
        loop {
            match self.poll(cursor.as_deref()).await {
                Ok(update) => {
                    backoff.reset();
                    let position = Position::parse(&update.cursor);
                    let positions = position.as_ref().zip(newest.as_ref());
                    if positions.is_some_and(|(current, newest)| current.is_before(newest)) {
                        tracing::error!(
                            cursor = %update.cursor,
                            "container-manager went back in time; the agent changes nothing"
                        );
                        // The newer position shows container-manager that its database was
                        // restored. container-manager then stops the fleet (R9).
                        cursor = newest.as_ref().map(ToString::to_string);
                        backoff.wait().await;
                        continue;
                    }
                    cursor = Some(update.cursor.clone());
                    if position != newest {
                        newest = position;
                        self.store_position(&update.cursor);
                    }
                    if !update.is_empty() && self.updates.send(update).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    if backoff.is_first_failure() {
                        tracing::warn!(%error, cause = ?error, "cannot follow the desired set");
                    }
                    backoff.wait().await;
                }
            }
        }
    }

    async fn poll(&self, cursor: Option<&str>) -> Result<Update, ClientError> {
        let path = format!("/v1/desired/{}/publication", self.node);
        let mut call = self.client.call(Method::GET, path);
        if let Some(cursor) = cursor {
            call = call
                .query("since", cursor)
                .query("wait", POLL_TIMEOUT.as_secs());
        }
        call.timeout(POLL_TIMEOUT + Duration::from_secs(10))
            .send()
            .await
    }

    fn store_position(&self, cursor: &str) {
        // Without a stored position, a later agent cannot detect a restored database. A failure is
        // therefore only logged.
        fault_points::pass(Point::PositionBefore);
        if let Some(path) = &self.position_file
            && let Err(error) = atomic_files::replace_unsynced(path, cursor.as_bytes())
        {
            tracing::warn!(%error, "cannot store the position in the desired set");
        }
        fault_points::pass(Point::PositionAfter);
    }
}
