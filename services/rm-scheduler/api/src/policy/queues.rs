//! The part of a policy that divides a top-level pool among queues. The policy stores this part as
//! the operator wrote it. The planner of queues validates and reads it.
//!
//! Amounts are numbers or texts with a unit: `10`, `"2G"`, `"512Mi"`, and for `vcore` and `gpu`
//! also `"500m"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Amounts by type: `memory` in bytes, whole `vcore` and `gpu`, counts of others.
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
    /// By name. Without a `root`, one is implied. The root has the capacity of its nodes.
    pub queues: BTreeMap<String, QueueForm>,
    /// Tried in this order. Default: the requested queue, if it exists.
    pub placement: Vec<PlacementRule>,
    pub node_sort: NodeSortForm,
    /// The same as limits of the root.
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
    /// By type. Default: memory and vcore alike.
    pub weights: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeSort {
    #[default]
    Fair,
    Binpacking,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueForm {
    /// Child queues. A queue with children takes no work itself.
    #[schema(no_recursion)]
    pub queues: BTreeMap<String, QueueForm>,
    /// Child queues may be created although none is configured.
    pub parent: bool,
    pub resources: QueueResources,
    /// Applications running at a time; 0 is any number.
    pub max_applications: u64,
    /// `*`, or users with commas, then a blank and groups with commas. Access to a parent is access
    /// to its children; empty allows none.
    pub submit_acl: String,
    /// Access to administer includes access to submit.
    pub admin_acl: String,
    /// Order of applications in a leaf. Default: that of the parent, at the top `fifo`.
    pub sort: Option<QueueSort>,
    /// Default: that of the parent, at the top true.
    pub sort_by_priority: Option<bool>,
    /// Failed requests of one application in a round before it pauses; 0 is never.
    pub backoff_asks: Option<u64>,
    /// Default: 30000.
    pub backoff_ms: Option<u64>,
    pub priority_policy: PriorityForm,
    pub priority_offset: i32,
    pub preemption: QueuePreemption,
    /// Milliseconds that requests wait before they preempt. Default: 30000.
    pub preemption_delay_ms: Option<u64>,
    /// Milliseconds before a use above a lowered maximum is preempted; 0 is never.
    pub quota_preemption_delay_ms: Option<u64>,
    pub limits: Vec<QueueLimit>,
    /// Values of child queues that are created.
    pub child_template: Option<QueueTemplate>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueResources {
    /// Guaranteed amounts, by preemption if necessary.
    pub guaranteed: Amounts,
    /// Absent types are not limited here.
    pub max: Amounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueueSort {
    Fifo,
    Fair,
}

/// `fence`: other queues see the offset of this queue, whatever waits inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PriorityForm {
    #[default]
    Default,
    Fence,
}

/// `fence`: preempts only inside. `disabled`: nothing is preempted here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueuePreemption {
    #[default]
    Default,
    Fence,
    Disabled,
}

/// The maximum of each of these users, or of each of these groups together, in a queue.
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

/// Which queue an application goes to.
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
    /// Names the parent queue. Default: the root.
    #[serde(default)]
    #[schema(no_recursion)]
    pub parent: Option<Box<PlacementRule>>,
    #[serde(default)]
    pub filter: Option<PlacementFilter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementKind {
    Provided,
    User,
    Fixed,
    Tag,
}

/// A single entry of a list may be a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementFilter {
    #[serde(rename = "type")]
    pub kind: PlacementPass,
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub groups: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementPass {
    Allow,
    Deny,
}
