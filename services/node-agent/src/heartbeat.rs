//! Telling node-status that this machine is there, what it is and how it feels. The answer says
//! when to speak next; silence is answered by speaking on.

use std::time::Duration;

use hayward_node_status_api::HeartbeatAnswer;
use hayward_service::{Client, Shutdown};
use hayward_vocabulary::NodeName;
use http::Method;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::Board;
use crate::lease::{Keeper, boottime_ms};
use crate::node_condition::Condition;

const FIRST_MS: u64 = 1_000;
/// Why a node whose agent was stopped takes no new work.
const GOODBYE: &str = "its agent was stopped";
/// How long stopping waits for node-status to have heard of it.
const PATIENCE: Duration = Duration::from_secs(1);

pub struct Heart {
    pub client: Client,
    pub node: NodeName,
    pub condition: Condition,
    pub board: watch::Receiver<Board>,
    /// It is silent until the orders of the node were seen.
    pub waits: bool,
    /// Hears what the answers grant.
    pub keeper: Keeper,
}

impl Heart {
    pub async fn run(mut self, stop: Shutdown) {
        tokio::select! {
            () = self.beat() => {}
            () = stop.wait() => {}
        }
        if self.condition.machine.is_some() {
            self.say_goodbye().await;
        }
    }

    /// Until an agent is heard again this machine takes nothing new: nobody would start it, and who
    /// comes back may offer something else, as when its container engine was taken away. One try:
    /// where nobody listens, the silence says it later.
    async fn say_goodbye(&mut self) {
        let board = self.board.borrow().clone();
        let mut beat = self.condition.heartbeat(&board).await;
        beat.quiesced = true;
        beat.quiesce_reason = Some(GOODBYE.to_owned());
        let path = format!("/v1/nodes/{}/heartbeat", self.node);
        let call = self.client.call(Method::PUT, path).body(&beat);
        if let Err(error) = call.timeout(PATIENCE).send::<HeartbeatAnswer>().await {
            tracing::debug!(%error, "node-status did not hear that this agent stops");
        }
    }

    async fn beat(&mut self) {
        let seen = |board: &Board| board.cursor.is_some();
        if self.waits && self.board.wait_for(seen).await.is_err() {
            return;
        }
        let path = format!("/v1/nodes/{}/heartbeat", self.node);
        let mut period_ms = FIRST_MS;
        let mut silent = false;
        // Agents that start together should not all speak in the same instant for ever.
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..20))).await;
        loop {
            let due = Instant::now() + Duration::from_millis(period_ms);
            let board = self.board.borrow().clone();
            let beat = self.condition.heartbeat(&board).await;
            // A lease counts from before it left, whatever the answer takes (I4).
            let asked_ms = boottime_ms();
            let call = self.client.call(Method::PUT, path.as_str()).body(&beat);
            // An answer that is lost must not keep the next heartbeat from being sent.
            let patience = Duration::from_millis((period_ms * 2).clamp(1_000, 10_000));
            match call.timeout(patience).send::<HeartbeatAnswer>().await {
                Ok(answer) => {
                    self.keeper.renew(asked_ms, answer.lease_ms);
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
}
