//! Everything one round may depend on. What is not in here cannot influence a plan.
//!
//! Collections are ordered maps by id, so that equal fleets are equal snapshots whatever order
//! the news came in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_vocabulary::{
    AllocationId, Apart, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};

use super::{
    external::{Moved, Outside},
    queues::{Kept, Queued, Queues},
    settings::Settings,
};

pub use super::{external as outside, queues};

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
    /// What the round before left for this one (14.1).
    #[serde(default)]
    pub carried: Carried,
    /// Within the hour before this round, for the sake of others (B5).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taken_back: TakenBack,
    /// Of the top-level pools that the capacity planner serves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, Queues>,
    /// Of the top-level pools that a planner outside serves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outside: BTreeMap<String, Outside>,
}

impl Snapshot {
    /// A fleet without anything in it.
    pub fn empty() -> Self {
        Self {
            now: Timestamp::default(),
            round: 0,
            quantum: Quantum::default(),
            tunables: Tunables::default(),
            pools: BTreeMap::new(),
            classes: BTreeMap::new(),
            users: BTreeMap::new(),
            nodes: BTreeMap::new(),
            demand: BTreeMap::new(),
            allocations: BTreeMap::new(),
            carried: Carried::default(),
            taken_back: TakenBack::new(),
            queues: BTreeMap::new(),
            outside: BTreeMap::new(),
        }
    }
}

/// Memory between rounds (14.1). Everything else is built anew each time, so errors cannot grow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Placed first in this round.
    #[serde(default)]
    pub needy: Arc<BTreeSet<WorkId>>,
    /// Orders of nodes that requests for whole nodes were promised.
    #[serde(default)]
    pub upgrades: BTreeMap<WorkId, u64>,
    /// Work that is not a job and lost its process: it is never given another.
    #[serde(default)]
    pub ended: BTreeSet<WorkId>,
    /// What rounding kept from each class and user (W-4).
    #[serde(default)]
    pub deficits: Deficits,
    /// Nodes on which room was made for work that still waits, once for each process (W-14).
    #[serde(default)]
    pub claims: BTreeMap<WorkId, Vec<NodeName>>,
    /// When work last had to give something up for others (W-32).
    #[serde(default)]
    pub last_hit: BTreeMap<WorkId, u64>,
    /// Of the capacity planner, by top-level pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, Kept>,
    /// The number of the answer of a planner outside that was used last, by top-level pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outside: BTreeMap<String, u64>,
    /// Who gave up a place for whom lately in those pools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moved: BTreeMap<String, Moved>,
}

/// What rounding kept from whom, over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deficits {
    /// When it was reckoned last.
    #[serde(default)]
    pub at: Timestamp,
    #[serde(default)]
    pub classes: BTreeMap<String, Account>,
    /// By class, then user.
    #[serde(default)]
    pub users: BTreeMap<String, BTreeMap<UserName, Account>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Thousandths of a quantum, times milliseconds: owed when positive, had in advance when not.
    pub owed: i64,
    /// What is added to it each millisecond until the next round.
    pub rate: i64,
    #[serde(default)]
    pub standing: Standing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Is paid: gets remainders before the others.
    Behind,
    #[default]
    Even,
    /// Pays back: its processes are not rounded up.
    Ahead,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tunables {
    /// Processes of a job before its first task has finished; 0 disables.
    pub initialization_cap: u64,
    pub expand_by_doubling: bool,
    pub use_prediction: bool,
    pub prediction_fudge_ms: u64,
    /// Bytes of non-preemptable room one user may hold, over all trees; absent means no limit.
    pub global_allotment_bytes: Option<u64>,
    /// Milliseconds from round to round; the horizon of the prediction.
    pub cycle_ms: u64,
    /// Bytes by which a node may exceed what a reservation asked for; absent means any.
    pub reserve_overage_bytes: Option<u64>,
    /// Split room is mended for work below this many processes (section 12).
    pub fragmentation_threshold: u64,
    pub defragmentation: bool,
    pub settings: Settings,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            initialization_cap: 2,
            expand_by_doubling: true,
            use_prediction: true,
            prediction_fudge_ms: 10_000,
            global_allotment_bytes: None,
            cycle_ms: 1_000,
            reserve_overage_bytes: None,
            fragmentation_threshold: 8,
            defragmentation: true,
            settings: Settings::default(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    #[serde(default)]
    pub parent: Option<String>,
    /// Children are searched in ascending order, ties by place, then by name.
    #[serde(default)]
    pub search_order: i64,
    /// The place of its definition; top-level pools are planned in this order.
    #[serde(default)]
    pub place: u64,
    /// Of a top-level pool only; absent means the snapshot's own.
    #[serde(default)]
    pub quantum: Option<Quantum>,
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
    /// The place of its definition.
    #[serde(default)]
    pub place: u64,
    /// The class that serves what may not be taken back when it is sent here.
    #[serde(default)]
    pub debug: Option<String>,
    /// What this class says of growth; absent values are the fleet's.
    #[serde(default)]
    pub growth: Growth,
}

/// Start-up and growth of one class (3.1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    #[serde(default)]
    pub initialization_cap: Option<u64>,
    #[serde(default)]
    pub expand_by_doubling: Option<bool>,
    #[serde(default)]
    pub use_prediction: Option<bool>,
    #[serde(default)]
    pub prediction_fudge_ms: Option<u64>,
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
    /// Bytes; absent means the global value.
    #[serde(default)]
    pub max_allotment_bytes: Option<u64>,
    /// Bytes by class, in place of the value above and for that class only (W-23).
    #[serde(default)]
    pub max_allotment_by_class: BTreeMap<String, u64>,
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
    /// What it says of itself; only what keeps work apart is looked at.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Thousandths of one gpu; a node's gpus are devices of this size.
pub const GPU_MILLI: u64 = 1_000;

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

fn yes() -> bool {
    true
}

/// A piece of work that wants room.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is said by another service on its own"
)]
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
    /// Nodes that are blocked for this work alone (blocklist 8.5).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub avoids: BTreeSet<NodeName>,
    /// Instances of one service spread over nodes.
    #[serde(default)]
    pub service: Option<WorkId>,
    /// Never on a node, or in a fault domain, with others of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
    /// A process of its own, and no instance of a service.
    #[serde(default)]
    pub managed: bool,
    /// One of its processes has come up at least once.
    #[serde(default = "yes")]
    pub runnable: bool,
    /// It keeps what it holds and gets nothing more.
    #[serde(default)]
    pub completing: bool,
    /// Its limit is what it holds now; `max_processes` says nothing then.
    #[serde(default)]
    pub keeps_what_it_holds: bool,
    /// It belongs into a queue, and the capacity planner serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<Box<Queued>>,
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
    /// Milliseconds spent on the tasks now in flight; absent means since it came up.
    #[serde(default)]
    pub investment_ms: Option<u64>,
    /// Since it came up it does tasks of this many milliseconds, one after the other: what is lost
    /// with it is the one in flight, which is reckoned where `investment_ms` does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_ms: Option<u64>,
    /// The gpus it sits on, by number; a part of one gpu sits on one (D6).
    #[serde(default)]
    pub gpus: Vec<u64>,
    /// Of what is in a queue: the group that was chosen for it, whose room it takes up also when
    /// its work is gone (7.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Told to go; occupies its node until it is absent from the snapshot.
    #[serde(default)]
    pub leaving: bool,
    /// Told to go without waiting for the node.
    #[serde(default)]
    pub purged: bool,
}

/// Quanta taken back within an hour: by the pool of the node, then whose they were.
pub type TakenBack = BTreeMap<String, BTreeMap<UserName, u64>>;
