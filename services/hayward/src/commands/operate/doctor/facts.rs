//! The facts that `hayward doctor` collects. A fact that could not be read is stored as the reason
//! why.

use hayward_service::health::Status;
use hayward_service::invariants::Invariants;
use hayward_vocabulary::Timestamp;
use serde::Serialize;

use super::identity::SharedAccountNode;

/// A fact, or the reason why it could not be read.
pub type Fact<T> = Result<T, String>;

#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Time at which the collection began.
    pub at: Timestamp,
    /// Services in the order of their ports.
    pub services: Vec<ServiceFacts>,
    /// Counts of the nodes, and the nodes that need an operator.
    #[serde(serialize_with = "serialize_fact")]
    pub nodes: Fact<NodeFacts>,
    /// Blocked nodes.
    #[serde(serialize_with = "serialize_fact")]
    pub blocked: Fact<Vec<BlockedNode>>,
    /// Work with the longest waits, the longest wait first.
    #[serde(serialize_with = "serialize_fact")]
    pub waiting: Fact<Vec<WaitingWork>>,
    /// Disk of the state directory on this machine. `None` if the directory is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ServiceFacts {
    pub name: &'static str,
    /// Address of the replica that the other fields describe.
    pub url: String,
    /// Status of the leader, or of a replica that answers when there is no leader.
    #[serde(serialize_with = "serialize_fact")]
    pub status: Fact<Status>,
    /// The other replicas in the list of addresses.
    pub replicas: Vec<Replica>,
    #[serde(serialize_with = "serialize_fact")]
    pub invariants: Fact<Invariants>,
    /// Milliseconds that the clock of the service is ahead of this machine, accurate to a second.
    /// The value is for display only. `None` if unknown. (R4)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// Lag behind each publication that the service follows.
    pub lags: Vec<Lag>,
}

/// A replica at another address of a service.
#[derive(Debug, Clone, Serialize)]
pub struct Replica {
    pub url: String,
    #[serde(serialize_with = "serialize_fact")]
    pub status: Fact<Status>,
}

/// Distance of a service behind a publication that it follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lag {
    pub publication: String,
    /// Milliseconds since the last response of the publisher. `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// True when the follower treats its copy as outdated.
    pub stale: bool,
    /// Number of the publisher's revisions that the follower has not read yet. `None` if one of the
    /// two revisions is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Last error of the follower. `None` without an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NodeFacts {
    pub healthy: u64,
    pub quiesced: u64,
    pub suspect: u64,
    pub lost: u64,
    /// Number of nodes that an operator varied off, whatever their health.
    #[serde(rename = "off")]
    pub varied_off: u64,
    /// Number of nodes with a drain.
    pub drains: u64,
    /// Nodes that need an operator.
    #[serde(rename = "unwell")]
    pub unhealthy: Vec<UnhealthyNode>,
    /// Nodes on which users share an account.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_accounts: Vec<SharedAccountNode>,
}

impl NodeFacts {
    pub fn total(&self) -> u64 {
        self.healthy + self.quiesced + self.suspect + self.lost
    }
}

/// A node with a problem that needs an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnhealthyNode {
    pub node: String,
    #[serde(rename = "what")]
    pub problem: NodeProblem,
    /// Detail from the service, or measured numbers.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeProblem {
    Suspect,
    Lost,
    /// Two agents report as this node. (F28)
    #[serde(rename = "twins")]
    DuplicateAgents,
    /// The node itself accepts no work.
    Quiesced,
    DiskLow,
    DrainFailed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockedNode {
    pub node: String,
    pub cause: String,
    /// True when the blocklist blocked the node because of failures.
    pub automatic: bool,
    /// True when the block has ended and the node is on trial.
    pub on_trial: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitingWork {
    pub work: String,
    pub user: String,
    pub since: Timestamp,
    /// Milliseconds from `since` to the collection.
    pub waits_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Disk {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// Serializes a fact as its value, or as an object with the field `error`.
fn serialize_fact<T: Serialize, S: serde::Serializer>(
    fact: &Fact<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match fact {
        Ok(fact) => fact.serialize(serializer),
        Err(error) => serde_json::json!({ "error": error }).serialize(serializer),
    }
}
