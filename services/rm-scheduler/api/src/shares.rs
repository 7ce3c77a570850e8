//! Response of `GET /v1/shares`: how the capacity is divided down to each piece of work. Amounts
//! are quanta of their tree of pools, unless a comment says that they are processes.
//!
//! A caller sees all users that it may not know by name as sums: `others`, `ledger_of_others` and
//! `budgets.others`. These sums are part of all totals (S12).
//!
//! These equations hold:
//! - a pool: `total = usable + lost + offline + blocked + declined + withheld`, `usable + over =
//!   held + free`, and `free` is the sum of the reasons in `idle`;
//! - the fleet: `capacity` and `free` are the sums over the pools; `held` is the sum of `held` and
//!   `held_closed` over the pools and of `elsewhere`, and also the sum over the classes and
//!   `unclassed`;
//! - a turn: for the first turn of a tree, `available` is `usable` less `fixed` of its pools. For
//!   each later turn, it is `available` less `taken` of the turn before;
//! - every tally: `due = divided + resting + lent`, `held = staying + granted + vacating`;
//! - priority, class and user: each field of the tally is the sum of that field one level below;
//! - class and user: `given = left +` the amounts given one level below (for work: `divided`);
//! - work: `due = counted × order`, and `wanted` is the smallest part of its `cap`.

use hayward_vocabulary::{Timestamp, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::SharePolicy;

/// `GET /v1/shares`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shares {
    pub round: u64,
    pub at: Timestamp,
    /// Quanta of all nodes that take work.
    pub capacity: u64,
    /// Quanta of all allocations that have not ended, on any node.
    pub held: u64,
    /// Quanta free on the nodes that take work.
    pub free: u64,
    #[serde(default)]
    pub pools: Vec<PoolShare>,
    /// Quanta held on removed nodes.
    #[serde(default)]
    pub elsewhere: u64,
    /// By tree, in serving order.
    #[serde(default)]
    pub priorities: Vec<PriorityShare>,
    pub classes: Vec<ClassShare>,
    /// Quanta of work that is withdrawn or may not be served.
    #[serde(default)]
    pub unclassed: Tally,
    /// Since the first round of the fleet.
    pub ledger: Vec<LedgerLine>,
    /// Sums by class of all users that the caller may not know by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledger_of_others: Vec<OthersLedger>,
    /// Preemption budgets, and preemptions of the last hour.
    #[serde(default)]
    pub budgets: Budgets,
    /// Pools with queues. They are counted in `/v1/queues` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub divided: Vec<String>,
    /// Pools with an external planner. See `/v1/planners`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
}

/// Quanta that may be preempted in an hour. If a budget is used up, work waits until other
/// processes end by themselves (B5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Budgets {
    /// Percent of all quanta of a pool; absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_percent_per_hour: Option<u64>,
    /// For one user, percent of all quanta of a tree; absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_percent_per_hour: Option<u64>,
    pub pools: Vec<PoolBudget>,
    /// Users with preempted work in the last hour.
    pub users: Vec<UserBudget>,
    /// Sums by tree of all users that the caller may not know by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OthersBudget>,
}

/// Preemption budget of one pool, in quanta for an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolBudget {
    pub pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
    /// Preempted in the last hour.
    pub spent: u64,
}

/// Preemption budget of one user, in quanta for an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserBudget {
    /// The pool without parent.
    pub tree: String,
    pub user: UserName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
    /// Preempted in the last hour.
    pub spent: u64,
}

/// Preempted quanta of users of one tree that the caller may not know by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersBudget {
    /// The pool without parent.
    pub tree: String,
    /// Number of users.
    pub users: u64,
    /// Preempted in the last hour.
    pub spent: u64,
}

/// Entitlement and use, in quanta.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Tally {
    /// Entitlement.
    pub due: u64,
    /// Entitlement by division among all work with demand.
    pub divided: u64,
    /// Entitlement outside the division: allocations on nodes that take no new work.
    pub resting: u64,
    /// Entitlement to idle space, which is lent as long as no other work can use it.
    pub lent: u64,
    /// Quanta of all allocations.
    pub held: u64,
    /// Held before this round, and not ordered to leave.
    pub staying: u64,
    /// Granted by this round.
    pub granted: u64,
    /// Ordered to leave and not ended.
    pub vacating: u64,
    /// Part of `held` on nodes that take no new work.
    pub closed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolShare {
    pub pool: String,
    /// The pool without parent.
    pub tree: String,
    /// Quanta of all its nodes.
    pub total: u64,
    /// On nodes that do not answer.
    pub lost: u64,
    /// On nodes that are offline.
    pub offline: u64,
    pub blocked: u64,
    /// On nodes that decline new work.
    pub declined: u64,
    /// On nodes with work that belongs to no class.
    pub withheld: u64,
    /// The rest: on nodes that take work.
    pub usable: u64,
    /// Held on usable nodes.
    pub held: u64,
    /// Held on usable nodes by work that is never preempted.
    pub fixed: u64,
    /// Held on usable nodes beyond their capacity, after they shrank.
    pub over: u64,
    /// Held on the other nodes.
    pub held_closed: u64,
    pub free: u64,
    pub idle: Idle,
}

/// Why free space is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Idle {
    /// Reserved for waiting work until the rest of its space is free.
    pub meant: u64,
    /// Demanded and large enough, but a rule forbids it.
    pub kept: u64,
    /// Demanded, but no process fits into the free space of a node.
    pub split: u64,
    /// Usable only by work at its cap or allotment.
    pub capped: u64,
    /// Not demanded.
    pub unasked: u64,
}

/// The classes of one tree with the same priority and policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriorityShare {
    /// Absent for classes of a missing pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Lower numbers are served first.
    pub priority: i64,
    pub policy: SharePolicy,
    pub classes: Vec<String>,
    /// Absent when no class has work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    #[serde(flatten)]
    pub tally: Tally,
}

/// Quanta that were available to these classes, and the quanta they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Turn {
    pub available: u64,
    pub taken: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassShare {
    pub class: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    pub policy: SharePolicy,
    pub priority: i64,
    pub weight: u64,
    /// Given by the division among classes.
    pub given: u64,
    /// Given to no user, because processes are indivisible.
    pub left: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub users: Vec<UserShare>,
    /// All other users of the class that the caller may not know by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OthersShare>,
}

/// Users of one class as a sum (S12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersShare {
    /// Number of users.
    pub users: u64,
    /// Given by the division among the users of the class.
    pub given: u64,
    /// Given to no job.
    pub left: u64,
    #[serde(flatten)]
    pub tally: Tally,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserShare {
    pub user: UserName,
    /// Given by the division among the users of the class.
    pub given: u64,
    /// Given to no job.
    pub left: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub work: Vec<WorkShare>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkShare {
    pub work: WorkId,
    pub kind: WorkKind,
    /// Quanta of one process.
    pub order: u64,
    /// Processes it could use.
    pub wanted: u64,
    #[serde(default)]
    pub cap: CapParts,
    /// Processes it is entitled to.
    pub counted: u64,
    /// Processes it has, without those ordered to leave.
    pub current: u64,
    /// Processes ordered to leave.
    pub leaving: u64,
    #[serde(flatten)]
    pub tally: Tally,
}

/// Limits on the processes of a piece of work. Absent parts do not limit it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CapParts {
    /// By its own limit and its remaining tasks.
    pub base: u64,
    /// Until its first process has shown how long a task takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<u64>,
    /// Twice the number it had reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubling: Option<u64>,
    /// Processes that are still useful once they have started; then it replaces `base`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<u64>,
    /// Processes it could hold if everything preemptable gave way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
}

/// Entitlement and use of a user, in quanta times milliseconds (I10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerLine {
    pub user: UserName,
    pub class: String,
    pub due_quantum_ms: u64,
    pub received_quantum_ms: u64,
}

/// Users of one class as a sum, in quanta times milliseconds (S12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersLedger {
    pub class: String,
    /// Number of users.
    pub users: u64,
    pub due_quantum_ms: u64,
    pub received_quantum_ms: u64,
}
