//! Response of `GET /v1/queues`: the queues of pools with their use and their limits.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Amounts by type: `memory` in bytes, `vcore` and `gpu` in thousandths, and counts of other types.
pub type Counts = BTreeMap<String, u64>;

/// `GET /v1/queues`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Queues {
    /// The newest round.
    pub round: u64,
    pub at: Timestamp,
    /// Pools with queues, by name.
    pub pools: Vec<PoolQueues>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolQueues {
    pub pool: String,
    /// Nodes of the pool and all its children.
    pub nodes: u64,
    /// Nodes that take work.
    pub open: u64,
    /// Nodes reserved for work that has waited longer.
    pub kept: u64,
    /// Parents before children, siblings by name. The numbers of a queue are the sums of its
    /// children. `used` of the root is everything held in the pool.
    pub queues: Vec<QueueEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueEntry {
    /// Full path.
    pub queue: String,
    pub state: QueueState,
    /// Takes applications. Other queues only have children.
    pub leaf: bool,
    pub guaranteed: Counts,
    /// Absent types are not limited here. The root has the capacity of its nodes.
    pub max: Counts,
    /// Held amounts, with those ordered to leave.
    pub used: Counts,
    /// Part of `used` that was ordered to leave.
    pub leaving: Counts,
    /// Requested and not granted.
    pub pending: Counts,
    /// Amounts that can be added before a maximum on the path is reached.
    pub headroom: Counts,
    /// Applications that hold something.
    pub running_applications: u64,
    /// Applications that hold nothing and wait.
    pub waiting_applications: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_applications: Option<u64>,
    /// Limits of users and groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    /// The policy has this queue.
    Active,
    /// Removed from the policy: existing applications go on, and new ones are refused.
    Draining,
    /// Created for an application, and removed with the last one.
    Dynamic,
    #[serde(other)]
    Unknown,
}

/// The maximum of each of these users, or of each of these groups together. Names that the caller
/// may not know are left out; an entry without names applies to others.
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
