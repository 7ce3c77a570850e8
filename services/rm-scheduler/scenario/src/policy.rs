//! Translates the policy of a document for the planner.

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

/// Defaults of the document that are no tunables of the planner.
#[derive(Debug, Clone)]
pub struct Defaults {
    pub reserved_bytes: u64,
    pub override_bytes: Option<u64>,
    pub memory_bytes: u64,
    pub work_items: u64,
    pub threads: u32,
}

impl Default for Defaults {
    /// The defaults of DUCC.
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

/// The defaults of DUCC.
pub fn shipped() -> Tunables {
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

/// A negative number counts as 0.
pub fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn quantum(gigabytes: Gigabytes) -> Quantum {
    Quantum(Size::memory(gigabytes.0))
}

pub fn settings(given: &SettingsDocument, snapshot: &mut Snapshot, defaults: &mut Defaults) {
    if let Some(gigabytes) = given.share_quantum_gb {
        snapshot.quantum = quantum(gigabytes);
    }
    let tunables = &mut snapshot.tunables;
    let set = |known: &mut u64, given: Option<u64>| *known = given.unwrap_or(*known);
    let switch = |known: &mut bool, given: Option<bool>| *known = given.unwrap_or(*known);
    let cap = given.initialization_cap.map(count);
    set(&mut tunables.initialization_cap, cap);
    switch(&mut tunables.expand_by_doubling, given.expand_by_doubling);
    switch(&mut tunables.use_prediction, given.prediction);
    switch(&mut tunables.defragmentation, given.defragmentation);
    let fudge = given.prediction_fudge_ms.map(|time| time.0);
    set(&mut tunables.prediction_fudge_ms, fudge);
    let threshold = given.fragmentation_threshold;
    set(&mut tunables.fragmentation_threshold, threshold);
    let product = given.orchestrator_publish_ms.map(|time| {
        let ratio = given.rm_publish_ratio.unwrap_or(1);
        time.0.saturating_mul(ratio)
    });
    let length = given.cycle_length_ms.map(|time| time.0).or(product);
    set(&mut tunables.cycle_ms, length);
    let before = tunables.global_allotment_bytes.map(Gigabytes);
    let limit = given.global_allotment_gb.or(before);
    tunables.global_allotment_bytes = limit.map(|limit| limit.0);
    if given.use_global_allotment == Some(false) {
        tunables.global_allotment_bytes = None;
    }
    if let Some(overage) = given.reserve_overage_gb {
        tunables.reserve_overage_bytes = Some(overage.0);
    }
    match given.profile {
        Some(Profile::Reference) => tunables.settings = Settings::reference(),
        Some(Profile::Default) => tunables.settings = Settings::default(),
        None => {}
    }
    let budgets = &mut tunables.settings;
    let pool = given.preemption_pool_percent_per_hour;
    budgets.preemption_pool_percent_per_hour = pool.or(budgets.preemption_pool_percent_per_hour);
    let user = given.preemption_user_percent_per_hour;
    budgets.preemption_user_percent_per_hour = user.or(budgets.preemption_user_percent_per_hour);
    set(
        &mut defaults.reserved_bytes,
        given.reserved_dram_gb.map(|it| it.0),
    );
    set(
        &mut defaults.memory_bytes,
        given.default_memory_gb.map(|it| it.0),
    );
    set(&mut defaults.work_items, given.default_work_items);
    defaults.threads = given.default_threads.unwrap_or(defaults.threads);
    if let Some(pretended) = given.node_memory_override_gb {
        defaults.override_bytes = Some(pretended.0).filter(|bytes| *bytes > 0);
    }
}

/// Expects a validated policy, like the functions below.
pub fn pools(given: &[PoolDocument]) -> BTreeMap<String, Pool> {
    (0_u64..)
        .zip(given)
        .map(|(place, pool)| {
            let entry = Pool {
                parent: pool.parent.clone(),
                search_order: pool.search_order.unwrap_or(100),
                position: place,
                quantum: pool.share_quantum_gb.map(quantum),
            };
            (pool.name.clone(), entry)
        })
        .collect()
}

pub fn classes(given: &[ClassDocument]) -> BTreeMap<String, Class> {
    let class = |(place, class): (u64, &ClassDocument)| {
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
                initialization_cap: class.initialization_cap.map(count),
                expand_by_doubling: class.expand_by_doubling,
                use_prediction: class.use_prediction,
                prediction_fudge_ms: class.prediction_fudge_ms.map(|time| time.0),
            },
        };
        (class.name.clone(), entry)
    };
    (0_u64..).zip(given).map(class).collect()
}

/// Users with limits, and the entries that cannot be read.
pub fn users(given: &[Map<String, Value>]) -> (BTreeMap<UserName, User>, Vec<String>) {
    let mut users = BTreeMap::new();
    let mut faults = Vec::new();
    for (at, given) in given.iter().enumerate() {
        let read = user(given).and_then(|(name, user)| {
            let twice = format!(
                "({:?}): appears twice here: keep one of the two",
                name.as_str()
            );
            users.insert(name, user).map_or(Ok(()), |_| Err(twice))
        });
        if let Err(fault) = read {
            faults.push(format!("users[{at}]{fault}"));
        }
    }
    (users, faults)
}

fn user(given: &Map<String, Value>) -> Result<(UserName, User), String> {
    let mut entry = User::default();
    let mut name = None;
    for (field, value) in given {
        let amount = |value: &Value| {
            let read = serde_json::from_value(value.clone());
            read.map(|Gigabytes(bytes)| bytes)
                .map_err(|error| format!(".{field}: {error}"))
        };
        match field.as_str() {
            "name" => {
                let text = value.as_str().unwrap_or_default();
                let read = UserName::new(text);
                name = Some(read.map_err(|error| format!(".name: {error}"))?);
            }
            _ if value.is_null() => {}
            "max_allotment_gb" => entry.max_allotment_bytes = Some(amount(value)?),
            "max_allotment_gb_by_class" | "class_allotments_gb" | "max_allotments_gb" => {
                for (class, value) in value.as_object().into_iter().flatten() {
                    let bytes = amount(value)?;
                    entry.max_allotment_by_class.insert(class.clone(), bytes);
                }
            }
            other => {
                let starts = ["max_allotment_gb.", "max_allotment.", "max-allotment."];
                let class = starts.iter().find_map(|start| other.strip_prefix(start));
                let unknown = || {
                    let known = "name, max_allotment_gb and max_allotment_gb.CLASS";
                    format!(".{field}: is not known here; known are {known}")
                };
                let class = class.ok_or_else(unknown)?.to_owned();
                entry.max_allotment_by_class.insert(class, amount(value)?);
            }
        }
    }
    let name = name.ok_or_else(|| ": says no name".to_owned())?;
    Ok((name, entry))
}
