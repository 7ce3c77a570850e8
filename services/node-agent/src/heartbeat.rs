//! Sends heartbeats with inventory and metrics to node-status. The response sets the period.
//! Without a response the agent continues with the last period.

use std::time::Duration;

use hayward_node_status_api::HeartbeatAnswer;
use hayward_service::{Client, Shutdown};
use hayward_vocabulary::NodeName;
use http::Method;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::AgentStatus;
use crate::lease::{LeaseWriter, boottime_ms};
use crate::node_condition::NodeCondition;

/// Milliseconds between heartbeats until the first response sets the period.
const INITIAL_PERIOD_MS: u64 = 1_000;
/// Quiesce reason of a node whose agent was stopped.
const STOP_REASON: &str = "its agent was stopped";
/// Time limit of the last heartbeat.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Heartbeats {
    pub client: Client,
    pub node: NodeName,
    pub condition: NodeCondition,
    pub status: watch::Receiver<AgentStatus>,
    /// Whether the first heartbeat waits until the desired set was received.
    pub wait_for_orders: bool,
    /// Writer that stores the leases that responses grant.
    pub lease_writer: LeaseWriter,
}

impl Heartbeats {
    pub async fn run(mut self, stop: Shutdown) {
        tokio::select! {
            () = self.send_heartbeats() => {}
            () = stop.wait() => {}
        }
        if self.condition.reader.is_some() {
            self.announce_stop().await;
        }
    }

    /// Quiesces the node, because no new work would start until the next agent. The request is sent
    /// once. If the request fails, missing heartbeats have the same effect later.
    async fn announce_stop(&mut self) {
        let status = self.status.borrow().clone();
        let mut heartbeat = self.condition.heartbeat(&status).await;
        heartbeat.quiesced = true;
        heartbeat.quiesce_reason = Some(STOP_REASON.to_owned());
        let path = format!("/v1/nodes/{}/heartbeat", self.node);
        let call = self.client.call(Method::PUT, path).body(&heartbeat);
        if let Err(error) = call.timeout(STOP_TIMEOUT).send::<HeartbeatAnswer>().await {
            tracing::debug!(%error, "cannot announce the stop to node-status");
        }
    }

    async fn send_heartbeats(&mut self) {
        let has_cursor = |status: &AgentStatus| status.cursor.is_some();
        if self.wait_for_orders && self.status.wait_for(has_cursor).await.is_err() {
            return;
        }
        let path = format!("/v1/nodes/{}/heartbeat", self.node);
        let mut period_ms = INITIAL_PERIOD_MS;
        let mut is_failing = false;
        // Spreads agents that start at the same time.
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..20))).await;
        loop {
            let next_at = Instant::now() + Duration::from_millis(period_ms);
            let status = self.status.borrow().clone();
            let heartbeat = self.condition.heartbeat(&status).await;
            // A lease counts from the sending of the request (I4).
            let sent_ms = boottime_ms();
            let call = self
                .client
                .call(Method::PUT, path.as_str())
                .body(&heartbeat);
            // A lost response must not delay the next heartbeat.
            let timeout = Duration::from_millis((period_ms * 2).clamp(1_000, 10_000));
            match call.timeout(timeout).send::<HeartbeatAnswer>().await {
                Ok(response) => {
                    self.lease_writer.renew(sent_ms, response.lease_ms);
                    period_ms = response.heartbeat_ms.clamp(100, 60_000);
                    is_failing = false;
                }
                Err(error) if !is_failing => {
                    tracing::warn!(%error, cause = ?error, "node-status does not answer");
                    is_failing = true;
                }
                Err(_) => {}
            }
            let jitter = rand::random_range(0..=period_ms / 20);
            tokio::time::sleep_until(next_at - Duration::from_millis(jitter)).await;
        }
    }
}
