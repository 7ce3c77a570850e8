//! Breakdown of the capacity down to each piece of work, after the plan is carried out. Amounts are
//! quanta of the tree they belong to, unless they are called processes.
//!
//! The amounts add up, and [`Shares::faults`] reports where they do not:
//! * Pool: `total = usable + lost + offline + blocked + declined + withheld`.
//!   `usable + over = held + free`. `free` is the sum of the amounts in `idle`.
//! * Fleet: `capacity` and `free` are the sums over the pools. The amount held in pools, on their
//!   closed nodes and outside pools equals the amount held by all classes and by work without a
//!   class.
//! * Group quanta: the first group of a tree has the usable quanta of its pools without those that
//!   are never preempted. Each later group has what the previous one left.
//! * Tally: `due = divided + resting + lent`, `held = staying + granted + vacating`.
//! * Priority, class, user: each field of the tally is the sum of that field one level below.
//! * Class and user: `assigned` is `unused` plus the sum of `assigned` one level below. For work,
//!   `divided` takes the role of `assigned`.
//! * Work: `counted` times `quanta` is due, and `wanted` is the smallest part of its cap.

pub use super::share_delta::{ShareDelta, UserWorkCount};

use std::collections::BTreeMap;

use hayward_vocabulary::{UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};

use crate::input::snapshot::Policy;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Quanta of the nodes that take work.
    pub capacity: u64,
    /// Quanta held by all allocations, including leaving ones, on all nodes.
    pub held: u64,
    /// Quanta that are free on nodes that take work.
    pub free: u64,
    #[serde(default)]
    pub pools: BTreeMap<String, PoolShare>,
    /// Quanta held on nodes that are gone or belong to no pool.
    #[serde(rename = "elsewhere", default)]
    pub outside_pools: u64,
    /// Priorities, sorted by tree and then in the order in which they are served.
    #[serde(default)]
    pub priorities: Vec<PriorityShare>,
    pub classes: BTreeMap<String, ClassShare>,
    /// Quanta held by work that is withdrawn or has no class.
    #[serde(default)]
    pub unclassed: Tally,
}

/// Entitled and held quanta.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Entitled quanta.
    pub due: u64,
    /// Part of `due` that comes from the division.
    pub divided: u64,
    /// Part of `due` on closed nodes, outside the division.
    pub resting: u64,
    /// Part of `due` that is lent until other work can use the space.
    pub lent: u64,
    /// Quanta of all allocations, including those that this plan grants.
    pub held: u64,
    /// Part of `held` that was neither granted by this plan nor vacated.
    pub staying: u64,
    /// Part of `held` that this plan grants.
    pub granted: u64,
    /// Part of `held` that was vacated and has not left yet.
    pub vacating: u64,
    /// Part of `held` on closed nodes.
    pub closed: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolShare {
    /// Root pool of the tree.
    pub tree: String,
    /// Quanta of all nodes, in any state.
    pub total: u64,
    /// Quanta of nodes that do not respond.
    pub lost: u64,
    /// Quanta of nodes that an operator took offline.
    pub offline: u64,
    /// Quanta of blocked nodes.
    pub blocked: u64,
    /// Quanta of nodes that decline new work themselves.
    pub declined: u64,
    /// Quanta of nodes that are closed by allocations without a class.
    pub withheld: u64,
    /// Quanta of nodes that take work.
    pub usable: u64,
    /// Quanta held on usable nodes.
    pub held: u64,
    /// Quanta held on usable nodes by allocations that are never preempted.
    pub fixed: u64,
    /// Quanta that usable nodes hold beyond their capacity, because they shrank.
    pub over: u64,
    /// Quanta held on nodes of the pool that are not usable.
    pub held_closed: u64,
    /// Free quanta on usable nodes.
    pub free: u64,
    pub idle: Idle,
}

/// Free quanta by the reason why they are idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// Quanta reserved for waiting work until the rest of its space is free.
    #[serde(rename = "meant")]
    pub reserved: u64,
    /// Quanta into which wanted processes fit, but a rule forbids them. Examples are completing
    /// work, protection from churn, and the spread of instances.
    #[serde(rename = "kept")]
    pub forbidden: u64,
    /// Quanta for which demand exists, but no process fits into the free space of a node.
    pub split: u64,
    /// Quanta for which demand exists, but a cap or an allotment limits it.
    pub capped: u64,
    /// Quanta without demand.
    #[serde(rename = "unasked")]
    pub no_demand: u64,
}

/// Classes of one tree with one priority and one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityShare {
    /// Root pool of the tree. `None` for classes on a pool that does not exist.
    pub tree: Option<String>,
    pub priority: i64,
    pub policy: Policy,
    pub classes: Vec<String>,
    /// Quanta of the group. `None` if none of its classes has work.
    #[serde(rename = "turn")]
    pub group_quanta: Option<GroupQuanta>,
    #[serde(flatten)]
    pub tally: Tally,
}

/// Quanta that were available to a group of classes, and those that were assigned to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupQuanta {
    pub available: u64,
    #[serde(rename = "taken")]
    pub assigned: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassShare {
    pub tree: Option<String>,
    pub policy: Policy,
    pub priority: i64,
    pub weight: u64,
    /// Quanta that the division among classes gave.
    #[serde(rename = "given")]
    pub assigned: u64,
    /// Part of `assigned` that no user could take, because processes are indivisible.
    #[serde(rename = "left")]
    pub unused: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub users: BTreeMap<UserName, UserShare>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserShare {
    /// Quanta that the division among the users of the class gave.
    #[serde(rename = "given")]
    pub assigned: u64,
    /// Part of `assigned` that no work could take.
    #[serde(rename = "left")]
    pub unused: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub work: BTreeMap<WorkId, WorkShare>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkShare {
    pub kind: WorkKind,
    /// Quanta of one process.
    #[serde(rename = "order")]
    pub quanta: u64,
    /// Processes that the work can use in this round (the cap).
    pub wanted: u64,
    /// Parts of the cap.
    #[serde(default)]
    pub cap: CapParts,
    /// Processes that the work is entitled to.
    pub counted: u64,
    /// Processes that the work has, including those granted by this plan and without leaving ones.
    pub current: u64,
    /// Processes that were vacated and have not left yet.
    pub leaving: u64,
    #[serde(flatten)]
    pub tally: Tally,
}

/// Limits on the number of processes of a piece of work. The least is its cap. A part of `None`
/// sets no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapParts {
    /// Limit from the work itself and its remaining tasks.
    pub base: u64,
    /// Limit until the first process has shown how long a task takes.
    pub initialization: Option<u64>,
    /// Limit of twice the number that the work had reached.
    pub doubling: Option<u64>,
    /// Number of processes that would still be useful once they have started. It replaces `base`
    ///
    pub prediction: Option<u64>,
    /// Number of processes that the work could hold if everything preemptable left.
    #[serde(rename = "room")]
    pub reach: Option<u64>,
}

/// Numbers of a verdict that all work has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub counted: u64,
    pub current: u64,
    pub leaving: u64,
    pub quanta: u64,
    pub wanted: u64,
}
