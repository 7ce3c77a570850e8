//! The snapshot: the whole input of one round. A plan depends on the snapshot alone.
//!
//! Collections are ordered maps by id, so that equal fleets have equal snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_vocabulary::{
    AllocationId, Apart, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};

use super::{
    external_planners::{ExternalPlannerState, RecentPreemptions},
    queues::{CarriedQueueState, Queued, Queues},
    settings::Settings,
};

pub use super::{external_planners, queues};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub now: Timestamp,
    pub round: u64,
    pub quantum: Quantum,
    pub tunables: Tunables,
    /// Pools by name. A pool without a parent is the root of a tree.
    pub pools: BTreeMap<String, Pool>,
    pub classes: BTreeMap<String, Class>,
    /// Users with their own allotment, by name.
    #[serde(default)]
    pub users: BTreeMap<UserName, User>,
    pub nodes: BTreeMap<NodeName, Node>,
    pub demand: BTreeMap<WorkId, Demand>,
    /// All allocations that exist, including leaving ones. Ended allocations are absent.
    pub allocations: BTreeMap<AllocationId, Allocation>,
    /// State that the last round carried over.
    #[serde(default)]
    pub carried: Carried,
    /// Quanta preempted within the hour before this round (B5).
    #[serde(
        rename = "taken_back",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub preempted_quanta: PreemptedQuanta,
    /// Queues by top-level pool. Only pools that the capacity planner serves are present.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, Queues>,
    /// State of external planners by top-level pool.
    #[serde(
        rename = "outside",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub external_planners: BTreeMap<String, ExternalPlannerState>,
}

impl Snapshot {
    /// Returns a fleet without nodes and work.
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
            preempted_quanta: PreemptedQuanta::new(),
            queues: BTreeMap::new(),
            external_planners: BTreeMap::new(),
        }
    }
}

/// State that a round passes to the next one. All other state is derived from the snapshot, so
/// errors cannot accumulate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Needy work. It is placed first in this round.
    #[serde(default)]
    pub needy: Arc<BTreeSet<WorkId>>,
    /// Quanta of the node that is reserved as a whole for each piece of work.
    #[serde(rename = "upgrades", default)]
    pub reserved_node_quanta: BTreeMap<WorkId, u64>,
    /// Work other than jobs that lost its process. It never gets another one.
    #[serde(default)]
    pub ended: BTreeSet<WorkId>,
    /// Amounts that rounding withheld from each class and user (W-4).
    #[serde(default)]
    pub deficits: Deficits,
    /// Nodes with space that was cleared for waiting work. A node occurs once for each process
    /// (W-14).
    #[serde(default)]
    pub claims: BTreeMap<WorkId, Vec<NodeName>>,
    /// Round in which each piece of work last lost an allocation to other work (W-32).
    #[serde(rename = "last_hit", default)]
    pub last_loss: BTreeMap<WorkId, u64>,
    /// State of the capacity planner, by top-level pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, CarriedQueueState>,
    /// Number of the last response of the external planner that a round used, by top-level pool.
    #[serde(
        rename = "outside",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub used_responses: BTreeMap<String, u64>,
    /// Recent preemptions by external planners, by top-level pool.
    #[serde(rename = "moved", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recent_preemptions: BTreeMap<String, RecentPreemptions>,
}

/// Amounts that rounding withheld from classes and users.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deficits {
    /// Time of the last update.
    #[serde(rename = "at", default)]
    pub updated_at: Timestamp,
    #[serde(default)]
    pub classes: BTreeMap<String, Account>,
    /// Accounts by class, then user.
    #[serde(default)]
    pub users: BTreeMap<String, BTreeMap<UserName, Account>>,
}

/// Deficit account of a class or user, called the entity here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Balance in thousandths of a quantum times milliseconds. A positive balance is owed to the
    /// entity. A negative one was received in advance.
    pub owed: i64,
    /// Amount added to `owed` each millisecond until the next round.
    pub rate: i64,
    #[serde(default)]
    pub standing: Standing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The entity gets remainders before the others.
    Behind,
    #[default]
    Even,
    /// The entity is not rounded up.
    Ahead,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tunables {
    /// Maximum number of processes of a job before its first task has finished. 0 disables the
    /// limit.
    pub initialization_cap: u64,
    pub expand_by_doubling: bool,
    pub use_prediction: bool,
    pub prediction_fudge_ms: u64,
    /// Bytes of non-preemptable space that one user may hold over all trees. `None` means no limit.
    pub global_allotment_bytes: Option<u64>,
    /// Milliseconds from one round to the next. Predictions look this far ahead.
    pub cycle_ms: u64,
    /// Maximum number of bytes by which a node may exceed the size that a reservation requests.
    /// `None` allows any.
    pub reserve_overage_bytes: Option<u64>,
    /// Number of processes below which defragmentation helps work.
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
    /// Position among siblings. Children are searched in ascending order. Ties are broken by
    /// `position`, then by name.
    #[serde(default)]
    pub search_order: i64,
    /// Position of the definition. Top-level pools are planned in this order.
    #[serde(rename = "place", default)]
    pub position: u64,
    /// Quantum of a top-level pool. `None` means the quantum of the snapshot.
    #[serde(default)]
    pub quantum: Option<Quantum>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    pub policy: Policy,
    /// Priority. Lower numbers are served first.
    pub priority: i64,
    pub weight: u64,
    pub pool: String,
    #[serde(default)]
    pub default: bool,
    /// Users that may use the class. If empty, all users may.
    #[serde(default)]
    pub users: BTreeSet<String>,
    /// Position of the definition.
    #[serde(rename = "place", default)]
    pub position: u64,
    /// Class that serves work that names this class but must not be preempted.
    #[serde(rename = "debug", default)]
    pub debug_class: Option<String>,
    /// Growth settings of this class. An absent value is that of the fleet.
    #[serde(default)]
    pub growth: Growth,
}

/// Start-up and growth settings of one class.
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
    /// Grants whole nodes, which are never preempted.
    Reserve,
    /// Grants a fixed number of processes, which are never preempted.
    FixedShare,
    /// Grants any number of processes. Those beyond the entitlement may be preempted.
    FairShare,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Allotment in bytes. `None` means the global value.
    #[serde(default)]
    pub max_allotment_bytes: Option<u64>,
    /// Allotment in bytes by class. It replaces `max_allotment_bytes` for that class (W-23).
    #[serde(default)]
    pub max_allotment_by_class: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub pool: String,
    /// Capacity for processes.
    pub capacity: Size,
    /// False while the node declines new work: quiesced, draining or not yet healthy.
    pub takes_work: bool,
    /// True if the node does not respond.
    #[serde(default)]
    pub lost: bool,
    /// True if an operator took the node offline.
    #[serde(default)]
    pub offline: bool,
    #[serde(default)]
    pub block: Option<Block>,
    /// Labels of the node. Only anti-affinity uses them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Thousandths of one GPU. The GPUs of a node are devices of this size.
pub const GPU_MILLI: u64 = 1_000;

impl Node {
    /// Returns true if the node may take new work.
    pub fn is_schedulable(&self) -> bool {
        self.takes_work && !self.lost && !self.offline && self.block.is_none()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub effect: BlockEffect,
    /// Reason as a text for users.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockEffect {
    /// The node takes no new work, and its processes stay.
    Mark,
    /// All processes leave, except an unmanaged reservation (I12).
    Evacuate,
}

fn default_true() -> bool {
    true
}

/// A piece of work that asks for processes.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is set by another service independently"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    pub kind: WorkKind,
    pub user: UserName,
    #[serde(default)]
    pub class: Option<String>,
    pub submitted_at: Timestamp,
    /// Size of one process. For a reservation, the minimum size of a node.
    pub size: Size,
    /// Maximum number of processes that the work wants. 0 holds the work back.
    pub max_processes: u64,
    pub remaining_tasks: u64,
    pub threads: u32,
    /// Mean duration of one task in milliseconds. `None` until a task has finished.
    #[serde(default)]
    pub task_ms: Option<u64>,
    /// Nodes that the work may use. If empty, it may use any node.
    #[serde(rename = "machines", default)]
    pub node_list: BTreeSet<NodeName>,
    /// Nodes blocked for this work alone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub avoids: BTreeSet<NodeName>,
    /// Service of which this work is an instance. The instances of one service spread over nodes
    ///
    #[serde(default)]
    pub service: Option<WorkId>,
    /// Anti-affinity. The work shares no node, or no fault domain, with other work of its group.
    #[serde(rename = "apart", default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<Apart>,
    /// True for a single process that is no service instance.
    #[serde(default)]
    pub managed: bool,
    /// True if a process of this work has run at least once.
    #[serde(default = "default_true")]
    pub runnable: bool,
    /// True if the work keeps its processes and gets no more.
    #[serde(default)]
    pub completing: bool,
    /// True if the work is limited to its present processes, whatever `max_processes` is.
    #[serde(default)]
    pub keeps_what_it_holds: bool,
    /// Queue data of work that the capacity planner serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<Box<Queued>>,
}

/// Quanta of one node, held by one process.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is set by another service independently"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    #[serde(rename = "order")]
    pub quanta: u64,
    pub size: Size,
    /// True if the allocation is never preempted, as in FIXED_SHARE and RESERVE classes.
    pub fixed: bool,
    pub granted_at: Timestamp,
    pub running: bool,
    /// Time at which the process began to start.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub running_since: Option<Timestamp>,
    /// Milliseconds spent on the tasks in flight. `None` stands for the time since the process
    /// began to run.
    #[serde(default)]
    pub investment_ms: Option<u64>,
    /// Duration of each task in milliseconds, if the process runs equal tasks one after the other.
    /// Used if `investment_ms` is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_ms: Option<u64>,
    /// Numbers of the GPUs that the process uses. A part of a GPU uses one GPU (D6).
    #[serde(default)]
    pub gpus: Vec<u64>,
    /// User group whose quota is charged for the process, even after its work is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// True if the allocation was vacated. It occupies its node until it is absent from the
    /// snapshot.
    #[serde(default)]
    pub leaving: bool,
    /// True if the allocation was vacated without waiting for its node.
    #[serde(default)]
    pub purged: bool,
}

/// Quanta preempted within an hour, by pool of the node, then by user.
pub type PreemptedQuanta = BTreeMap<String, BTreeMap<UserName, u64>>;
