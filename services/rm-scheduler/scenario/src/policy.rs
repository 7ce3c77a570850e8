//! Translates the policy of a scenario document for the planner.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{
    settings::Settings,
    snapshot::{Class, Growth, Policy, Pool, Snapshot, Tunables, User},
};
use hayward_vocabulary::{Quantum, Size, UserName};
use serde_json::{Map, Value};

use crate::{
    amounts::Gigabytes,
    document::{ClassDocument, PoolDocument, Profile, SettingsDocument, SharePolicy},
};

const GB: u64 = 1 << 30;

/// Defaults of nodes and submitted work. The planner has no tunables for them.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// Memory of each node that is never allocated.
    pub reserved_bytes: u64,
    /// Memory that each node counts with, instead of the reported memory. `None`: the reported one.
    pub override_bytes: Option<u64>,
    /// Memory of one process.
    pub memory_bytes: u64,
    /// Number of tasks of a job.
    pub work_items: u64,
    pub threads: u32,
}

impl Default for Defaults {
    /// Returns the defaults of Apache UIMA-DUCC.
    fn default() -> Self {
        Self {
            reserved_bytes: 0,
            override_bytes: None,
            memory_bytes: 4 * GB,
            work_items: 10,
            threads: 1,
        }
    }
}

/// Returns the default tunables of Apache UIMA-DUCC.
pub fn ducc_tunables() -> Tunables {
    Tunables {
        initialization_cap: 1,
        expand_by_doubling: true,
        use_prediction: true,
        prediction_fudge_ms: 120_000,
        global_allotment_bytes: None,
        cycle_ms: 10_000,
        reserve_overage_bytes: Some(0),
        fragmentation_threshold: 8,
        defragmentation: true,
        settings: Settings::reference(),
    }
}

/// Converts a number. Negative numbers become 0.
pub fn non_negative(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn to_quantum(gigabytes: Gigabytes) -> Quantum {
    Quantum(Size::memory(gigabytes.0))
}

/// Applies the settings that a document sets. All others stay.
pub fn apply_settings(
    settings: &SettingsDocument,
    snapshot: &mut Snapshot,
    defaults: &mut Defaults,
) {
    if let Some(gigabytes) = settings.share_quantum_gb {
        snapshot.quantum = to_quantum(gigabytes);
    }
    let tunables = &mut snapshot.tunables;
    let set = |current: &mut u64, value: Option<u64>| *current = value.unwrap_or(*current);
    let set_flag = |current: &mut bool, value: Option<bool>| *current = value.unwrap_or(*current);
    let cap = settings.initialization_cap.map(non_negative);
    set(&mut tunables.initialization_cap, cap);
    let doubling = settings.expand_by_doubling;
    set_flag(&mut tunables.expand_by_doubling, doubling);
    set_flag(&mut tunables.use_prediction, settings.prediction);
    set_flag(&mut tunables.defragmentation, settings.defragmentation);
    let fudge = settings.prediction_fudge_ms.map(|time| time.0);
    set(&mut tunables.prediction_fudge_ms, fudge);
    let threshold = settings.fragmentation_threshold;
    set(&mut tunables.fragmentation_threshold, threshold);
    let publications_ms = settings.orchestrator_publish_ms.map(|time| {
        let ratio = settings.rm_publish_ratio.unwrap_or(1);
        time.0.saturating_mul(ratio)
    });
    let cycle_ms = settings
        .cycle_length_ms
        .map(|time| time.0)
        .or(publications_ms);
    set(&mut tunables.cycle_ms, cycle_ms);
    let previous = tunables.global_allotment_bytes.map(Gigabytes);
    let limit = settings.global_allotment_gb.or_previous(previous);
    tunables.global_allotment_bytes = limit.map(|limit| limit.0);
    if settings.use_global_allotment == Some(false) {
        tunables.global_allotment_bytes = None;
    }
    if let Some(overage) = settings.reserve_overage_gb {
        tunables.reserve_overage_bytes = Some(overage.0);
    }
    match settings.profile {
        Some(Profile::Reference) => tunables.settings = Settings::reference(),
        Some(Profile::Default) => tunables.settings = Settings::default(),
        None => {}
    }
    let budgets = &mut tunables.settings;
    let pool = settings.preemption_pool_percent_per_hour;
    budgets.preemption_pool_percent_per_hour = pool.or(budgets.preemption_pool_percent_per_hour);
    let user = settings.preemption_user_percent_per_hour;
    budgets.preemption_user_percent_per_hour = user.or(budgets.preemption_user_percent_per_hour);
    let reserved = settings.reserved_dram_gb.map(|it| it.0);
    set(&mut defaults.reserved_bytes, reserved);
    let memory = settings.default_memory_gb.map(|it| it.0);
    set(&mut defaults.memory_bytes, memory);
    set(&mut defaults.work_items, settings.default_work_items);
    defaults.threads = settings.default_threads.unwrap_or(defaults.threads);
    if let Some(override_gb) = settings.node_memory_override_gb {
        defaults.override_bytes = Some(override_gb.0).filter(|bytes| *bytes > 0);
    }
}

/// Converts the pools of a validated policy.
pub fn to_pools(documents: &[PoolDocument]) -> BTreeMap<String, Pool> {
    (0_u64..)
        .zip(documents)
        .map(|(place, pool)| {
            let entry = Pool {
                parent: pool.parent.clone(),
                search_order: pool.search_order.unwrap_or(100),
                position: place,
                quantum: pool.share_quantum_gb.map(to_quantum),
            };
            (pool.name.clone(), entry)
        })
        .collect()
}

pub fn to_classes(documents: &[ClassDocument]) -> BTreeMap<String, Class> {
    let to_class = |(place, class): (u64, &ClassDocument)| {
        let (policy, priority) = match class.policy {
            SharePolicy::FairShare => (Policy::FairShare, 10),
            SharePolicy::FixedShare => (Policy::FixedShare, 5),
            SharePolicy::Reserve => (Policy::Reserve, 1),
        };
        let entry = Class {
            policy,
            priority: class.priority.unwrap_or(priority),
            weight: class.weight.unwrap_or(100),
            pool: class.nodepool.clone(),
            default: class.default.unwrap_or(false),
            users: class.users.iter().flatten().cloned().collect(),
            position: place,
            debug_class: class.debug.clone(),
            growth: Growth {
                initialization_cap: class.initialization_cap.map(non_negative),
                expand_by_doubling: class.expand_by_doubling,
                use_prediction: class.use_prediction,
                prediction_fudge_ms: class.prediction_fudge_ms.map(|time| time.0),
            },
        };
        (class.name.clone(), entry)
    };
    (0_u64..).zip(documents).map(to_class).collect()
}

/// Returns the users with limits, and the faults of the entries that cannot be read.
pub fn parse_users(documents: &[Map<String, Value>]) -> (BTreeMap<UserName, User>, Vec<String>) {
    let mut users = BTreeMap::new();
    let mut faults = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let result = parse_user(document).and_then(|(name, user)| {
            let repeated = format!(
                "({:?}): appears twice here: keep one of the two",
                name.as_str()
            );
            users.insert(name, user).map_or(Ok(()), |_| Err(repeated))
        });
        if let Err(fault) = result {
            faults.push(format!("users[{index}]{fault}"));
        }
    }
    (users, faults)
}

fn parse_user(document: &Map<String, Value>) -> Result<(UserName, User), String> {
    let mut entry = User::default();
    let mut name = None;
    for (field, value) in document {
        let parse_amount = |value: &Value| {
            let amount = serde_json::from_value(value.clone());
            amount
                .map(|Gigabytes(bytes)| bytes)
                .map_err(|error| format!(".{field}: {error}"))
        };
        match field.as_str() {
            "name" => {
                let text = value.as_str().unwrap_or_default();
                let user_name = UserName::new(text);
                name = Some(user_name.map_err(|error| format!(".name: {error}"))?);
            }
            _ if value.is_null() => {}
            "max_allotment_gb" => entry.max_allotment_bytes = Some(parse_amount(value)?),
            "max_allotment_gb_by_class" | "class_allotments_gb" | "max_allotments_gb" => {
                for (class, value) in value.as_object().into_iter().flatten() {
                    let bytes = parse_amount(value)?;
                    entry.max_allotment_by_class.insert(class.clone(), bytes);
                }
            }
            other => {
                let prefixes = ["max_allotment_gb.", "max_allotment.", "max-allotment."];
                let class = prefixes
                    .iter()
                    .find_map(|prefix| other.strip_prefix(prefix));
                let unknown_field = || {
                    let known = "name, max_allotment_gb and max_allotment_gb.CLASS";
                    format!(".{field}: is not known here; known are {known}")
                };
                let class = class.ok_or_else(unknown_field)?.to_owned();
                entry
                    .max_allotment_by_class
                    .insert(class, parse_amount(value)?);
            }
        }
    }
    let name = name.ok_or_else(|| ": says no name".to_owned())?;
    Ok((name, entry))
}
