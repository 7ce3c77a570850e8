//! How a top-level pool is divided among queues, as people write it (application protocol,
//! section 11). A policy keeps what was written; the planner of queues reads and judges it.
//!
//! These types say the form to readers of the API. Amounts are numbers or texts with a unit:
//! `10`, `"2G"`, `"512Mi"`, and of `vcore` and `gpu` also `"500m"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Amounts by type: `memory` in bytes, `vcore` and `gpu` in whole ones, others as they are counted.
pub type Amounts = BTreeMap<String, Amount>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Amount {
    Number(u64),
    Text(String),
}

/// The queues of one pool. Work says in which it goes, and is served in no class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueTree {
    /// By name. A `root` above them is implied where there is none; it has what its nodes have.
    pub queues: BTreeMap<String, QueueForm>,
    /// Tried in this order. Default: the queue that was asked for, if it is there.
    pub placement: Vec<PlacementRule>,
    pub node_sort: NodeSortForm,
    /// The same as limits of the root.
    pub limits: Vec<QueueLimit>,
    /// Default: true.
    pub preemption: Option<bool>,
    /// Also where a maximum was lowered. Default: false.
    pub quota_preemption: Option<bool>,
    /// What started anew is left alone for so long after one of its work was taken. Default:
    /// 60000.
    pub preemption_cooldown_ms: Option<u64>,
    /// A node is kept for work that waits for so long at most. Default: 300000.
    pub reservation_ms: Option<u64>,
}

/// In which order nodes are filled.
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
    /// Below it. A queue with others below it takes no work itself.
    #[schema(no_recursion)]
    pub queues: BTreeMap<String, QueueForm>,
    /// Queues may be made below it, though none is configured.
    pub parent: bool,
    pub resources: QueueResources,
    /// That run at one time; 0 is any number.
    pub max_applications: u64,
    /// `*`, or users with commas, then a blank and groups with commas. Access above is access here;
    /// empty lets nobody in.
    pub submit_acl: String,
    /// Who may administer it may submit, too.
    pub admin_acl: String,
    /// Of applications in a leaf. Default: that of the queue above, at the top `fifo`.
    pub sort: Option<QueueSort>,
    /// Default: that of the queue above, at the top true.
    pub sort_by_priority: Option<bool>,
    /// Asks of one application that fail in a round before it is left alone; 0 is never.
    pub backoff_asks: Option<u64>,
    /// Default: 30000.
    pub backoff_ms: Option<u64>,
    pub priority_policy: PriorityForm,
    pub priority_offset: i32,
    pub preemption: QueuePreemption,
    /// What asks waits so long before it takes from others. Default: 30000.
    pub preemption_delay_ms: Option<u64>,
    /// What is over a lowered maximum stays so long; 0 is for ever.
    pub quota_preemption_delay_ms: Option<u64>,
    pub limits: Vec<QueueLimit>,
    /// What queues made below it have.
    pub child_template: Option<QueueTemplate>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueResources {
    /// Taken from others if need be.
    pub guaranteed: Amounts,
    /// Types that are not named are not limited here.
    pub max: Amounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueueSort {
    Fifo,
    Fair,
}

/// `fence`: outside it counts for its offset, whatever waits inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PriorityForm {
    #[default]
    Default,
    Fence,
}

/// `fence`: takes from nobody outside. `disabled`: nothing is taken here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueuePreemption {
    #[default]
    Default,
    Fence,
    Disabled,
}

/// What each of these users, or each of these groups together, may have in a queue.
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
    /// Of `fixed` the queue, of `tag` the name of the tag.
    #[serde(default)]
    pub value: Option<String>,
    /// Makes the queue where it is missing.
    #[serde(default)]
    pub create: bool,
    /// Names the queue above. Default: the root.
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
