//! Who stands where: every node with its room and what holds it.

use hayward_vocabulary::{
    AllocationId, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::AllocationState;

/// `GET /v1/occupancy`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Occupancy {
    /// By name.
    pub nodes: Vec<NodeOccupancy>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// What is listed is at least as new.
    #[serde(default)]
    pub revision: u64,
}

/// Amounts are quanta of the node's tree. `order + over = held + free`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is said of the node by another party"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeOccupancy {
    pub node: NodeName,
    pub pool: String,
    /// Responsive, online, not blocked, and accepts work.
    pub up: bool,
    /// It answers.
    pub responsive: bool,
    /// Not varied off.
    pub online: bool,
    /// It declines new work itself.
    pub quiesced: bool,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// What may be given out.
    pub capacity: Size,
    pub quantum: Quantum,
    pub order: u64,
    pub held: u64,
    pub free: u64,
    /// Held beyond what the node has: it shrank.
    pub over: u64,
    /// Held by work that is never taken back.
    pub fixed: u64,
    /// Told to leave, and still there.
    pub vacating: u64,
    pub processes: u64,
    /// It is up, and nothing stands there that may not be taken back.
    pub reservable: bool,
    /// Classes whose work may stand there.
    pub classes: Vec<String>,
    pub shares: Vec<ShareOccupancy>,
}

/// One allocation.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the share"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareOccupancy {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    pub order: u64,
    pub state: AllocationState,
    pub granted_at: Timestamp,
    /// Milliseconds that would be lost with it, as the planner reckons.
    pub investment_ms: u64,
    /// Never taken back.
    pub fixed: bool,
    pub leaving: bool,
    /// Told to leave without waiting for its node.
    pub purged: bool,
    /// It stands in a pool below the one its class is at home in.
    pub squatter: bool,
    /// The gpus it sits on, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u64>,
}
