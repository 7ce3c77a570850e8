//! Response of `GET /v1/occupancy`: nodes with their allocations and their free space.

use hayward_vocabulary::{
    AllocationId, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::AllocationState;

/// `GET /v1/occupancy`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Occupancy {
    /// Nodes in the order of their names.
    pub nodes: Vec<NodeOccupancy>,
    /// Start of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The list is at least as new as this revision.
    #[serde(default)]
    pub revision: u64,
}

/// One node. Amounts are quanta of the tree of its pool. `order + over = held + free`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent property of the node"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeOccupancy {
    pub node: NodeName,
    pub pool: String,
    /// Responsive, online, not blocked, and accepts work.
    pub up: bool,
    /// The node answers.
    pub responsive: bool,
    /// The node is online.
    pub online: bool,
    /// The node declines new work.
    pub quiesced: bool,
    /// The reason of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// Size that the node offers to work.
    pub capacity: Size,
    /// The unit of the amounts.
    pub quantum: Quantum,
    /// Capacity in quanta.
    pub order: u64,
    /// Quanta of all allocations.
    pub held: u64,
    pub free: u64,
    /// Quanta held beyond the capacity, after the node shrank.
    pub over: u64,
    /// Quanta of work that is never preempted.
    pub fixed: u64,
    /// Quanta of allocations that are ordered to leave.
    pub vacating: u64,
    pub processes: u64,
    /// True if the node could be reserved: it is up and holds no work that cannot be preempted.
    pub reservable: bool,
    /// Classes whose work may use the node.
    pub classes: Vec<String>,
    /// The allocations on the node.
    pub shares: Vec<ShareOccupancy>,
}

/// One allocation.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent property of the allocation"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareOccupancy {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    /// Quanta of the allocation.
    pub order: u64,
    pub state: AllocationState,
    pub granted_at: Timestamp,
    /// Milliseconds of work that a preemption would lose, as the planner computes it.
    pub investment_ms: u64,
    /// Never preempted.
    pub fixed: bool,
    pub leaving: bool,
    /// Ordered to leave without waiting for its node.
    pub purged: bool,
    /// True if the node is in a pool below the pool of the class.
    pub squatter: bool,
    /// Numbers of the GPUs that the allocation uses on its node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u64>,
}
