//! The arithmetic from capacity to each piece of work. All amounts are quanta of the tree they
//! stand in, unless they are called processes.
//!
//! Users are told of others by amounts: `others`, `ledger_of_others` and `budgets.others` stand for
//! all whom the caller may not know by name (S12), and count wherever users are summed up.
//!
//! It adds up, so that everybody can check it:
//! * a pool: `total = usable + lost + offline + blocked + declined + withheld`,
//!   `usable + over = held + free`, and `free` is the sum of the reasons in `idle`;
//! * the fleet: `capacity` and `free` are the sums over the pools; `held` is the sum of `held` and
//!   `held_closed` over the pools and of `elsewhere`, and as well the sum over the classes and
//!   `unclassed`;
//! * a turn: the first of a tree has `usable` less `fixed` of its pools available, every later one
//!   what was available to the one before it less what that took;
//! * every tally: `due = divided + resting + lent`, `held = staying + granted + vacating`;
//! * priority, class and user: each field of the tally is the sum of that field one level below;
//! * class and user: `given = left +` what the level below was given (of work: `divided`);
//! * work: `due = counted × order`, and `wanted` is the least part of its `cap`.

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
    /// Quanta held by anything that has not ended, on any node.
    pub held: u64,
    /// Quanta free on the nodes that take work.
    pub free: u64,
    #[serde(default)]
    pub pools: Vec<PoolShare>,
    /// Held on nodes that are gone.
    #[serde(default)]
    pub elsewhere: u64,
    /// Tree by tree, in the order of their turns.
    #[serde(default)]
    pub priorities: Vec<PriorityShare>,
    pub classes: Vec<ClassShare>,
    /// Held by work that is withdrawn or may not be served.
    #[serde(default)]
    pub unclassed: Tally,
    /// Since the fleet's first round.
    pub ledger: Vec<LedgerLine>,
    /// Of all users whom the caller may not know by name, by class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledger_of_others: Vec<OthersLedger>,
    /// What may be taken back for others in an hour, and what was in the last one.
    #[serde(default)]
    pub budgets: Budgets,
    /// Pools that are divided among queues. Nothing here counts them; see `/v1/queues`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub divided: Vec<String>,
    /// Pools that are planned outside. Nothing here counts them; see `/v1/planners`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
}

/// What may be taken back for the sake of others in an hour (B5). Beyond it work waits for others
/// to end by themselves.
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
    /// Those from whom something was taken back within the hour.
    pub users: Vec<UserBudget>,
    /// Of all whom the caller may not know by name, by tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OthersBudget>,
}

/// Quanta of one pool that others may have in an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolBudget {
    pub pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
    /// Taken back within the last hour.
    pub spent: u64,
}

/// Quanta that one user may lose in an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserBudget {
    /// The top of the pools.
    pub tree: String,
    pub user: UserName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
    /// Taken back within the last hour.
    pub spent: u64,
}

/// Quanta that users of one tree lost within the hour whom the caller may not know by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersBudget {
    /// The top of the pools.
    pub tree: String,
    /// How many they are.
    pub users: u64,
    /// Taken back within the last hour.
    pub spent: u64,
}

/// What is due and what is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Tally {
    pub due: u64,
    /// Due by dividing what there is among who asks.
    pub divided: u64,
    /// Due where it stands, on nodes that take no new work: outside the division.
    pub resting: u64,
    /// Due while nobody else can use it: taken back as soon as somebody can.
    pub lent: u64,
    pub held: u64,
    /// Held before this round, and not told to leave.
    pub staying: u64,
    /// Granted by this round.
    pub granted: u64,
    /// Told to leave, and still there.
    pub vacating: u64,
    /// Of what is held: on nodes that take no new work.
    pub closed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolShare {
    pub pool: String,
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
    /// Nodes kept out because something that belongs to no class lies on them.
    pub withheld: u64,
    /// What remains: of the nodes that take work.
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Idle {
    /// Kept for waiting work until the rest of its room has been left.
    pub meant: u64,
    /// Somebody asks and it would fit, and a rule keeps it away.
    pub kept: u64,
    /// Somebody asks, and no process of theirs fits into what is free on the node.
    pub split: u64,
    /// Who could use it is held to a cap or an allotment.
    pub capped: u64,
    /// Nobody asks.
    pub unasked: u64,
}

/// The classes of one tree that have one priority and one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriorityShare {
    /// Absent for classes on a pool that does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// The lower number has its turn first.
    pub priority: i64,
    pub policy: SharePolicy,
    pub classes: Vec<String>,
    /// Absent when none of its classes has work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    #[serde(flatten)]
    pub tally: Tally,
}

/// One turn: what could be had at most, and what of it is counted for these classes.
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
    /// What division among classes gave it.
    pub given: u64,
    /// What of it no user could be given: processes do not come in parts.
    pub left: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub users: Vec<UserShare>,
    /// All its other users together, whom the caller may not know by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OthersShare>,
}

/// Users of one class, as amounts (S12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersShare {
    /// How many they are.
    pub users: u64,
    /// What division among the users of the class gave them.
    pub given: u64,
    /// What of it no job could be given.
    pub left: u64,
    #[serde(flatten)]
    pub tally: Tally,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserShare {
    pub user: UserName,
    /// What division among the users of the class gave.
    pub given: u64,
    /// What of it no job could be given.
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
    /// Processes it is due.
    pub counted: u64,
    /// Processes it has, without those told to leave.
    pub current: u64,
    /// Processes told to leave.
    pub leaving: u64,
    #[serde(flatten)]
    pub tally: Tally,
}

/// What limits the processes of a piece of work. Absent parts do not limit it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CapParts {
    /// By its own limit and the tasks it has left.
    pub base: u64,
    /// Until its first process has shown how long a task takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<u64>,
    /// Twice what it had reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubling: Option<u64>,
    /// What will still be useful once it has started; then it stands for `base`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<u64>,
    /// What it could hold if everything that may be taken back gave way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
}

/// Quanta times milliseconds: what a user was due and what the user had (G15, I10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerLine {
    pub user: UserName,
    pub class: String,
    pub due_quantum_ms: u64,
    pub received_quantum_ms: u64,
}

/// Quanta times milliseconds of users of one class, as amounts (S12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersLedger {
    pub class: String,
    /// How many they are.
    pub users: u64,
    pub due_quantum_ms: u64,
    pub received_quantum_ms: u64,
}
