//! The policy: one versioned document that says how the machines are shared.
//!
//! It is read as it was written: what a class leaves out it has from its parent, and the rules of
//! that, like all others, live in the policy crate. Where the rules speak of the order of
//! definition, `place` says it, because the fields of a JSON object have none.

mod class;
mod history;
mod queues;
mod tunables;

use std::collections::BTreeMap;

use hayward_vocabulary::Quantum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use class::{Class, SharePolicy};
pub use history::{
    ClassShift, NodeShift, PolicyAnswer, PolicyHistory, PolicyMoves, PolicyVersion, ProcessShift,
    UserShift, WorkShift,
};
pub use queues::{
    Amount, Amounts, NodeSort, NodeSortForm, PlacementFilter, PlacementKind, PlacementPass,
    PlacementRule, PriorityForm, QueueForm, QueueLimit, QueuePreemption, QueueResources, QueueSort,
    QueueTemplate, QueueTree,
};
pub use tunables::{Preset, Switches, Tunables};

/// `GET/PUT /v1/policy`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The unit shares are counted in; several dimensions make it a dominant-share model.
    #[serde(default)]
    pub quantum: Quantum,
    /// By name. A pool without parent is a world of its own.
    pub pools: BTreeMap<String, Pool>,
    /// By name.
    pub classes: BTreeMap<String, Class>,
    #[serde(default)]
    pub users: BTreeMap<String, UserPolicy>,
    #[serde(default)]
    pub tunables: Tunables,
    /// Where every switch of the planner stands unless `settings` says otherwise.
    #[serde(default, skip_serializing_if = "Preset::is_default")]
    pub preset: Preset,
    #[serde(default, skip_serializing_if = "Switches::is_silent")]
    pub settings: Switches,
}

/// A named set of nodes. Each node is in one pool: that whose pattern it matches first, else that
/// which lists it, else that which its agent names, else the first pool without parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Children with lower numbers are searched first.
    pub search_order: i64,
    /// Place in the order of definition; pools without one come last, by name, `default` first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<u64>,
    /// Of a pool without parent: its own unit, in place of the policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<Quantum>,
    /// Names or addresses, with or without their domain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// A regular expression for the whole full name, short name or address (label `address`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Nodes whose agents name this pool belong to it.
    #[serde(skip_serializing_if = "is_true")]
    pub declared: bool,
    /// Of the first pool: the domain of names that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Directories of its nodes that containers may ask for (S21). Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<PoolMount>,
    /// Of a pool without parent: it and all below it are divided among queues, and no class serves
    /// there. Kept as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<QueueTree>)]
    pub queues: Option<serde_json::Value>,
    /// Of a pool without parent: the work of its classes, and of those of all pools below it, is
    /// placed by a program outside. Not beside `queues`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planner: Option<PoolPlanner>,
}

/// A program that is asked over HTTP what to place where. It is told no secret and asked for none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolPlanner {
    /// Of `http` or `https`; the question is POSTed there.
    pub url: String,
    /// Milliseconds until an answer has to be there, to the last byte.
    #[serde(default = "planner_timeout_ms")]
    pub timeout_ms: u64,
}

fn planner_timeout_ms() -> u64 {
    2_000
}

/// A directory of every node of a pool that containers may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolMount {
    /// Absolute, in its shortest form. The node's own settings have to permit it too.
    pub source: String,
    /// They may write there. Default: they only read.
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
    /// GB of non-preemptable room this user may hold; absent means the global value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_allotment_gb: Option<u64>,
    /// The same in quanta.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_allotment_quanta: Option<u64>,
    /// GB by class, in place of the value above and for that class only (W-23).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub max_allotment_gb_by_class: BTreeMap<String, u64>,
}

impl Default for Policy {
    /// What a fresh fleet starts with: one pool, three fair classes by weight, and one class each
    /// for services and reservations.
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
        let named = classes.map(|(name, class)| (name.to_owned(), class));
        Self {
            quantum: Quantum::default(),
            pools: BTreeMap::from([("default".to_owned(), Pool::default())]),
            classes: BTreeMap::from(named),
            users: BTreeMap::new(),
            tunables: Tunables::default(),
            preset: Preset::default(),
            settings: Switches::default(),
        }
    }
}

/// The policy with the number of the change that brought it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    /// Also the `ETag`.
    pub generation: u64,
    pub policy: Policy,
}
