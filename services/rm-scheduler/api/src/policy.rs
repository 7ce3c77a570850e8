//! The policy: one versioned document that says how the machines are shared.

use std::collections::BTreeMap;

use hayward_vocabulary::Quantum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET/PUT /v1/policy`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
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
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[serde(default = "default_search_order")]
    pub search_order: i64,
}

fn default_search_order() -> i64 {
    100
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Class {
    pub policy: SharePolicy,
    /// The lower number is served first.
    pub priority: i64,
    /// Divides amounts among fair-share classes of equal priority.
    #[serde(default = "default_weight")]
    pub weight: u64,
    #[serde(default = "default_pool")]
    pub pool: String,
    /// Serves work of its policy that names no class. At most one per policy.
    #[serde(default)]
    pub default: bool,
    /// Who may use it; empty means everyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
}

fn default_weight() -> u64 {
    100
}
fn default_pool() -> String {
    "default".into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SharePolicy {
    /// Any number of processes, in proportion to weight; what is over the due is taken back.
    FairShare,
    /// A fixed number of processes, never taken back.
    FixedShare,
    /// Whole machines, never taken back.
    Reserve,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserPolicy {
    /// quanta of non-preemptable room this user may hold; absent means the global value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_allotment_quanta: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tunables {
    /// Quanta of non-preemptable room one user may hold; absent means no limit.
    pub global_allotment_quanta: Option<u64>,
    /// Processes a job may have before its first task has finished; 0 disables.
    pub initialization_cap: u64,
    /// A job at most doubles its processes from round to round.
    pub expand_by_doubling: bool,
    /// Do not grow a job that will be done before the new process could help.
    pub use_prediction: bool,
    /// Milliseconds added to the prediction's horizon.
    pub prediction_fudge_ms: u64,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            global_allotment_quanta: None,
            initialization_cap: 2,
            expand_by_doubling: true,
            use_prediction: true,
            prediction_fudge_ms: 10_000,
        }
    }
}

impl Default for Policy {
    /// What a fresh fleet starts with: one pool, three fair classes by weight, and one class each
    /// for services and reservations.
    fn default() -> Self {
        let class = |policy, priority, weight, default| Class {
            policy,
            priority,
            weight,
            pool: default_pool(),
            default,
            users: Vec::new(),
        };
        let pool = Pool {
            parent: None,
            search_order: default_search_order(),
        };
        Self {
            quantum: Quantum::default(),
            pools: BTreeMap::from([(default_pool(), pool)]),
            classes: BTreeMap::from([
                ("high".into(), class(SharePolicy::FairShare, 10, 200, false)),
                (
                    "normal".into(),
                    class(SharePolicy::FairShare, 10, 100, true),
                ),
                ("low".into(), class(SharePolicy::FairShare, 10, 50, false)),
                (
                    "service".into(),
                    class(SharePolicy::FixedShare, 5, 100, true),
                ),
                ("reserve".into(), class(SharePolicy::Reserve, 1, 100, true)),
            ]),
            users: BTreeMap::new(),
            tunables: Tunables::default(),
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
