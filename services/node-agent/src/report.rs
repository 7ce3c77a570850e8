//! Telling container-manager what runs here: the whole list, at once when it changed and now and
//! then anyway. Changes during a report are told together in the next one.

use std::time::Duration;

use hayward_container_manager_api::{Report, ReportAnswer};
use hayward_service::{Client, ClientError, Shutdown};
use hayward_vocabulary::NodeName;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::agent::Board;
use crate::pause::Pause;

/// A report that nobody asked for, in case one was lost on the other side.
const ANYWAY: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_secs(2);

pub struct Reporter {
    pub client: Client,
    pub node: NodeName,
    pub boot_id: String,
    pub agent_instance: String,
    pub board: watch::Receiver<Board>,
}

impl Reporter {
    /// `stop` comes after the last change of the board, so that the last report tells it.
    pub async fn run(mut self, stop: Shutdown) {
        let mut sequence = 0;
        tokio::select! {
            () = self.report_on(&mut sequence) => {}
            () = stop.wait() => {}
        }
        let board = self.board.borrow().clone();
        // Nobody may be there to hear it; the journal knows it too.
        let _ = timeout(LAST, self.send(&board, sequence + 1)).await;
    }

    async fn report_on(&mut self, sequence: &mut u64) {
        let mut pause = Pause::default();
        loop {
            let board = self.board.borrow_and_update().clone();
            *sequence += 1;
            match self.send(&board, *sequence).await {
                Ok(_) => {
                    pause.reset();
                    tokio::select! {
                        changed = self.board.changed() => if changed.is_err() { return },
                        () = sleep(ANYWAY) => {}
                    }
                }
                Err(error) => {
                    if pause.is_new() {
                        tracing::warn!(%error, cause = ?error, "cannot report");
                    }
                    pause.wait().await;
                }
            }
        }
    }

    async fn send(&self, board: &Board, sequence: u64) -> Result<ReportAnswer, ClientError> {
        let report = Report {
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
            sequence,
            cursor: board.cursor.clone(),
            complete: board.complete,
            containers: board.containers.to_vec(),
        };
        self.client
            .put(&format!("/v1/nodes/{}/report", self.node), &report)
            .await
    }
}
