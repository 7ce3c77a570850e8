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
    /// Of the nodes that take work.
    pub capacity: u64,
    /// Held by anything, leaving or not, on any node.
    pub held: u64,
    /// Free on the nodes that take work.
    pub free: u64,
    #[serde(default)]
    pub pools: BTreeMap<String, PoolShare>,
    /// Held on nodes that are gone, or belong to no pool.
    #[serde(default)]
    pub elsewhere: u64,
    /// By tree, then in the order of their turns.
    #[serde(default)]
    pub priorities: Vec<PriorityShare>,
    pub classes: BTreeMap<String, ClassShare>,
    /// Held by work that is withdrawn or may not be served.
    #[serde(default)]
    pub unclassed: Tally,
}

/// What is due and what is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub due: u64,
    /// Due by counting what there is among who asks (section 9).
    pub divided: u64,
    /// Due where it stands, on nodes that take no new work: outside the counting.
    pub resting: u64,
    /// Due while nobody else can use it: taken back as soon as somebody can.
    pub lent: u64,
    pub held: u64,
    pub staying: u64,
    /// Placed by this plan.
    pub granted: u64,
    /// Told to leave, and still there.
    pub vacating: u64,
    /// Of what is held: on nodes that take no new work.
    pub closed: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolShare {
    /// The top of its tree.
    pub tree: String,
    /// Of all its nodes, whatever their state.
    pub total: u64,
    /// Nodes that cannot answer.
    pub lost: u64,
    /// Nodes varied off.
    pub offline: u64,
    pub blocked: u64,
    /// Nodes that decline new work themselves.
    pub declined: u64,
    /// Nodes kept out because something without a class lies on them.
    pub withheld: u64,
    pub usable: u64,
    /// Held on usable nodes.
    pub held: u64,
    /// Held on usable nodes by work that is never taken back.
    pub fixed: u64,
    /// Held on usable nodes beyond what they have: they shrank.
    pub over: u64,
    /// Held on the other nodes.
    pub held_closed: u64,
    pub free: u64,
    pub idle: Idle,
}

/// Why free room is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// Kept for waiting work until the rest of its room has been left.
    pub meant: u64,
    /// Somebody asks and it would fit, and a rule keeps it away (completing, churn, spreading).
    pub kept: u64,
    /// Somebody asks, and no process of theirs fits into what is free on the node.
    pub split: u64,
    /// Who could use it is held to a cap or an allotment.
    pub capped: u64,
    /// Nobody asks.
    pub unasked: u64,
}

/// The classes of one tree that have one priority and one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityShare {
    /// Absent for classes on a pool that does not exist.
    pub tree: Option<String>,
    pub priority: i64,
    pub policy: Policy,
    pub classes: Vec<String>,
    /// Absent when none of its classes has work: then it has no turn.
    pub turn: Option<Turn>,
    #[serde(flatten)]
    pub tally: Tally,
}

/// One turn in counting: what could be had at most, and what of it is counted for these classes.
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
    /// What division among classes gave it.
    pub given: u64,
    /// What of it no user could be given: processes do not come in parts.
    pub left: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub users: BTreeMap<UserName, UserShare>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserShare {
    /// What division among the users of the class gave.
    pub given: u64,
    /// What of it no job could be given.
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
    /// What the cap is made of.
    #[serde(default)]
    pub cap: CapParts,
    /// Processes it is due.
    pub counted: u64,
    /// Processes it has, without those told to leave, with those granted by this plan.
    pub current: u64,
    /// Processes told to leave.
    pub leaving: u64,
    #[serde(flatten)]
    pub tally: Tally,
}

/// What limits the processes of a piece of work (section 5). Absent parts do not limit it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapParts {
    /// By its own limit and the tasks it has left.
    pub base: u64,
    /// Until its first process has shown how long a task takes.
    pub initialization: Option<u64>,
    /// Twice what it had reached.
    pub doubling: Option<u64>,
    /// What will still be useful once it has started; then it stands for `base`.
    pub prediction: Option<u64>,
    /// What it could hold if everything preemptable gave way.
    pub room: Option<u64>,
}

/// Of [`Numbers`] those that everybody has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub counted: u64,
    pub current: u64,
    pub leaving: u64,
    pub order: u64,
    pub wanted: u64,
}
