//! Everything one round may depend on. What is not in here cannot influence a plan.
//!
//! Collections are ordered maps by id, so that equal fleets are equal snapshots whatever order
//! the news came in.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{
    AllocationId, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub now: Timestamp,
    pub round: u64,
    pub quantum: Quantum,
    pub tunables: Tunables,
    /// By name. A pool without parent is a world of its own.
    pub pools: BTreeMap<String, Pool>,
    pub classes: BTreeMap<String, Class>,
    /// Users with an allotment of their own.
    #[serde(default)]
    pub users: BTreeMap<UserName, User>,
    pub nodes: BTreeMap<NodeName, Node>,
    pub demand: BTreeMap<WorkId, Demand>,
    /// All that exist and hold; what has ended is absent.
    pub allocations: BTreeMap<AllocationId, Allocation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunables {
    /// Processes of a job before its first task has finished; 0 disables.
    pub initialization_cap: u64,
    pub expand_by_doubling: bool,
    pub use_prediction: bool,
    pub prediction_fudge_ms: u64,
    /// Quanta of non-preemptable room one user may hold; absent means no limit.
    #[serde(default)]
    pub global_allotment_quanta: Option<u64>,
    /// Milliseconds from round to round; the horizon of the prediction.
    pub cycle_ms: u64,
    /// Quanta by which a node may exceed what a reservation asked for; absent means any.
    #[serde(default)]
    pub reserve_overage_quanta: Option<u64>,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            initialization_cap: 2,
            expand_by_doubling: true,
            use_prediction: true,
            prediction_fudge_ms: 10_000,
            global_allotment_quanta: None,
            cycle_ms: 1_000,
            reserve_overage_quanta: None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    #[serde(default)]
    pub parent: Option<String>,
    /// Children are searched in ascending order, ties by name.
    #[serde(default)]
    pub search_order: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    pub policy: Policy,
    /// The lower number is served first.
    pub priority: i64,
    pub weight: u64,
    pub pool: String,
    #[serde(default)]
    pub default: bool,
    /// Who may use it; empty means everyone.
    #[serde(default)]
    pub users: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Policy {
    /// Whole nodes, never taken back.
    Reserve,
    /// A number of processes, never taken back.
    FixedShare,
    /// Any number of processes; what is over the due may be taken back.
    FairShare,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Absent means the global value.
    #[serde(default)]
    pub max_allotment_quanta: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub pool: String,
    /// What may be given out.
    pub capacity: Size,
    /// False while the node itself declines new work (quiesced, draining, not yet healthy).
    pub takes_work: bool,
    /// It cannot answer.
    #[serde(default)]
    pub lost: bool,
    /// Varied off by an operator.
    #[serde(default)]
    pub offline: bool,
    #[serde(default)]
    pub block: Option<Block>,
}

impl Node {
    /// may take new work.
    pub fn is_schedulable(&self) -> bool {
        self.takes_work && !self.lost && !self.offline && self.block.is_none()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub effect: BlockEffect,
    /// For people.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockEffect {
    /// Takes no new work; what is there stays.
    Mark,
    /// Everything there leaves, except an unmanaged reservation (I12).
    Evacuate,
}

/// A piece of work that wants room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    pub kind: WorkKind,
    pub user: UserName,
    #[serde(default)]
    pub class: Option<String>,
    pub submitted_at: Timestamp,
    /// What one process needs. For a reservation: the least a machine must have.
    pub size: Size,
    /// 0 holds the work back.
    pub max_processes: u64,
    pub remaining_tasks: u64,
    pub threads: u32,
    /// Mean milliseconds of one task; absent until one has finished.
    #[serde(default)]
    pub task_ms: Option<u64>,
    /// Empty means any.
    #[serde(default)]
    pub machines: BTreeSet<NodeName>,
    /// Instances of one service spread over nodes.
    #[serde(default)]
    pub service: Option<WorkId>,
}

/// Room that is held.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is said by another service on its own"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub order: u64,
    pub size: Size,
    /// Not preemptable (FIXED_SHARE, RESERVE).
    pub fixed: bool,
    pub granted_at: Timestamp,
    pub running: bool,
    /// When it began to start.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub running_since: Option<Timestamp>,
    /// Told to go; occupies its node until it is absent from the snapshot.
    #[serde(default)]
    pub leaving: bool,
    /// Told to go without waiting for the node.
    #[serde(default)]
    pub purged: bool,
}
