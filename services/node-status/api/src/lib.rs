//! Wire types of node-status: heartbeats of agents, their answers, and the entries of its
//! publication `nodes`, which rm-scheduler follows.

pub mod drain;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Size, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Name of the publication; its keys are node names.
pub const NODES: &str = "nodes";

/// Label with the users of a node, separated by commas. Other users get no work there. A node
/// without the label is for all users (TC-26).
pub const ONLY_USERS: &str = "hayward.only_users";

/// Entry of `nodes`: the data of a node for the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeEntry {
    pub node: NodeName,
    /// Node pool of the node.
    pub pool: String,
    /// Resources for work, without the reserve for the system.
    pub capacity: Size,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Runtimes its agent offers: `process`, `docker`, `simulated`.
    #[serde(default)]
    pub runtimes: Vec<String>,
    pub health: Health,
    /// False while an operator has varied the node off.
    pub schedulable: bool,
    /// Reason of the current state, as text.
    pub reason: String,
    /// Instant of the last change of `health` or `schedulable`, by the clock of node-status.
    pub since: Timestamp,
    /// Present while a drain is active, including after the node is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOrder>,
    /// Changes with each boot of the machine.
    pub boot_id: String,
    /// Changes with each start of the agent.
    pub agent_instance: String,
}

/// The drain of a node. Its work moves within its disruption limits, and after the deadline without
/// them (W5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainOrder {
    /// Number of this drain among the drains of the node. Reports about earlier drains are ignored.
    pub number: u64,
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// True while the drain is paused; the node takes no new work either.
    #[serde(default)]
    pub paused: bool,
    pub reason: String,
}

impl NodeEntry {
    /// Returns the only users of the node. `None`: all users.
    pub fn only_users(&self) -> Option<BTreeSet<String>> {
        let users = self.labels.get(ONLY_USERS)?;
        Some(users.split(',').map(str::to_owned).collect())
    }

    /// True when the node takes new work.
    pub fn takes_work(&self) -> bool {
        self.schedulable && self.drain.is_none() && self.health == Health::Healthy
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Heartbeats arrive.
    Healthy,
    /// Heartbeats are missing, but the node is not lost yet. It takes no new work.
    Suspect,
    /// The node is lost: the scheduler treats its work as ended.
    Lost,
    /// The agent asks for no new work.
    Quiesced,
    /// A value of a later version.
    #[serde(other)]
    Unknown,
}

/// `PUT /v1/nodes/{node}/heartbeat`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Heartbeat {
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub boot_id: String,
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub agent_instance: String,
    pub inventory: Inventory,
    #[serde(default)]
    pub metrics: Metrics,
    /// True while the agent asks for no new work.
    #[serde(default)]
    pub quiesced: bool,
    /// Reason for `quiesced`, as text. It must not contain changing numbers, because each new text
    /// counts as a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub quiesce_reason: Option<String>,
}

/// Hardware and configuration of the node. A change is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Inventory {
    pub capacity: Size,
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub pool: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    #[schema(max_items = 16)]
    pub runtimes: Vec<String>,
    /// Version of the agent.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub version: String,
}

/// Current load of the node. Changes are not published; they are shown with the node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// One-minute load average, in hundredths.
    #[serde(default)]
    pub load_centi: u64,
    /// Zero if the value cannot be read. The same applies to all values here.
    #[serde(default)]
    pub memory_total_bytes: u64,
    #[serde(default)]
    pub memory_available_bytes: u64,
    #[serde(default)]
    pub swap_total_bytes: u64,
    #[serde(default)]
    pub swap_free_bytes: u64,
    /// Size of the disk with the agent's state.
    #[serde(default)]
    pub disk_total_bytes: u64,
    #[serde(default)]
    pub disk_free_bytes: u64,
    /// Absent when the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Running containers on the node.
    #[serde(default)]
    pub containers: u64,
    /// True when the agent has read its journal, so that `containers` is complete.
    #[serde(default)]
    pub complete: bool,
}

/// Pressure stall information: hundredths of a percent of the last ten seconds in which some task
/// was stalled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pressure {
    #[serde(default)]
    pub cpu_centi: u64,
    #[serde(default)]
    pub memory_centi: u64,
    #[serde(default)]
    pub io_centi: u64,
}

/// Answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAnswer {
    pub health: Health,
    pub schedulable: bool,
    /// Milliseconds until the next heartbeat is due.
    pub heartbeat_ms: u64,
    /// Milliseconds after the heartbeat was sent, by the clock of the node, in which exclusive work
    /// may run. Another answer extends the lease. The lease is shorter than the time after which
    /// the node is lost. Absent means no lease (I4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// `GET /v1/nodes`, `GET /v1/nodes/{node}`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    #[serde(flatten)]
    pub entry: NodeEntry,
    pub metrics: Metrics,
    /// Milliseconds since the last heartbeat.
    pub heartbeat_age_ms: u64,
    /// Heartbeats missed in a row.
    pub missed: u64,
    pub version: String,
    /// Next change of the node if no other event occurs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// Lease of the node for exclusive work (W7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// Number of recent losses followed by a return.
    #[serde(default)]
    pub flaps: u64,
    /// Agent instances that report as this node, when there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<String>,
    /// Claimed resources, when they exceed the limit of the node (S15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Size>,
    /// State of the active drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_state: Option<drain::DrainState>,
    /// Node pool by policy, when the agent names another one; the brake counts the node there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_in: Option<String>,
}

/// Lease of a node, from this answer and without another heartbeat (I4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseView {
    /// Milliseconds that each answered heartbeat grants.
    pub lasts_ms: u64,
    /// Milliseconds until no exclusive work runs on the node. 0 means that none runs.
    pub ends_after_ms: u64,
    /// Milliseconds until the node is lost and a successor may start elsewhere. 0 means that it may
    /// start now. Absent while the brake of the pool is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_after_ms: Option<u64>,
}

/// The next change and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Next {
    pub what: String,
    /// Milliseconds from this answer until the change. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    pub nodes: Vec<NodeView>,
    pub revision: u64,
    /// Cursor of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One entry of the history of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeChange {
    pub at: Timestamp,
    pub health: Health,
    pub schedulable: bool,
    pub reason: String,
    /// Caller that caused the change; absent for a judgement of node-status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// `GET /v1/nodes/{node}/history`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHistory {
    pub changes: Vec<NodeChange>,
    /// Cursor of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Revision that this page reflects at least.
    #[serde(default)]
    pub revision: u64,
}

/// `PUT /v1/nodes/{node}/schedulable`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedulable {
    pub schedulable: bool,
    /// Reason, shown with the node.
    #[serde(default)]
    #[schema(max_length = 4096, pattern = "^[^\\x00]*$")]
    pub reason: Option<String>,
}

/// `POST /v1/enrolments`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentRequest {
    pub node: NodeName,
    /// Maximum resources that the node may claim. Zero or absent means unlimited. The limit applies
    /// from the exchange of the secret until the next enrolment (S15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Size>,
    /// Node pool that the agent must name. An agent without a pool is in `default`. Heartbeats with
    /// another pool are refused. Absent means any pool (S14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// `PUT /v1/nodes/{node}/identity`: selects the agent that represents the node (F28).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Instance that represents the node; the others are refused.
    pub agent_instance: String,
}

/// Secret that is returned once and can be used once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Enrolment {
    pub node: NodeName,
    pub secret: String,
    pub expires_at: Timestamp,
}

/// `POST /v1/nodes/{node}/credentials`: the agent exchanges its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentSecret {
    pub secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentCredentials {
    /// Bearer token with the scope `agent:<node>`.
    pub token: String,
    pub expires_at: Timestamp,
}
