//! Translates a policy for the planner: applies inheritance and defaults, and numbers pools and
//! classes in the order of definition.

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
use crate::inheritance::Ancestry;
use crate::node_pools::{Identity, NodePools};

const GB: u64 = 1 << 30;
/// Percentage per hour from which on preemption is unlimited.
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
    /// Mounts by pool, as names of resources. Only nodes with a container engine offer them.
    mounts: BTreeMap<String, Vec<String>>,
    /// Memory of each node that is never allocated.
    reserved_bytes: u64,
    /// Memory that each node counts with, instead of the reported memory. `None`: the reported one.
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
            pools: snapshot_pools(policy),
            classes: snapshot_classes(policy),
            users: snapshot_users(policy),
            queues: queues(policy),
            planners: planners(policy),
            node_pools: NodePools::new(policy),
            mounts: mounts(policy),
            reserved_bytes: gb_to_bytes(tunables.node_reserved_gb),
            memory_override_bytes: (memory_override_gb > 0)
                .then(|| gb_to_bytes(memory_override_gb)),
        }
    }

    /// Applies the rules to a snapshot. Preserves the duration of a round (`cycle_ms`), which is
    /// not part of the policy.
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

    /// Returns what a node of this pool offers: its capacity, and the mounts of the pool if the
    /// node has a container engine. Mounts that the node reports are ignored.
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

/// Returns the mounts by pool. A writable mount is also offered read-only (S21).
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

fn gb_to_bytes(gigabytes: u64) -> u64 {
    gigabytes.saturating_mul(GB)
}

fn snapshot_tunables(policy: &Policy) -> snapshot::Tunables {
    let tunables = &policy.tunables;
    let quantum_bytes = policy.quantum.0.memory_bytes;
    let in_quanta = tunables
        .global_allotment_quanta
        .map(|quanta| quanta.saturating_mul(quantum_bytes));
    let limit = tunables.global_allotment_gb.map(gb_to_bytes).or(in_quanta);
    snapshot::Tunables {
        initialization_cap: tunables.initialization_cap,
        expand_by_doubling: tunables.expand_by_doubling,
        use_prediction: tunables.use_prediction,
        prediction_fudge_ms: tunables.prediction_fudge_ms,
        global_allotment_bytes: limit.filter(|_| tunables.use_global_allotment),
        reserve_overage_bytes: tunables.reserve_overage_gb.map(gb_to_bytes),
        fragmentation_threshold: tunables.fragmentation_threshold,
        defragmentation: tunables.defragmentation,
        settings: settings(profile(policy), &policy.settings),
        ..snapshot::Tunables::default()
    }
}

fn profile(policy: &Policy) -> Profile {
    policy.profile.or(policy.preset).unwrap_or_default()
}

/// Returns the settings of the profile. A switch that the policy sets replaces the value of the
/// profile.
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
        preemption_pool_percent_per_hour: preemption_budget(
            switches.preemption_pool_percent_per_hour,
            base.preemption_pool_percent_per_hour,
        ),
        preemption_user_percent_per_hour: preemption_budget(
            switches.preemption_user_percent_per_hour,
            base.preemption_user_percent_per_hour,
        ),
        lend_idle: switches.lend_idle.unwrap_or(base.lend_idle),
        grow_into_free_space: switches
            .grow_into_free_space
            .unwrap_or(base.grow_into_free_space),
        replace_lost: switches.replace_lost.unwrap_or(base.replace_lost),
        exchange: switches.exchange.unwrap_or(base.exchange),
        pack_gpus: switches.pack_gpus.unwrap_or(base.pack_gpus),
        ..base
    }
}

/// Returns the percentage per hour, or `None` if preemption is unlimited.
fn preemption_budget(configured: Option<u64>, default: Option<u64>) -> Option<u64> {
    configured
        .or(default)
        .filter(|percent| *percent < MAX_PERCENT)
}

fn snapshot_pools(policy: &Policy) -> BTreeMap<String, snapshot::Pool> {
    let numbered = (0_u64..).zip(definition_order::ordered_pools(policy));
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

fn snapshot_classes(policy: &Policy) -> BTreeMap<String, snapshot::Class> {
    let served = definition_order::ordered_classes(policy)
        .into_iter()
        .filter(|(_, class)| !class.is_abstract);
    (0_u64..)
        .zip(served)
        .filter_map(|(place, (name, class))| {
            let ancestry = Ancestry::new(policy, name).ok()?;
            let share_policy = ancestry.policy()?;
            let is_fair = share_policy == SharePolicy::FairShare;
            let entry = snapshot::Class {
                policy: match share_policy {
                    SharePolicy::FairShare => snapshot::Policy::FairShare,
                    SharePolicy::FixedShare => snapshot::Policy::FixedShare,
                    SharePolicy::Reserve => snapshot::Policy::Reserve,
                },
                priority: ancestry.priority()?,
                weight: if is_fair { ancestry.weight() } else { 100 },
                pool: ancestry.pool()?.to_owned(),
                default: class.default,
                users: ancestry
                    .find(|class| class.users.clone())
                    .unwrap_or_default()
                    .into_iter()
                    .collect(),
                position: place,
                debug_class: ancestry
                    .find(|class| class.debug.clone())
                    .filter(|_| is_fair),
                growth: growth(&ancestry, is_fair),
            };
            Some((name.to_owned(), entry))
        })
        .collect()
}

/// Returns the growth of a class. Without fair shares the global values apply, whatever the class
/// inherits.
fn growth(ancestry: &Ancestry, is_fair: bool) -> snapshot::Growth {
    if !is_fair {
        return snapshot::Growth::default();
    }
    snapshot::Growth {
        initialization_cap: ancestry.find(|class| class.initialization_cap),
        expand_by_doubling: ancestry.find(|class| class.expand_by_doubling),
        use_prediction: ancestry.find(|class| class.use_prediction),
        prediction_fudge_ms: ancestry.find(|class| class.prediction_fudge_ms),
    }
}

fn snapshot_users(policy: &Policy) -> BTreeMap<UserName, snapshot::User> {
    let quantum_bytes = policy.quantum.0.memory_bytes;
    let entry = |user: &UserPolicy| {
        let in_quanta = user
            .max_allotment_quanta
            .map(|quanta| quanta.saturating_mul(quantum_bytes));
        let by_class = user.max_allotment_gb_by_class.iter();
        snapshot::User {
            max_allotment_bytes: user.max_allotment_gb.map(gb_to_bytes).or(in_quanta),
            max_allotment_by_class: by_class
                .map(|(name, gb)| (name.clone(), gb_to_bytes(*gb)))
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
