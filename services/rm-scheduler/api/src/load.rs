//! Response of `GET /v1/load`: demand and supply by pool and by class.

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::SharePolicy;

/// `GET /v1/load`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Load {
    /// The newest round, whose demand and use this is.
    pub round: u64,
    pub at: Timestamp,
    pub pools: Vec<PoolLoad>,
    pub classes: Vec<ClassLoad>,
}

/// Quanta and nodes of one pool without its children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolLoad {
    pub pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub nodes: u64,
    /// Nodes that take work.
    pub up: u64,
    /// Nodes that do not answer.
    pub lost: u64,
    /// Nodes that are offline.
    pub offline: u64,
    /// Nodes that are blocked.
    pub blocked: u64,
    /// Nodes that decline new work.
    pub declined: u64,
    /// Quanta of all nodes.
    pub total: u64,
    /// Quanta of the nodes that take work.
    pub usable: u64,
    /// Free quanta of the nodes that take work.
    pub free: u64,
    /// Quanta that the classes of this pool, or work in its queues, could use in this round.
    pub requested: u64,
    /// Quanta that the classes of this pool, or work in its queues, hold on any node.
    pub awarded: u64,
    /// Nodes by their number of quanta.
    pub orders: Vec<NodesOfOrder>,
}

/// Nodes with one number of quanta. They show how many processes of that size find a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodesOfOrder {
    /// Number of quanta.
    pub order: u64,
    /// Nodes of this size, whatever their state.
    pub nodes: u64,
    /// Nodes among them that take work.
    pub up: u64,
    /// Nodes among them that hold nothing.
    pub free: u64,
    /// Nodes of any size that take work, hold something and have exactly this much free.
    pub partly: u64,
}

/// Work and processes of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassLoad {
    pub class: String,
    pub policy: SharePolicy,
    pub pool: String,
    pub priority: i64,
    pub weight: u64,
    /// Pieces of work in the class.
    pub work: u64,
    /// Pieces of work without a process.
    pub waiting: u64,
    /// Processes by their number of quanta.
    pub orders: Vec<ProcessesOfOrder>,
}

/// Processes of one size, of all work of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessesOfOrder {
    /// Quanta of one process.
    pub order: u64,
    /// Processes by the limits of the work and its remaining tasks.
    pub wanted: u64,
    /// Processes that the work could use in this round (its cap).
    pub requested: u64,
    /// Processes that the work is entitled to.
    pub counted: u64,
    /// Processes that the work has, without those ordered to leave.
    pub awarded: u64,
    /// Processes ordered to leave.
    pub leaving: u64,
}
