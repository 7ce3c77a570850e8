//! The part of a policy that divides a top-level pool among queues. The policy stores this part as
//! the operator wrote it. The planner of queues validates and reads it. Types whose name ends in
//! `Form` are the form in the document; the planner has a type of its own for the same thing.
//!
//! Amounts are numbers or texts with a unit: `10`, `"2G"`, `"512Mi"`, and for `vcore` and `gpu`
//! also `"500m"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Amounts by resource type. The unit of `memory` is a byte. All other types are counted.
pub type Amounts = BTreeMap<String, Amount>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Amount {
    Number(u64),
    Text(String),
}

/// The queues of one pool. Work names its queue, and no class serves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueTree {
    /// Queues by name. If there is no `root`, these queues are the children of an implied root. The
    /// root has the capacity of its nodes.
    pub queues: BTreeMap<String, QueueForm>,
    /// Rules that choose the queue of an application. They are tried in this order. Default: the
    /// requested queue, if it exists.
    pub placement: Vec<PlacementRule>,
    pub node_sort: NodeSortForm,
    /// Limits of users and groups in the whole tree, like the limits of the root.
    pub limits: Vec<QueueLimit>,
    /// Default: true.
    pub preemption: Option<bool>,
    /// Preempt also for a lowered maximum. Default: false.
    pub quota_preemption: Option<bool>,
    /// Milliseconds after a preemption during which a newly started process of the same work is not
    /// preempted. Default: 60000.
    pub preemption_cooldown_ms: Option<u64>,
    /// Maximum milliseconds for which a node is reserved for waiting work. Default: 300000.
    pub reservation_ms: Option<u64>,
}

/// The order in which nodes are filled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSortForm {
    /// `fair`: the least used first. `binpacking`: the most used first.
    pub policy: NodeSort,
    /// Weights by resource type. Default: equal weights of memory and vcore.
    pub weights: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeSort {
    #[default]
    Fair,
    Binpacking,
}

/// One queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueForm {
    /// Child queues. A queue with children takes no work itself.
    #[schema(no_recursion)]
    pub queues: BTreeMap<String, QueueForm>,
    /// Child queues may be created although none is configured.
    pub parent: bool,
    pub resources: QueueResources,
    /// Maximum number of applications that run at a time; 0 means no limit.
    pub max_applications: u64,
    /// Users and groups that may submit: `*` for all, or users separated by commas, a blank, and
    /// groups separated by commas. Access to a parent includes access to its children. An empty
    /// text allows no user.
    pub submit_acl: String,
    /// Users and groups that may administer, in the same format. They may also submit.
    pub admin_acl: String,
    /// Order of applications in a leaf. Default: the order of the parent, and `fifo` for the root.
    pub sort: Option<QueueSort>,
    /// True if applications with a higher priority come first. Default: the value of the parent,
    /// and true for the root.
    pub sort_by_priority: Option<bool>,
    /// Number of failed requests of an application in one round after which the application pauses;
    /// 0 means that it never pauses.
    pub backoff_asks: Option<u64>,
    /// Milliseconds of that pause. Default: 30000.
    pub backoff_ms: Option<u64>,
    pub priority_policy: PriorityForm,
    pub priority_offset: i32,
    pub preemption: QueuePreemption,
    /// Milliseconds that requests wait before they preempt. Default: 30000.
    pub preemption_delay_ms: Option<u64>,
    /// Milliseconds until processes above a lowered maximum are preempted; 0 means never.
    pub quota_preemption_delay_ms: Option<u64>,
    pub limits: Vec<QueueLimit>,
    /// Values for child queues that a placement rule creates.
    pub child_template: Option<QueueTemplate>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueResources {
    /// Guaranteed amounts, by preemption if necessary.
    pub guaranteed: Amounts,
    /// Maximum amounts. Types that are absent here have no limit.
    pub max: Amounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueueSort {
    Fifo,
    Fair,
}

/// `fence`: in comparisons with other queues, only the offset of this queue counts, and not the
/// priorities of the applications inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PriorityForm {
    #[default]
    Default,
    Fence,
}

/// `fence`: applications inside preempt only inside. `disabled`: nothing is preempted here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueuePreemption {
    #[default]
    Default,
    Fence,
    Disabled,
}

/// Limit in a queue of each of these users, and of all members of each of these groups together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueLimit {
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub max_resources: Amounts,
    pub max_applications: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueTemplate {
    pub resources: QueueResources,
    pub max_applications: u64,
    pub sort: Option<QueueSort>,
}

/// A rule that chooses the queue of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementRule {
    pub rule: PlacementKind,
    /// For `fixed` the queue, for `tag` the name of the tag.
    #[serde(default)]
    pub value: Option<String>,
    /// Creates the queue if it is missing.
    #[serde(default)]
    pub create: bool,
    /// Rule that chooses the parent queue. Default: the root.
    #[serde(default)]
    #[schema(no_recursion)]
    pub parent: Option<Box<PlacementRule>>,
    #[serde(default)]
    pub filter: Option<PlacementFilter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementKind {
    /// The queue that the application requests.
    Provided,
    /// The queue with the name of the user.
    User,
    /// The queue in `value`.
    Fixed,
    /// The queue that a tag of the application names.
    Tag,
}

/// Users and groups to which a placement rule applies or does not apply. If a list has exactly one
/// entry, the entry may be a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementFilter {
    #[serde(rename = "type")]
    pub kind: PlacementFilterKind,
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub groups: Vec<String>,
}

/// Whether the rule applies to the matching users and groups, or to all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = PlacementPass)]
pub enum PlacementFilterKind {
    Allow,
    Deny,
}
