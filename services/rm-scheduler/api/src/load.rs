//! Demand against supply, by pool and by class. The original had no class figures (W-27).

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::SharePolicy;

/// `GET /v1/load`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Load {
    /// The newest round; what classes ask for and have is as it left it.
    pub round: u64,
    pub at: Timestamp,
    pub pools: Vec<PoolLoad>,
    pub classes: Vec<ClassLoad>,
}

/// Quanta and nodes of one pool, without the pools below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolLoad {
    pub pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub nodes: u64,
    /// Nodes that take work.
    pub up: u64,
    /// Nodes that cannot answer.
    pub lost: u64,
    /// Nodes varied off.
    pub offline: u64,
    pub blocked: u64,
    /// Nodes that decline new work themselves.
    pub declined: u64,
    /// Quanta of all nodes.
    pub total: u64,
    /// Quanta of the nodes that take work.
    pub usable: u64,
    /// Quanta free on the nodes that take work.
    pub free: u64,
    /// Quanta the classes at home here, or work in its queues, could use in this round.
    pub requested: u64,
    /// Quanta the classes at home here, or work in its queues, have, wherever they stand.
    pub awarded: u64,
    pub orders: Vec<NodesOfOrder>,
}

/// How many processes of so many quanta there is a place for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodesOfOrder {
    pub order: u64,
    /// Nodes of this order, whatever their state.
    pub nodes: u64,
    /// Of those, nodes that take work.
    pub up: u64,
    /// Of those, nodes that hold nothing.
    pub free: u64,
    /// Nodes of any order that hold something, take work and have exactly so much free.
    pub partly: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassLoad {
    pub class: String,
    pub policy: SharePolicy,
    pub pool: String,
    pub priority: i64,
    pub weight: u64,
    /// Pieces of work in the class.
    pub work: u64,
    /// Of those, without a process.
    pub waiting: u64,
    pub orders: Vec<ProcessesOfOrder>,
}

/// Processes of so many quanta, of all work of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessesOfOrder {
    pub order: u64,
    /// By the work's own limits and the tasks it has left.
    pub wanted: u64,
    /// What it could use in this round (its cap).
    pub requested: u64,
    /// What it is due.
    pub counted: u64,
    /// What it has, without those told to leave.
    pub awarded: u64,
    /// Told to leave.
    pub leaving: u64,
}
