//! Queues, for pools that the `capacity` planner serves: how a top-level pool is divided, what a
//! piece of work says of its place in a queue, and what one round leaves for the next.
//!
//! Resources are sparse here: a type that a maximum does not name is unlimited (application
//! protocol, section 6). Types are `memory` in bytes, `vcore` and `gpu` in thousandths, and named
//! extras as they are counted.

use std::collections::{BTreeMap, BTreeSet};

pub use hayward_vocabulary::{Gang, Queued};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};

pub type Amounts = BTreeMap<String, u64>;

/// How one top-level pool is divided among queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queues {
    pub root: Queue,
    /// Tried in this order; none means: the queue that was asked for, if it is there (7.5).
    pub placement: Vec<Rule>,
    pub node_sort: NodeSort,
    /// By type; empty means memory and vcore alike (9.1).
    pub weights: Amounts,
    pub preemption: bool,
    /// Also where a maximum was lowered (10.5).
    pub quota_preemption: bool,
    /// A recreated process is left alone for so long after one of its work was taken (10.6).
    pub preemption_cooldown_ms: u64,
    /// A reservation ends after this (9.3).
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

/// One queue; its full path is `root` and the names down to it, joined by dots, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, Queue>,
    /// Has children, or may be given some.
    pub parent: bool,
    pub max: Amounts,
    pub guaranteed: Amounts,
    pub max_applications: Option<u64>,
    pub submit: Acl,
    pub admin: Acl,
    /// Absent values of these are the nearest ancestor's.
    pub sort: Option<Sort>,
    pub sort_by_priority: Option<bool>,
    /// Asks of one application that fail in a round before it is left alone; 0 is never (9.4).
    pub backoff_asks: Option<u64>,
    pub backoff_ms: Option<u64>,
    pub preemption_delay_ms: Option<u64>,
    pub quota_preemption_delay_ms: Option<u64>,
    pub priority_fence: bool,
    pub priority_offset: i32,
    pub preemption: Preemption,
    pub limits: Vec<Limit>,
    /// What dynamic leaves below have.
    pub template: Option<Template>,
    /// Not in the configuration any more: what is there goes on, nothing new comes.
    pub draining: bool,
    /// Since when: applications that are older may go on waiting in it.
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
    /// By dominant shares (8.3).
    Fair,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preemption {
    #[default]
    Default,
    /// What is asked below never takes from outside.
    Fence,
    /// Nothing here is taken.
    Disabled,
}

/// Who may submit (7.3). Empty denies.
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

/// A limit of each of these users, or of each of these groups together (7.4); `*` is everybody
/// without an entry of their own.
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

/// Which queue an application goes to (7.5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub by: By,
    /// Makes the queue where it is missing.
    #[serde(default)]
    pub create: bool,
    /// Names the queue above; absent is the root.
    #[serde(default)]
    pub parent: Option<Box<Rule>>,
    #[serde(default)]
    pub filter: Option<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The queue that was asked for.
    Provided,
    User,
    /// Always this one.
    Fixed(String),
    /// The value of this tag.
    Tag(String),
}

/// A single entry may be a regular expression.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Otherwise who is named is passed over.
    pub allow: bool,
    pub users: Vec<String>,
    pub groups: Vec<String>,
}

/// What a round leaves for the next one, by top-level pool. All of it ends by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// One piece of work for each node (9.3).
    pub reservations: BTreeMap<NodeName, Reservation>,
    /// Room for one gang, on as many nodes as it needs: two would each keep a half (I13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangRoom>,
    /// Since when a gang waits for nodes that are kept for others: until it has room itself, nobody
    /// else gets any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_waits: Option<Timestamp>,
    /// Gangs for which no nodes were found since the first of those that wait was looked at: the
    /// others have their turn before they are looked at again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub passed_over: BTreeSet<WorkId>,
    /// When the last reservation of a piece of work ended without effect; later, where it is to
    /// count for longer.
    pub lapsed: BTreeMap<WorkId, Timestamp>,
    /// Applications that are left alone, and until when (9.4).
    pub backing_off: BTreeMap<String, Timestamp>,
    /// When taking from others was last tried for a piece of work, and did not help.
    pub attempts: BTreeMap<WorkId, Timestamp>,
    /// When a process of this work was last taken for others (10.6).
    pub hit: BTreeMap<WorkId, Timestamp>,
    /// Since when a queue has more than its maximum (10.5).
    pub over: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub work: WorkId,
    pub processes: u64,
    pub since: Timestamp,
    /// Others were told to leave for it.
    #[serde(default)]
    pub cleared: bool,
}

/// Room for all that one gang lacks. It is over when the gang lacks nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangRoom {
    /// Of the part that stands for the gang.
    pub work: WorkId,
    pub since: Timestamp,
    /// Others were told to leave for it.
    #[serde(default)]
    pub cleared: bool,
    /// Processes of each part, by node. What else fits on a node may go there.
    pub nodes: BTreeMap<NodeName, BTreeMap<WorkId, u64>>,
}
