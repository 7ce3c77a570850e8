//! From the document's policy to the words the planner thinks in.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{
    settings::Settings,
    snapshot::{Class, Growth, Policy, Pool, Snapshot, Tunables, User},
};
use hayward_vocabulary::{Quantum, Size, UserName};
use serde_json::{Map, Value};

use crate::{
    Error,
    amounts::Gigabytes,
    document::{ClassDocument, PoolDocument, Profile, SettingsDocument, SharePolicy},
};

const GB: u64 = 1 << 30;

/// What the document says apart from the planner's own tunables.
#[derive(Debug, Clone)]
pub struct Defaults {
    pub reserved_bytes: u64,
    pub override_bytes: Option<u64>,
    pub memory_bytes: u64,
    pub work_items: u64,
    pub threads: u32,
}

impl Default for Defaults {
    /// The shipped values of section 3.5.
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

/// The shipped values of section 3.5.
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

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn quantum(gigabytes: Gigabytes) -> Result<Quantum, Error> {
    if gigabytes.0 == 0 {
        return Err(Error::Policy("a share quantum must be more than 0".into()));
    }
    Ok(Quantum(Size::memory(gigabytes.0)))
}

pub fn settings(
    said: &SettingsDocument,
    snapshot: &mut Snapshot,
    defaults: &mut Defaults,
) -> Result<(), Error> {
    if let Some(gigabytes) = said.share_quantum_gb {
        snapshot.quantum = quantum(gigabytes)?;
    }
    let tunables = &mut snapshot.tunables;
    let set = |known: &mut u64, said: Option<u64>| *known = said.unwrap_or(*known);
    let switch = |known: &mut bool, said: Option<bool>| *known = said.unwrap_or(*known);
    let cap = said.initialization_cap.map(count);
    set(&mut tunables.initialization_cap, cap);
    switch(&mut tunables.expand_by_doubling, said.expand_by_doubling);
    switch(&mut tunables.use_prediction, said.prediction);
    switch(&mut tunables.defragmentation, said.defragmentation);
    let fudge = said.prediction_fudge_ms.map(|time| time.0);
    set(&mut tunables.prediction_fudge_ms, fudge);
    let threshold = said.fragmentation_threshold;
    set(&mut tunables.fragmentation_threshold, threshold);
    let product = said.orchestrator_publish_ms.map(|time| {
        let ratio = said.rm_publish_ratio.unwrap_or(1);
        time.0.saturating_mul(ratio)
    });
    let length = said.cycle_length_ms.map(|time| time.0).or(product);
    set(&mut tunables.cycle_ms, length);
    let before = tunables.global_allotment_bytes.map(Gigabytes);
    let limit = said.global_allotment_gb.or(before);
    tunables.global_allotment_bytes = limit.map(|limit| limit.0);
    if said.use_global_allotment == Some(false) {
        tunables.global_allotment_bytes = None;
    }
    if let Some(overage) = said.reserve_overage_gb {
        tunables.reserve_overage_bytes = Some(overage.0);
    }
    match said.profile {
        Some(Profile::Reference) => tunables.settings = Settings::reference(),
        Some(Profile::Default) => tunables.settings = Settings::default(),
        None => {}
    }
    let budgets = &mut tunables.settings;
    let pool = said.preemption_pool_percent_per_hour;
    budgets.preemption_pool_percent_per_hour = pool.or(budgets.preemption_pool_percent_per_hour);
    let user = said.preemption_user_percent_per_hour;
    budgets.preemption_user_percent_per_hour = user.or(budgets.preemption_user_percent_per_hour);
    set(
        &mut defaults.reserved_bytes,
        said.reserved_dram_gb.map(|it| it.0),
    );
    set(
        &mut defaults.memory_bytes,
        said.default_memory_gb.map(|it| it.0),
    );
    set(&mut defaults.work_items, said.default_work_items);
    defaults.threads = said.default_threads.unwrap_or(defaults.threads);
    if let Some(pretended) = said.node_memory_override_gb {
        defaults.override_bytes = Some(pretended.0).filter(|bytes| *bytes > 0);
    }
    Ok(())
}

pub fn pools(said: &[PoolDocument]) -> Result<BTreeMap<String, Pool>, Error> {
    let mut pools = BTreeMap::new();
    for (place, pool) in (0_u64..).zip(said) {
        if pool.parent.is_some() && pool.share_quantum_gb.is_some() {
            let what = format!("pool {:?} has a parent and a quantum of its own", pool.name);
            return Err(Error::Policy(what));
        }
        let entry = Pool {
            parent: pool.parent.clone(),
            search_order: pool.search_order.unwrap_or(100),
            place,
            quantum: pool.share_quantum_gb.map(quantum).transpose()?,
        };
        if pools.insert(pool.name.clone(), entry).is_some() {
            return Err(Error::Policy(format!(
                "there are two pools {:?}",
                pool.name
            )));
        }
    }
    for (name, pool) in &pools {
        climb(&pools, name, pool)?;
    }
    Ok(pools)
}

/// 3.4.3: every pool has a top.
fn climb(pools: &BTreeMap<String, Pool>, name: &str, pool: &Pool) -> Result<(), Error> {
    let mut at = pool;
    for _ in 0..=pools.len() {
        let Some(parent) = &at.parent else {
            return Ok(());
        };
        let unknown = || Error::Policy(format!("pool {name:?} names an unknown parent {parent:?}"));
        at = pools.get(parent).ok_or_else(unknown)?;
    }
    Err(Error::Policy(format!("pool {name:?} is part of a circle")))
}

pub fn classes(said: &[ClassDocument]) -> Result<BTreeMap<String, Class>, Error> {
    let mut classes = BTreeMap::new();
    for (place, class) in (0_u64..).zip(said) {
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
            place,
            debug: class.debug.clone(),
            growth: Growth {
                initialization_cap: class.initialization_cap.map(count),
                expand_by_doubling: class.expand_by_doubling,
                use_prediction: class.use_prediction,
                prediction_fudge_ms: class.prediction_fudge_ms.map(|time| time.0),
            },
        };
        if classes.insert(class.name.clone(), entry).is_some() {
            let what = format!("there are two classes {:?}", class.name);
            return Err(Error::Policy(what));
        }
    }
    Ok(classes)
}

/// 3.4.9: every class lives in a pool there is.
pub fn homes(snapshot: &Snapshot) -> Result<(), Error> {
    for (name, class) in &snapshot.classes {
        if !snapshot.pools.contains_key(&class.pool) {
            let what = format!("class {name:?} names an unknown pool {:?}", class.pool);
            return Err(Error::Policy(what));
        }
    }
    Ok(())
}

pub fn users(said: &[Map<String, Value>]) -> Result<BTreeMap<UserName, User>, Error> {
    said.iter().map(user).collect()
}

fn user(said: &Map<String, Value>) -> Result<(UserName, User), Error> {
    let mut entry = User::default();
    let mut name = None;
    for (field, value) in said {
        let amount = |value: &Value| -> Result<u64, Error> {
            let bytes: Gigabytes = serde_json::from_value(value.clone()).map_err(|source| {
                let at = format!("users.{field}");
                Error::Field { at, source }
            })?;
            Ok(bytes.0)
        };
        match field.as_str() {
            "name" => {
                let text = value.as_str().unwrap_or_default();
                let read = UserName::new(text);
                name = Some(read.map_err(|error| Error::Policy(error.to_string()))?);
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
                let unknown = || Error::Policy(format!("unknown field {other:?} of a user"));
                let class = class.ok_or_else(unknown)?.to_owned();
                entry.max_allotment_by_class.insert(class, amount(value)?);
            }
        }
    }
    let name = name.ok_or_else(|| Error::Policy("a user has no name".into()))?;
    Ok((name, entry))
}
