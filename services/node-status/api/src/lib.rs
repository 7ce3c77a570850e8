//! The words of node-status: what agents tell it, what it answers, and the entries of its
//! publication `nodes`, which rm-scheduler follows.

pub mod drain;

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Name of the publication; its keys are node names.
pub const NODES: &str = "nodes";

/// One entry of `nodes`: everything the scheduler may know of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeEntry {
    pub node: NodeName,
    /// The nodepool this node belongs to.
    pub pool: String,
    /// What may be handed out, already without what the system itself needs.
    pub capacity: Size,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Runtimes its agent offers: `process`, `docker`, `simulated`.
    #[serde(default)]
    pub runtimes: Vec<String>,
    pub health: Health,
    /// False while an operator has varied the node off.
    pub schedulable: bool,
    /// Why the node is as it is, for people.
    pub reason: String,
    /// When health or schedulable last changed, by node-status' clock.
    pub since: Timestamp,
    /// Present while the node is being emptied, and once it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOrder>,
    /// Changes with each boot of the machine.
    pub boot_id: String,
    /// Changes with each start of the agent.
    pub agent_instance: String,
}

/// An operator wants a node emptied (W5). What is there moves as the disruption limits of its work
/// allow; after the deadline, without them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainOrder {
    /// Counts the drains of this node; what is told of an earlier one does not concern this one.
    pub number: u64,
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Nothing more is taken off while it lasts; the node takes no new work either.
    #[serde(default)]
    pub paused: bool,
    pub reason: String,
}

impl NodeEntry {
    /// takes new work.
    pub fn takes_work(&self) -> bool {
        self.schedulable && self.drain.is_none() && self.health == Health::Healthy
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Heartbeats arrive.
    Healthy,
    /// Heartbeats are missing, but not for long enough to give the node up. Takes no new work.
    Suspect,
    /// Given up: what ran there is gone as far as the scheduler is concerned.
    Lost,
    /// The node itself asks for no new work.
    Quiesced,
    /// A word of a later version: hold, and report.
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
    /// True while the node itself asks for no new work.
    #[serde(default)]
    pub quiesced: bool,
    /// Why it does, for people. Without running numbers: another text is news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub quiesce_reason: Option<String>,
}

/// What the machine is. A change of this is news.
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

/// How the machine feels at the moment. Never news; shown with the node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// Load average of one minute, in hundredths.
    #[serde(default)]
    pub load_centi: u64,
    /// Zero, like all that cannot be read.
    #[serde(default)]
    pub memory_total_bytes: u64,
    #[serde(default)]
    pub memory_available_bytes: u64,
    #[serde(default)]
    pub swap_total_bytes: u64,
    #[serde(default)]
    pub swap_free_bytes: u64,
    /// Of the disk the agent keeps its state on.
    #[serde(default)]
    pub disk_total_bytes: u64,
    #[serde(default)]
    pub disk_free_bytes: u64,
    /// Absent where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Containers alive on the node.
    #[serde(default)]
    pub containers: u64,
    /// The agent has looked through its journal and its machine: `containers` are all there are.
    #[serde(default)]
    pub complete: bool,
}

/// Pressure stall information: hundredths of a percent of the last ten seconds in which something
/// waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pressure {
    #[serde(default)]
    pub cpu_centi: u64,
    #[serde(default)]
    pub memory_centi: u64,
    #[serde(default)]
    pub io_centi: u64,
}

/// What the agent is told in return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAnswer {
    pub health: Health,
    pub schedulable: bool,
    /// Milliseconds until the next heartbeat is due.
    pub heartbeat_ms: u64,
    /// From the moment this heartbeat was sent, by the node's own clock: when so many milliseconds
    /// have gone by without another answer, exclusive work has to end (I4). Shorter than what
    /// node-status waits before it gives the node up. Absent: no lease.
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
    /// What happens to the node if nothing else does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// How long exclusive work may run there if nothing is heard of the node any more (W7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// How often it fell silent and came back lately.
    #[serde(default)]
    pub flaps: u64,
    /// Agents that report as this node, where there is more than one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<String>,
    /// What it says it has, where it is held to less (S15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Size>,
    /// Where the drain is that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_state: Option<drain::DrainState>,
    /// The pool that the policy puts it in and brakes count it in, where its agent names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_in: Option<String>,
}

/// What a node was granted last (I4), from this answer on and if no other heartbeat comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseView {
    /// Milliseconds that each answered heartbeat grants.
    pub lasts_ms: u64,
    /// Milliseconds until no exclusive work runs there any more; 0: none does.
    pub ends_after_ms: u64,
    /// Milliseconds until the node is given up and a successor may start elsewhere; 0: it may.
    /// Absent: nobody can tell, for too many of its pool fell silent together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_after_ms: Option<u64>,
}

/// What happens next, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Next {
    pub what: String,
    /// Milliseconds until then, from this answer. Absent: nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    pub nodes: Vec<NodeView>,
    pub revision: u64,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One change of a node, as its history keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeChange {
    pub at: Timestamp,
    pub health: Health,
    pub schedulable: bool,
    pub reason: String,
    /// Who caused it; absent where node-status judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// `GET /v1/nodes/{node}/history`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHistory {
    pub changes: Vec<NodeChange>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// What is listed is at least as new.
    #[serde(default)]
    pub revision: u64,
}

/// `PUT /v1/nodes/{node}/schedulable`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedulable {
    pub schedulable: bool,
    /// Why; shown to everyone who asks about the node.
    #[serde(default)]
    #[schema(max_length = 4096, pattern = "^[^\\x00]*$")]
    pub reason: Option<String>,
}

/// `POST /v1/enrolments`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentRequest {
    pub node: NodeName,
    /// The most that the node may say it has (S15). What is zero or not named is not limited. It
    /// holds from the moment the secret is exchanged, until the node is enrolled again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Size>,
    /// The pool that the node may say it is in, as it says it; `default` where it names none. Its
    /// heartbeats are refused while it says another (S14). Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// `PUT /v1/nodes/{node}/identity`: which of two agents with one name is the node (F28).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The instance that stays. The others are not listened to any more.
    pub agent_instance: String,
}

/// A secret that is shown once and can be used once.
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
