//! Telling node-status that this machine is there, what it is and how it feels. The answer says
//! when to speak next; silence is answered by speaking on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, Inventory, Metrics};
use hayward_service::{Client, Shutdown};
use hayward_vocabulary::NodeName;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::Board;
use crate::machine;
use crate::runtime::Runtime;

const FIRST_MS: u64 = 1_000;

pub struct Heart {
    pub client: Client,
    pub node: NodeName,
    pub boot_id: String,
    pub agent_instance: String,
    pub inventory: Inventory,
    /// Asked each time what it offers: a container engine may come and go.
    pub runtime: Arc<dyn Runtime>,
    /// Whose disk to measure; absent where the machine is pretended.
    pub state_dir: Option<PathBuf>,
    pub board: watch::Receiver<Board>,
}

impl Heart {
    pub async fn run(self, stop: Shutdown) {
        tokio::select! {
            () = self.beat() => {}
            () = stop.wait() => {}
        }
    }

    async fn beat(&self) {
        let path = format!("/v1/nodes/{}/heartbeat", self.node);
        let mut period_ms = FIRST_MS;
        let mut silent = false;
        // Agents that start together should not all speak in the same instant for ever.
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..20))).await;
        loop {
            let due = Instant::now() + Duration::from_millis(period_ms);
            match self
                .client
                .put::<_, HeartbeatAnswer>(&path, &self.heartbeat())
                .await
            {
                Ok(answer) => {
                    period_ms = answer.heartbeat_ms.clamp(100, 60_000);
                    silent = false;
                }
                Err(error) if !silent => {
                    tracing::warn!(%error, cause = ?error, "node-status does not answer");
                    silent = true;
                }
                Err(_) => {}
            }
            let jitter = rand::random_range(0..=period_ms / 20);
            tokio::time::sleep_until(due - Duration::from_millis(jitter)).await;
        }
    }

    fn heartbeat(&self) -> Heartbeat {
        let alive = self.board.borrow().alive();
        let metrics = match &self.state_dir {
            Some(dir) => machine::metrics(Some(dir), alive),
            None => Metrics {
                containers: alive as u64,
                ..Metrics::default()
            },
        };
        Heartbeat {
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
            inventory: Inventory {
                runtimes: self.runtime.offers(),
                ..self.inventory.clone()
            },
            metrics,
            quiesced: false,
        }
    }
}
