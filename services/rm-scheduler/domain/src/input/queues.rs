//! Queues of the pools that the `capacity` planner serves: the configuration of the queues, the
//! position of work in them, and the state that one round leaves for the next.
//!
//! Amounts are sparse: a type that a maximum does not name is unlimited (application protocol,
//! Resources). Types are `memory` in bytes, `vcore` and `gpu` in thousandths, and named extras in
//! their own unit.

use std::collections::{BTreeMap, BTreeSet};

pub use hayward_vocabulary::{Gang, Queued};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};

pub type Amounts = BTreeMap<String, u64>;

/// The queues of one top-level pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queues {
    pub root: Queue,
    /// Rules that name the queue of an application, tried in this order. If empty, it is the
    /// requested queue, if that exists (AP-24).
    pub placement: Vec<Rule>,
    pub node_sort: NodeSort,
    /// Weight of each type for the score of a node. If empty, memory and vcore count equally
    /// (AP-23).
    pub weights: Amounts,
    pub preemption: bool,
    /// Whether a queue above its maximum is preempted, for example after the maximum was lowered.
    pub quota_preemption: bool,
    /// Milliseconds after a preemption in which the work is not preempted again.
    pub preemption_cooldown_ms: u64,
    /// Milliseconds after which a reservation ends.
    pub reservation_ms: u64,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            root: Queue {
                parent: true,
                ..Queue::default()
            },
            placement: Vec::new(),
            node_sort: NodeSort::Fair,
            weights: Amounts::new(),
            preemption: true,
            quota_preemption: false,
            preemption_cooldown_ms: 60_000,
            reservation_ms: 300_000,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeSort {
    /// The least used node first.
    #[default]
    Fair,
    /// The most used node first.
    Binpacking,
}

/// One queue. Its full path is `root` and the names down to it, joined by dots, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, Queue>,
    /// Whether the queue has children or may get some.
    pub parent: bool,
    pub max: Amounts,
    pub guaranteed: Amounts,
    pub max_applications: Option<u64>,
    pub submit: Acl,
    pub admin: Acl,
    /// Order of applications. If absent, that of the nearest ancestor. The same holds for the
    /// fields up to `quota_preemption_delay_ms`.
    pub sort: Option<Sort>,
    pub sort_by_priority: Option<bool>,
    /// Number of failed asks of one application in a round before it backs off. 0 means never.
    pub backoff_asks: Option<u64>,
    pub backoff_ms: Option<u64>,
    pub preemption_delay_ms: Option<u64>,
    pub quota_preemption_delay_ms: Option<u64>,
    pub priority_fence: bool,
    pub priority_offset: i32,
    pub preemption: Preemption,
    pub limits: Vec<Limit>,
    /// Values of dynamic leaves below this queue. If absent, they have the defaults.
    pub template: Option<Template>,
    /// The queue was removed from the configuration. Its applications continue, and new ones are
    /// refused.
    pub draining: bool,
    /// Begin of draining. Older applications may continue to wait. None if the queue is not
    /// draining.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_at: Option<Timestamp>,
}

impl Queue {
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty() && !self.parent
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    #[default]
    Fifo,
    /// By dominant shares.
    Fair,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preemption {
    #[default]
    Default,
    /// Work below this queue never preempts outside it.
    Fence,
    /// Work of this queue is never preempted.
    Disabled,
}

/// The users and groups that have a permission. An empty list denies all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Acl {
    pub everyone: bool,
    pub users: BTreeSet<String>,
    pub groups: BTreeSet<String>,
}

impl Acl {
    pub fn admits(&self, user: &str, groups: &[String]) -> bool {
        self.everyone
            || self.users.contains(user)
            || groups.iter().any(|group| self.groups.contains(group))
    }
}

/// A limit for each of these users, or for all members of each of these groups together. `*` stands
/// for all users without an entry of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub max: Amounts,
    pub max_applications: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Template {
    pub max: Amounts,
    pub guaranteed: Amounts,
    pub max_applications: Option<u64>,
    pub sort: Option<Sort>,
}

/// A rule that names the queue of an application (AP-24).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub by: By,
    /// Whether a missing queue is created.
    #[serde(default)]
    pub create: bool,
    /// Rule that names the parent queue. If absent, the root.
    #[serde(default)]
    pub parent: Option<Box<Rule>>,
    #[serde(default)]
    pub filter: Option<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The requested queue.
    Provided,
    User,
    /// This queue.
    Fixed(String),
    /// The queue named by the value of this tag.
    Tag(String),
}

/// Users and groups that a rule applies to. If a list has a single entry, it may be a regular
/// expression.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Whether the rule applies to the named users and groups. If false, it applies to all others.
    pub allow: bool,
    pub users: Vec<String>,
    pub groups: Vec<String>,
}

/// State of one top-level pool that a round leaves for the next. Every entry expires.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CarriedQueueState {
    /// Reservations by node. A node has at most one.
    pub reservations: BTreeMap<NodeName, Reservation>,
    /// Reserved space of one gang, on all nodes that it needs. Only one gang has it, since two
    /// could each hold a half (I13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangReservation>,
    /// Since when a gang waits for nodes that are reserved for other work. Until it has space, no
    /// new reservation is made. None if no gang waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_waits: Option<Timestamp>,
    /// Gangs without suitable nodes in this pass over the waiting gangs. They are tried again after
    /// all others.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub passed_over: BTreeSet<WorkId>,
    /// Time at which the last reservation of a piece of work ended without effect. A later time
    /// makes the entry count for longer.
    pub lapsed: BTreeMap<WorkId, Timestamp>,
    /// End of the back-off, by application.
    pub backing_off: BTreeMap<String, Timestamp>,
    /// Time of the last preemption attempt without effect, by work.
    pub attempts: BTreeMap<WorkId, Timestamp>,
    /// Time of the last preemption of a process, by work.
    pub hit: BTreeMap<WorkId, Timestamp>,
    /// Since when a queue exceeds its maximum, by path.
    pub over: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub work: WorkId,
    pub processes: u64,
    pub since: Timestamp,
    /// Whether other processes were vacated for it.
    #[serde(default)]
    pub cleared: bool,
}

/// Reserved space for all processes that one gang lacks. Ends when the gang is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangReservation {
    /// Id of the part that represents the gang.
    pub work: WorkId,
    pub since: Timestamp,
    /// Whether other processes were vacated for it.
    #[serde(default)]
    pub cleared: bool,
    /// Number of processes of each part, by node. Other work may use the rest of such a node.
    pub nodes: BTreeMap<NodeName, BTreeMap<WorkId, u64>>,
}
