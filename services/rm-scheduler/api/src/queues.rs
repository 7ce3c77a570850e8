//! The queues of pools in numbers (application protocol, 12.1).

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of memory, thousandths of `vcore` and `gpu`, extras as they are counted.
pub type Counts = BTreeMap<String, u64>;

/// `GET /v1/queues`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Queues {
    /// The newest round.
    pub round: u64,
    pub at: Timestamp,
    /// Those that are divided among queues, by name.
    pub pools: Vec<PoolQueues>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolQueues {
    pub pool: String,
    /// Nodes of the pool and of all below it.
    pub nodes: u64,
    /// Of those, nodes that take work.
    pub open: u64,
    /// Nodes that are kept for work that waited longer.
    pub kept: u64,
    /// Each before those below it, siblings by name. What a queue uses, wants, runs and lets wait
    /// is the sum of what those below it do; the root uses what is held in the pool.
    pub queues: Vec<QueueEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueEntry {
    /// Its full path.
    pub queue: String,
    pub state: QueueState,
    /// Takes applications; otherwise queues are below it.
    pub leaf: bool,
    pub guaranteed: Counts,
    /// Types that are absent are not limited here. Of the root: what all its nodes have.
    pub max: Counts,
    /// Held, with what leaves.
    pub used: Counts,
    /// Of that, told to leave.
    pub leaving: Counts,
    /// Asked for and not there yet.
    pub pending: Counts,
    /// What may be added before a maximum on the path is reached.
    pub headroom: Counts,
    /// Applications that hold room.
    pub running_applications: u64,
    /// Applications that hold none, and ask for some.
    pub waiting_applications: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_applications: Option<u64>,
    /// Of users and groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    /// The policy names it.
    Active,
    /// The policy names it no more: what is there goes on, and nothing new comes.
    Draining,
    /// It was made for an application, and goes with the last one.
    Dynamic,
    #[serde(other)]
    Unknown,
}

/// Each of these users, or each of these groups together, may have so much in the queue. Names that
/// the caller may not know are left out; an entry without any is of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitEntry {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max: Counts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_applications: Option<u64>,
}
