//! Translates a policy for the planner: inheritance, defaults, and the order of definition as
//! numbers.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::policy::{
    Policy, Pool, PoolPlanner, Profile, SharePolicy, Switches, UserPolicy,
};
use hayward_rm_scheduler_capacity::config;
use hayward_rm_scheduler_domain::settings::Settings;
use hayward_rm_scheduler_domain::snapshot::queues::Queues;
use hayward_rm_scheduler_domain::snapshot::{self, Snapshot};
use hayward_vocabulary::launch::{
    ENGINE, MAX_ENGINE_CONTAINERS, MOUNT_PREFIX, is_plain_path, mount_resource,
};
use hayward_vocabulary::{Quantum, Size, UserName};

use crate::definition_order;
use crate::inheritance::Lineage;
use crate::node_pools::{Identity, NodePools};

const GB: u64 = 1 << 30;
/// Percent per hour from which there is no limit.
pub(crate) const MAX_PERCENT: u64 = 1_000_000;

/// The part of a policy that a round depends on.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub quantum: Quantum,
    pub tunables: snapshot::Tunables,
    pub pools: BTreeMap<String, snapshot::Pool>,
    pub classes: BTreeMap<String, snapshot::Class>,
    pub users: BTreeMap<UserName, snapshot::User>,
    /// Queues as configured, without draining ones.
    pub queues: BTreeMap<String, Queues>,
    /// External planners, by pool.
    pub planners: BTreeMap<String, PoolPlanner>,
    node_pools: NodePools,
    /// Named resources of the nodes of a pool that have a container engine.
    mounts: BTreeMap<String, Vec<String>>,
    reserved_bytes: u64,
    memory_override_bytes: Option<u64>,
}

impl Rules {
    /// Translates a policy, which should have no faults. A policy of an earlier version may have
    /// some. A faulty entry is skipped, so that a fleet always has rules.
    pub fn new(policy: &Policy) -> Self {
        let tunables = &policy.tunables;
        let memory_override_gb = tunables.node_memory_override_gb;
        Self {
            quantum: policy.quantum.clone(),
            tunables: snapshot_tunables(policy),
            pools: pools(policy),
            classes: classes(policy),
            users: users(policy),
            queues: queues(policy),
            planners: planners(policy),
            node_pools: NodePools::new(policy),
            mounts: mounts(policy),
            reserved_bytes: bytes(tunables.node_reserved_gb),
            memory_override_bytes: (memory_override_gb > 0).then(|| bytes(memory_override_gb)),
        }
    }

    /// Applies the rules to a snapshot. The duration of a round is not part of the policy.
    pub fn apply_to(&self, snapshot: &mut Snapshot) {
        let cycle_ms = snapshot.tunables.cycle_ms;
        snapshot.quantum = self.quantum.clone();
        snapshot.tunables = snapshot::Tunables {
            cycle_ms,
            ..self.tunables.clone()
        };
        snapshot.pools.clone_from(&self.pools);
        snapshot.classes.clone_from(&self.classes);
        snapshot.users.clone_from(&self.users);
        snapshot.queues.clone_from(&self.queues);
        // The state of a planner remains when the policy changes.
        snapshot
            .external_planners
            .retain(|pool, _| self.planners.contains_key(pool));
        for pool in self.planners.keys() {
            snapshot.external_planners.entry(pool.clone()).or_default();
        }
    }

    /// Returns the pool of a node, or `None` if there are no pools.
    pub fn pool_of(&self, node: Identity<'_>) -> Option<&str> {
        self.node_pools.pool_of(node)
    }

    /// Returns the offer of a node in this pool. It is the node's capacity, and the mounts of the
    /// pool if it has a container engine. Mounts that the node reports are ignored.
    #[must_use]
    pub fn offer(&self, pool: &str, reported: &Size) -> Size {
        let mut size = self.capacity(reported);
        size.extras
            .retain(|name, _| !name.starts_with(MOUNT_PREFIX));
        if size.extras.contains_key(ENGINE) {
            let listed = self.mounts.get(pool).into_iter().flatten();
            let mounts = listed.map(|name| (name.clone(), MAX_ENGINE_CONTAINERS));
            size.extras.extend(mounts);
        }
        size
    }

    /// Returns the part of a node that may be allocated.
    #[must_use]
    pub fn capacity(&self, reported: &Size) -> Size {
        let memory = self.memory_override_bytes.unwrap_or(reported.memory_bytes);
        Size {
            memory_bytes: memory.saturating_sub(self.reserved_bytes),
            ..reported.clone()
        }
    }
}

fn queues(policy: &Policy) -> BTreeMap<String, Queues> {
    let roots = policy
        .pools
        .iter()
        .filter(|(_, pool)| pool.parent.is_none());
    let parsed = roots.filter_map(|(name, pool)| {
        let queues = config::read(pool.queues.as_ref()?).ok()?;
        Some((name.clone(), queues))
    });
    parsed.collect()
}

/// Returns the external planners by pool. Queues have precedence if a policy of an earlier version
/// has both.
fn planners(policy: &Policy) -> BTreeMap<String, PoolPlanner> {
    let roots = policy.pools.iter();
    let roots = roots.filter(|(_, pool)| pool.parent.is_none() && pool.queues.is_none());
    roots
        .filter_map(|(name, pool)| Some((name.clone(), pool.planner.clone()?)))
        .collect()
}

/// Returns the mounts by pool. A writable mount may also be read (S21).
fn mounts(policy: &Policy) -> BTreeMap<String, Vec<String>> {
    let names = |pool: &Pool| {
        let listed = pool.mounts.iter().filter(|it| is_plain_path(&it.source));
        let names = listed.flat_map(|it| {
            let writing = it.writable.then(|| mount_resource(&it.source, false));
            std::iter::once(mount_resource(&it.source, true)).chain(writing)
        });
        names.collect::<Vec<String>>()
    };
    let pools = policy
        .pools
        .iter()
        .map(|(name, pool)| (name.clone(), names(pool)));
    pools.filter(|(_, names)| !names.is_empty()).collect()
}

fn bytes(gigabytes: u64) -> u64 {
    gigabytes.saturating_mul(GB)
}

fn snapshot_tunables(policy: &Policy) -> snapshot::Tunables {
    let tunables = &policy.tunables;
    let unit = policy.quantum.0.memory_bytes;
    let in_quanta = tunables
        .global_allotment_quanta
        .map(|quanta| quanta.saturating_mul(unit));
    let limit = tunables.global_allotment_gb.map(bytes).or(in_quanta);
    snapshot::Tunables {
        initialization_cap: tunables.initialization_cap,
        expand_by_doubling: tunables.expand_by_doubling,
        use_prediction: tunables.use_prediction,
        prediction_fudge_ms: tunables.prediction_fudge_ms,
        global_allotment_bytes: limit.filter(|_| tunables.use_global_allotment),
        reserve_overage_bytes: tunables.reserve_overage_gb.map(bytes),
        fragmentation_threshold: tunables.fragmentation_threshold,
        defragmentation: tunables.defragmentation,
        settings: settings(profile(policy), &policy.settings),
        ..snapshot::Tunables::default()
    }
}

fn profile(policy: &Policy) -> Profile {
    policy.profile.or(policy.preset).unwrap_or_default()
}

/// Settings of the profile, except the switches that an operator chooses by the cost of moving
/// work.
fn settings(profile: Profile, switches: &Switches) -> Settings {
    let base = match profile {
        Profile::Default => Settings::default(),
        Profile::Reference => Settings::reference(),
    };
    let churn_rounds = match switches.churn_rounds {
        None => base.churn_rounds,
        Some(0) => None,
        Some(rounds) => Some(rounds),
    };
    Settings {
        squatters_go_home: switches.squatters_go_home.unwrap_or(base.squatters_go_home),
        churn_rounds,
        preemption_pool_percent_per_hour: budget(
            switches.preemption_pool_percent_per_hour,
            base.preemption_pool_percent_per_hour,
        ),
        preemption_user_percent_per_hour: budget(
            switches.preemption_user_percent_per_hour,
            base.preemption_user_percent_per_hour,
        ),
        lend_idle: switches.lend_idle.unwrap_or(base.lend_idle),
        replace_lost: switches.replace_lost.unwrap_or(base.replace_lost),
        exchange: switches.exchange.unwrap_or(base.exchange),
        pack_gpus: switches.pack_gpus.unwrap_or(base.pack_gpus),
        ..base
    }
}

fn budget(configured: Option<u64>, default: Option<u64>) -> Option<u64> {
    configured
        .or(default)
        .filter(|percent| *percent < MAX_PERCENT)
}

fn pools(policy: &Policy) -> BTreeMap<String, snapshot::Pool> {
    let numbered = (0_u64..).zip(definition_order::pools(policy));
    numbered
        .map(|(place, (name, pool))| {
            let quantum = pool.quantum.clone().filter(|_| pool.parent.is_none());
            let entry = snapshot::Pool {
                parent: pool.parent.clone(),
                search_order: pool.search_order,
                position: place,
                quantum,
            };
            (name.to_owned(), entry)
        })
        .collect()
}

fn classes(policy: &Policy) -> BTreeMap<String, snapshot::Class> {
    let served = definition_order::classes(policy)
        .into_iter()
        .filter(|(_, class)| !class.is_abstract);
    (0_u64..)
        .zip(served)
        .filter_map(|(place, (name, class))| {
            let lineage = Lineage::new(policy, name).ok()?;
            let share = lineage.policy()?;
            let fair = share == SharePolicy::FairShare;
            let entry = snapshot::Class {
                policy: match share {
                    SharePolicy::FairShare => snapshot::Policy::FairShare,
                    SharePolicy::FixedShare => snapshot::Policy::FixedShare,
                    SharePolicy::Reserve => snapshot::Policy::Reserve,
                },
                priority: lineage.priority()?,
                weight: if fair { lineage.weight() } else { 100 },
                pool: lineage.pool()?.to_owned(),
                default: class.default,
                users: lineage
                    .find(|class| class.users.clone())
                    .unwrap_or_default()
                    .into_iter()
                    .collect(),
                position: place,
                debug_class: lineage.find(|class| class.debug.clone()).filter(|_| fair),
                growth: growth(&lineage, fair),
            };
            Some((name.to_owned(), entry))
        })
        .collect()
}

/// Returns the growth of a class. Work without fair shares grows by the global values, whatever its
/// class inherits.
fn growth(lineage: &Lineage, fair: bool) -> snapshot::Growth {
    if !fair {
        return snapshot::Growth::default();
    }
    snapshot::Growth {
        initialization_cap: lineage.find(|class| class.initialization_cap),
        expand_by_doubling: lineage.find(|class| class.expand_by_doubling),
        use_prediction: lineage.find(|class| class.use_prediction),
        prediction_fudge_ms: lineage.find(|class| class.prediction_fudge_ms),
    }
}

fn users(policy: &Policy) -> BTreeMap<UserName, snapshot::User> {
    let unit = policy.quantum.0.memory_bytes;
    let entry = |user: &UserPolicy| {
        let in_quanta = user
            .max_allotment_quanta
            .map(|quanta| quanta.saturating_mul(unit));
        let by_class = user.max_allotment_gb_by_class.iter();
        snapshot::User {
            max_allotment_bytes: user.max_allotment_gb.map(bytes).or(in_quanta),
            max_allotment_by_class: by_class
                .map(|(name, gb)| (name.clone(), bytes(*gb)))
                .collect(),
        }
    };
    let entries = policy.users.iter();
    entries
        .filter_map(|(name, user)| Some((UserName::new(name.as_str()).ok()?, entry(user))))
        .collect()
}

#[cfg(test)]
mod tests;
