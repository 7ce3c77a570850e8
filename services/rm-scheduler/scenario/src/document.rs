//! Schema of a scenario document. Unknown fields are errors, except comments and expectations. A
//! cycle of a scenario is one round of the planner.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::amounts::{Gigabytes, Limit, Milliseconds, NullableField};

pub const FORMAT: &str = "hayward-scenario/1";

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub format: Option<String>,
    #[serde(rename = "id")]
    pub _id: Option<String>,
    #[serde(default)]
    pub settings: SettingsDocument,
    #[serde(default)]
    pub simulation: Simulation,
    #[serde(default)]
    pub nodepools: Vec<PoolDocument>,
    #[serde(default)]
    pub classes: Vec<ClassDocument>,
    #[serde(default)]
    pub users: Vec<Map<String, Value>>,
    pub cycles: Vec<CycleDocument>,
}

/// Settings of Apache UIMA-DUCC, whose scheduler is the reference for the rules of fair share. An
/// absent setting has its default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "settings without effect are read only to check their form"
)]
pub struct SettingsDocument {
    #[serde(alias = "quantum_gb")]
    pub share_quantum_gb: Option<Gigabytes>,
    pub initialization_cap: Option<i64>,
    pub expand_by_doubling: Option<bool>,
    pub prediction: Option<bool>,
    pub prediction_fudge_ms: Option<Milliseconds>,
    pub fragmentation_threshold: Option<u64>,
    pub defragmentation: Option<bool>,
    #[serde(default)]
    pub global_allotment_gb: NullableField<Gigabytes>,
    pub use_global_allotment: Option<bool>,
    pub reserve_overage_gb: Option<Gigabytes>,
    #[serde(alias = "node_reserved_gb")]
    pub reserved_dram_gb: Option<Gigabytes>,
    #[serde(alias = "override_dram_gb")]
    pub node_memory_override_gb: Option<Gigabytes>,
    pub default_memory_gb: Option<Gigabytes>,
    pub default_work_items: Option<u64>,
    pub default_threads: Option<u32>,
    pub cycle_length_ms: Option<Milliseconds>,
    #[serde(alias = "work_publish_interval_ms")]
    pub orchestrator_publish_ms: Option<Milliseconds>,
    #[serde(alias = "cycle_every_n_publications")]
    pub rm_publish_ratio: Option<u64>,
    pub profile: Option<Profile>,
    /// Preemption budget (B5). If absent, that of the profile.
    pub preemption_pool_percent_per_hour: Option<u64>,
    pub preemption_user_percent_per_hour: Option<u64>,
    /// This setting and all below are accepted without effect. They concern heartbeats, files and
    /// recovery in DUCC, so that settings of DUCC can be copied as a whole.
    pub eviction_policy: Option<String>,
    pub init_stability: Option<u64>,
    pub node_stability: Option<u64>,
    pub heartbeat_ms: Option<Milliseconds>,
    pub fast_recovery: Option<bool>,
    pub scheduler_impl: Option<String>,
    pub class_file: Option<String>,
    pub user_file: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    Reference,
    Default,
}

/// How the simulated fleet behaves between the cycles.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Simulation {
    /// Number of cycles from the grant of a process until it runs.
    pub init_lag_cycles: u64,
    /// Number of cycles from the vacate of a process until its space is free.
    pub release_lag_cycles: u64,
    pub investment: Investment,
    /// Time that a process needs to start.
    pub init_time_ms: Milliseconds,
    /// Time between two cycles.
    pub cycle_ms: Milliseconds,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            init_lag_cycles: 1,
            release_lag_cycles: 1,
            investment: Investment::Age,
            init_time_ms: Milliseconds(60_000),
            cycle_ms: Milliseconds(60_000),
        }
    }
}

/// Work time that the preemption of a process would lose: its running time, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Investment {
    Age,
    Zero,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolDocument {
    pub name: String,
    pub parent: Option<String>,
    pub search_order: Option<i64>,
    #[serde(alias = "share_quantum")]
    pub share_quantum_gb: Option<Gigabytes>,
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Domain of the first pool. It has no effect because names are compared with and without
    /// domain.
    pub domain: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SharePolicy {
    FairShare,
    FixedShare,
    Reserve,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassDocument {
    pub name: String,
    pub policy: SharePolicy,
    pub priority: Option<i64>,
    pub weight: Option<u64>,
    pub nodepool: String,
    pub initialization_cap: Option<i64>,
    pub expand_by_doubling: Option<bool>,
    pub use_prediction: Option<bool>,
    pub prediction_fudge_ms: Option<Milliseconds>,
    #[serde(default)]
    pub users: Option<Vec<String>>,
    pub default: Option<bool>,
    pub debug: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CycleDocument {
    pub cycle: Option<u64>,
    #[serde(default)]
    pub events: Vec<Event>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    NodeReport {
        node: String,
        memory_gb: Gigabytes,
        #[serde(default)]
        quiesced: Option<bool>,
        #[serde(default)]
        cpu_milli: Option<u64>,
        #[serde(default)]
        gpu_milli: Option<u64>,
        /// Accepted and ignored, because no rule of fair share uses labels.
        #[serde(default, rename = "labels")]
        _labels: Option<Value>,
    },
    NodeDead {
        node: String,
    },
    VaryOff {
        node: String,
    },
    VaryOn {
        node: String,
    },
    Submit(Box<Submit>),
    JobProgress {
        job: String,
        #[serde(default)]
        work_remaining: Option<u64>,
        #[serde(default)]
        time_per_item_ms: NullableField<Milliseconds>,
        #[serde(default)]
        max_processes: Option<Limit>,
    },
    JobCompleting {
        job: String,
    },
    JobDone {
        job: String,
    },
    Policy {
        #[serde(default)]
        classes: Option<Vec<ClassDocument>>,
        #[serde(default)]
        nodepools: Option<Vec<PoolDocument>>,
        #[serde(default)]
        users: Option<Vec<Map<String, Value>>>,
        #[serde(default)]
        settings: Option<Box<SettingsDocument>>,
    },
}

#[expect(
    clippy::struct_field_names,
    reason = "the names of the scenario page, on the wire and here"
)]
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    pub job: String,
    pub kind: String,
    pub user: String,
    pub class: Option<String>,
    pub memory_gb: Option<Gigabytes>,
    pub cpu_milli: Option<u64>,
    pub gpu_milli: Option<u64>,
    pub submit_time: Option<i64>,
    pub threads: Option<u32>,
    pub work_items: Option<u64>,
    pub max_processes: Option<Limit>,
    pub time_per_item_ms: Option<Milliseconds>,
    #[serde(default)]
    pub machine_list: Option<Vec<String>>,
    pub service_id: Option<Value>,
}

/// Removes comments and expectations, which the planner does not use.
pub fn remove_annotations(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                !(matches!(name.as_str(), "note" | "tags" | "title") || name.starts_with("expect"))
            });
            for (name, value) in fields.iter_mut() {
                if name != "labels" {
                    remove_annotations(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(remove_annotations),
        _ => {}
    }
}
