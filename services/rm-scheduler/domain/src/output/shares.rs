//! The arithmetic from capacity to each piece of work, as it stands once a plan is carried out. All
//! amounts are quanta of the tree they stand in, unless they are called processes.
//!
//! It adds up, and [`Shares::faults`] says where it does not:
//! * a pool: `total = usable + lost + offline + blocked + declined + withheld`,
//!   `usable + over = held + free`, and `free` is the sum of the reasons it is idle for;
//! * the fleet: `capacity` and `free` are the sums over its pools; what is held in pools, on their
//!   closed nodes and elsewhere is what all classes and work without a class hold;
//! * a turn: the first of a tree has what its pools can use without what is never taken back there,
//!   every later one has what the turn before it left;
//! * every tally: `due = divided + resting + lent`, `held = staying + granted + vacating`;
//! * priority, class, user: each field of the tally is the sum of that field one level below;
//! * class and user: `given = left + what the level below was given` (of work: `divided`);
//! * work: `counted` times `order` is due, and `wanted` is the least part of its cap.

pub use super::share_delta::{OfUser, ShareDelta};

use std::collections::BTreeMap;

use hayward_vocabulary::{UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};

use crate::input::snapshot::Policy;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// On nodes that take work.
    pub capacity: u64,
    /// Held by any allocation, leaving or not, on any node.
    pub held: u64,
    /// Free on nodes that take work.
    pub free: u64,
    #[serde(default)]
    pub pools: BTreeMap<String, PoolShare>,
    /// Held on nodes that are gone or belong to no pool.
    #[serde(default)]
    pub elsewhere: u64,
    /// By tree, then in counting order.
    #[serde(default)]
    pub priorities: Vec<PriorityShare>,
    pub classes: BTreeMap<String, ClassShare>,
    /// Held by work that is withdrawn or has no class.
    #[serde(default)]
    pub unclassed: Tally,
}

/// Entitled and held amounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub due: u64,
    /// Due by division.
    pub divided: u64,
    /// Due on closed nodes, outside the division.
    pub resting: u64,
    /// Lent: due until other work can use the space.
    pub lent: u64,
    pub held: u64,
    pub staying: u64,
    /// Placed by this plan.
    pub granted: u64,
    /// Ordered to leave, and still there.
    pub vacating: u64,
    /// Part of `held` on closed nodes.
    pub closed: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolShare {
    /// Root of its tree.
    pub tree: String,
    /// All its nodes, in any state.
    pub total: u64,
    /// Nodes that cannot answer.
    pub lost: u64,
    /// Nodes varied off.
    pub offline: u64,
    pub blocked: u64,
    /// Nodes that decline new work themselves.
    pub declined: u64,
    /// Nodes closed by allocations without a class.
    pub withheld: u64,
    pub usable: u64,
    /// Held on usable nodes.
    pub held: u64,
    /// Held on usable nodes by allocations that are never preempted.
    pub fixed: u64,
    /// Held on usable nodes that shrank below it.
    pub over: u64,
    /// Held on the other nodes.
    pub held_closed: u64,
    pub free: u64,
    pub idle: Idle,
}

/// Why free space is idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// Reserved for waiting work until the rest of its space is free.
    pub meant: u64,
    /// Demand fits, and a rule forbids it: completing, churn or spreading.
    pub kept: u64,
    /// Demand exists, and no process fits into the free space of a node.
    pub split: u64,
    /// Demand exists, and is limited by a cap or an allotment.
    pub capped: u64,
    /// No demand.
    pub unasked: u64,
}

/// Classes of one tree with one priority and one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityShare {
    /// None for classes on a pool that does not exist.
    pub tree: Option<String>,
    pub priority: i64,
    pub policy: Policy,
    pub classes: Vec<String>,
    /// None if none of its classes has work.
    pub turn: Option<Turn>,
    #[serde(flatten)]
    pub tally: Tally,
}

/// One group in counting: quanta available, and quanta taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub available: u64,
    pub taken: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassShare {
    pub tree: Option<String>,
    pub policy: Policy,
    pub priority: i64,
    pub weight: u64,
    /// Given by the division among classes.
    pub given: u64,
    /// Part of `given` that no user could take, because processes are whole.
    pub left: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub users: BTreeMap<UserName, UserShare>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserShare {
    /// Given by the division among the users of the class.
    pub given: u64,
    /// Part of `given` that no work could take.
    pub left: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub work: BTreeMap<WorkId, WorkShare>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkShare {
    pub kind: WorkKind,
    /// Quanta of one process.
    pub order: u64,
    /// Processes it can use in this round (the cap).
    pub wanted: u64,
    /// Parts of the cap.
    #[serde(default)]
    pub cap: CapParts,
    /// Processes it is due.
    pub counted: u64,
    /// Processes it has, without leaving ones, with those granted by this plan.
    pub current: u64,
    /// Processes ordered to leave.
    pub leaving: u64,
    #[serde(flatten)]
    pub tally: Tally,
}

/// Limits of the number of processes of a piece of work. Absent parts do not limit it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapParts {
    /// By its own limit and remaining tasks.
    pub base: u64,
    /// Until its first process has shown how long a task takes.
    pub initialization: Option<u64>,
    /// Twice what it had reached.
    pub doubling: Option<u64>,
    /// Processes still useful once they have started; replaces `base`.
    pub prediction: Option<u64>,
    /// Processes it could hold if everything preemptable left.
    pub room: Option<u64>,
}

/// The numbers of a verdict that all work has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub counted: u64,
    pub current: u64,
    pub leaving: u64,
    pub order: u64,
    pub wanted: u64,
}
