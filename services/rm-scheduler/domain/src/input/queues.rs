//! Queues of the pools that the `capacity` planner serves: their configuration, and the state that
//! one round carries over to the next.
//!
//! Amounts are given by resource type. A type that a maximum does not name is unlimited. The types
//! are `memory` in bytes, `vcore` and `gpu` in thousandths, and named extras in their own unit.

use std::collections::{BTreeMap, BTreeSet};

pub use hayward_vocabulary::{Gang, Queued};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};

/// Amounts by resource type.
pub type Amounts = BTreeMap<String, u64>;

/// The queues of one top-level pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queues {
    pub root: Queue,
    /// Rules that name the queue of an application, tried in this order. If empty, an application
    /// goes to the queue it requests, if that queue exists (AP-24).
    pub placement: Vec<Rule>,
    pub node_sort: NodeSort,
    /// Weight of each type for the score of a node. If empty, memory and vcore count equally
    /// (AP-23).
    pub weights: Amounts,
    /// Whether waiting work may preempt other work.
    pub preemption: bool,
    /// Whether a queue above its maximum is preempted, for example after the maximum was lowered.
    pub quota_preemption: bool,
    /// Milliseconds after a preemption in which the same work is not preempted again.
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
    /// Prefers the least used node.
    #[default]
    Fair,
    /// Prefers the most used node.
    Binpacking,
}

/// One queue. Its full path is the names from `root` down to it, joined by dots, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, Queue>,
    /// Whether the queue has children or may get some.
    pub parent: bool,
    /// Maximum that work in the queue and in its children may hold.
    pub max: Amounts,
    /// Guarantee of the queue and its children. An absent type has no guarantee.
    pub guaranteed: Amounts,
    /// Maximum number of applications. `None` means no limit.
    pub max_applications: Option<u64>,
    pub submit: Acl,
    pub admin: Acl,
    /// Order of applications. `None` takes the value of the nearest ancestor, here and in the
    /// fields up to `quota_preemption_delay_ms`.
    pub sort: Option<Sort>,
    pub sort_by_priority: Option<bool>,
    /// Number of failed placement attempts of one application in a round after which it backs off.
    /// 0 disables the back-off.
    pub backoff_asks: Option<u64>,
    /// Milliseconds for which such an application is not tried again.
    pub backoff_ms: Option<u64>,
    pub preemption_delay_ms: Option<u64>,
    pub quota_preemption_delay_ms: Option<u64>,
    /// Whether priorities inside the queue have no effect outside.
    pub priority_fence: bool,
    /// Number added to the priorities of the applications in the queue.
    pub priority_offset: i32,
    pub preemption: Preemption,
    pub limits: Vec<Limit>,
    /// Values of dynamic leaf queues below this queue. `None` gives them the defaults.
    pub template: Option<Template>,
    /// True if the queue was removed from the configuration. Its applications continue, and new
    /// ones are refused.
    pub draining: bool,
    /// Time at which draining began. Applications submitted before may continue to wait. `None` if
    /// the queue is not draining.
    #[serde(rename = "drained_at", skip_serializing_if = "Option::is_none")]
    pub drain_began_at: Option<Timestamp>,
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
    /// Sorts applications by their dominant shares.
    Fair,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preemption {
    #[default]
    Default,
    /// Work below this queue may preempt only below this queue.
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

/// A limit for each of these users, or for all members of each of these groups together. The name
/// `*` stands for all users that no other limit names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub max: Amounts,
    pub max_applications: Option<u64>,
}

/// Values of queues that are created while the scheduler runs.
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
    #[serde(rename = "by")]
    pub source: QueueSource,
    /// Whether a missing queue is created.
    #[serde(default)]
    pub create: bool,
    /// Rule that names the parent queue. `None` means the root queue.
    #[serde(default)]
    pub parent: Option<Box<Rule>>,
    /// Users and groups to which the rule applies. `None` means all.
    #[serde(default)]
    pub filter: Option<Filter>,
}

/// Source of the name of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueSource {
    /// The queue that the application requests.
    Provided,
    /// The queue with the name of the user.
    User,
    /// The queue of this name.
    Fixed(String),
    /// The queue named by the value of this tag.
    Tag(String),
}

/// Users and groups to which a rule applies. The only entry of a list may be a regular expression.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Whether the rule applies to the named users and groups. If false, it applies to all others.
    pub allow: bool,
    pub users: Vec<String>,
    pub groups: Vec<String>,
}

/// State of one top-level pool that a round carries over to the next. Every entry expires.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CarriedQueueState {
    /// Reservations by node. A node has at most one.
    pub reservations: BTreeMap<NodeName, Reservation>,
    /// Reserved space of one gang, on all nodes that it needs. Only one gang may reserve space,
    /// because two gangs with half of their space could block each other (I13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangReservation>,
    /// Time since which a gang waits for nodes that are reserved for other work. Until the gang has
    /// space, no new reservation is made. `None` if no gang waits.
    #[serde(rename = "gang_waits", skip_serializing_if = "Option::is_none")]
    pub gang_waits_since: Option<Timestamp>,
    /// Gangs that found no suitable nodes in the current cycle through the waiting gangs. They are
    /// tried again after all others.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub passed_over: BTreeSet<WorkId>,
    /// Time at which the last reservation of a piece of work ended without effect. If processes
    /// were vacated for the reservation, the time is in the future, so that the entry lasts longer.
    pub lapsed: BTreeMap<WorkId, Timestamp>,
    /// Time at which the back-off ends, by application.
    pub backing_off: BTreeMap<String, Timestamp>,
    /// Time of the last preemption attempt without effect, by work.
    pub attempts: BTreeMap<WorkId, Timestamp>,
    /// Time of the last preemption of a process, by work.
    #[serde(rename = "hit")]
    pub last_loss: BTreeMap<WorkId, Timestamp>,
    /// Time since which a queue exceeds its maximum, by path.
    #[serde(rename = "over")]
    pub over_max_since: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub work: WorkId,
    /// Number of processes for which space is reserved.
    pub processes: u64,
    pub since: Timestamp,
    /// True if processes were vacated for this reservation.
    #[serde(default)]
    pub cleared: bool,
}

/// Reserved space for all processes that one gang lacks. It ends when the gang is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangReservation {
    /// Id of the piece of work that represents the gang.
    pub work: WorkId,
    pub since: Timestamp,
    /// True if processes were vacated for this reservation.
    #[serde(default)]
    pub cleared: bool,
    /// Number of reserved processes by node and piece of work. Other work may use the rest of a
    /// node.
    pub nodes: BTreeMap<NodeName, BTreeMap<WorkId, u64>>,
}
