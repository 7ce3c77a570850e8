//! The policy: one versioned document that describes how nodes are shared.
//!
//! The policy is stored as written. A class inherits absent values from its parent, by rules that
//! are in the policy crate. Pools and classes are fields of JSON objects, which have no order.
//! Their field `place` therefore has their position in the order of definition.

mod changes;
mod class;
mod queues;
mod tunables;

use std::collections::BTreeMap;

use hayward_vocabulary::Quantum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use changes::{
    ClassShift, NodeShift, PolicyAnswer, PolicyHistory, PolicyMoves, PolicyVersion, ProcessShift,
    UserShift, WorkShift,
};
pub use class::{Class, SharePolicy};
pub use queues::{
    Amount, Amounts, NodeSort, NodeSortForm, PlacementFilter, PlacementFilterKind, PlacementKind,
    PlacementRule, PriorityForm, QueueForm, QueueLimit, QueuePreemption, QueueResources, QueueSort,
    QueueTemplate, QueueTree,
};
pub use tunables::{Profile, Switches, Tunables};

/// `GET/PUT /v1/policy`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The unit of shares. With several dimensions, the dominant share of a process counts.
    #[serde(default)]
    pub quantum: Quantum,
    /// By name. A pool without parent shares nothing with other trees.
    pub pools: BTreeMap<String, Pool>,
    /// By name.
    pub classes: BTreeMap<String, Class>,
    #[serde(default)]
    pub users: BTreeMap<String, UserPolicy>,
    #[serde(default)]
    pub tunables: Tunables,
    /// The settings of the planner, except those that `settings` changes. Absent means `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profile: Option<Profile>,
    /// Old name of `profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub preset: Option<Profile>,
    #[serde(default, skip_serializing_if = "Switches::is_default")]
    pub settings: Switches,
}

/// A named set of nodes. Each node is in one pool: the first pool whose pattern matches, else the
/// pool that lists it, else the pool its agent names, else the first pool without parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Children with lower numbers are searched first.
    pub search_order: i64,
    /// Position in the order of definition. Pools without one come last, by name, `default` first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<u64>,
    /// The unit of this tree instead of that of the policy. For pools without parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<Quantum>,
    /// Names or addresses, with or without domain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// A regular expression for the full name, the short name or the address (label `address`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Nodes whose agents name this pool belong to it.
    #[serde(skip_serializing_if = "is_true")]
    pub declared: bool,
    /// The domain of names without one. For the first pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Directories of its nodes that containers may mount (S21). Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<PoolMount>,
    /// Divides this pool and its children among queues; no class serves work there. For pools
    /// without parent. Stored as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<QueueTree>)]
    pub queues: Option<serde_json::Value>,
    /// An external program places the work of the classes of this pool and its children. For pools
    /// without parent and without `queues`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planner: Option<PoolPlanner>,
}

/// An external planner: a program that receives requests over HTTP and responds with the placements
/// of work. No secret is sent to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolPlanner {
    /// An `http` or `https` address, which receives each request by POST.
    pub url: String,
    /// Milliseconds within which the response must be complete.
    #[serde(default = "planner_timeout_ms")]
    pub timeout_ms: u64,
}

fn planner_timeout_ms() -> u64 {
    2_000
}

/// A directory of every node of a pool that containers may mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolMount {
    /// An absolute path in its shortest form. The settings of the node must permit it too.
    pub source: String,
    /// Containers may write there. Default: they only read.
    #[serde(default)]
    pub writable: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_true(flag: &bool) -> bool {
    *flag
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            parent: None,
            search_order: 100,
            place: None,
            quantum: None,
            nodes: Vec::new(),
            pattern: None,
            declared: true,
            domain: None,
            mounts: Vec::new(),
            queues: None,
            planner: None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserPolicy {
    /// GB of non-preemptable space of this user; absent means the global value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_allotment_gb: Option<u64>,
    /// Quanta of non-preemptable space of this user; absent means the global value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_allotment_quanta: Option<u64>,
    /// GB by class. For work of such a class, this value replaces the values above (W-23).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub max_allotment_gb_by_class: BTreeMap<String, u64>,
}

impl Default for Policy {
    /// The policy of a new fleet: one pool, three fair classes by weight, and one class each for
    /// services and reservations.
    fn default() -> Self {
        let class = |policy, priority, weight, default| Class {
            policy: Some(policy),
            priority: Some(priority),
            weight,
            pool: Some("default".to_owned()),
            default,
            ..Class::default()
        };
        let fair = |weight, default| class(SharePolicy::FairShare, 10, Some(weight), default);
        let classes = [
            ("high", fair(200, false)),
            ("normal", fair(100, true)),
            ("low", fair(50, false)),
            ("service", class(SharePolicy::FixedShare, 5, None, true)),
            ("reserve", class(SharePolicy::Reserve, 1, None, true)),
        ];
        let named_classes = classes.map(|(name, class)| (name.to_owned(), class));
        Self {
            quantum: Quantum::default(),
            pools: BTreeMap::from([("default".to_owned(), Pool::default())]),
            classes: BTreeMap::from(named_classes),
            users: BTreeMap::new(),
            tunables: Tunables::default(),
            profile: None,
            preset: None,
            settings: Switches::default(),
        }
    }
}

/// The policy with the number of its last change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    /// Number of the last change, which is also the `ETag`.
    pub generation: u64,
    pub policy: Policy,
}
