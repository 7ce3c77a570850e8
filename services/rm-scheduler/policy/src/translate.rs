//! A policy in the words of the planner: inheritance done, defaults filled in, orders of definition
//! as numbers.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::policy::{
    Policy, Pool, PoolPlanner, Preset, SharePolicy, Switches, UserPolicy,
};
use hayward_rm_scheduler_capacity::config;
use hayward_rm_scheduler_domain::settings::Settings;
use hayward_rm_scheduler_domain::snapshot::queues::Queues;
use hayward_rm_scheduler_domain::snapshot::{self, Snapshot};
use hayward_vocabulary::launch::{ENGINE, ENGINE_PLACES, MOUNT, is_plain_path, mount_resource};
use hayward_vocabulary::{Quantum, Size, UserName};

use crate::definition_order;
use crate::inheritance::Lineage;
use crate::node_pools::{Homes, Identity};

const GB: u64 = 1 << 30;
/// Percent in an hour that are no limit any more.
pub(crate) const MOST_PERCENT: u64 = 1_000_000;

/// What a round depends on of a policy.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub quantum: Quantum,
    pub tunables: snapshot::Tunables,
    pub pools: BTreeMap<String, snapshot::Pool>,
    pub classes: BTreeMap<String, snapshot::Class>,
    pub users: BTreeMap<UserName, snapshot::User>,
    /// As they are configured, without those that drain.
    pub queues: BTreeMap<String, Queues>,
    /// Planners outside, by pool.
    pub planners: BTreeMap<String, PoolPlanner>,
    homes: Homes,
    /// Named resources of the nodes of a pool that have a container engine.
    mounts: BTreeMap<String, Vec<String>>,
    reserved_bytes: u64,
    pretended_bytes: Option<u64>,
}

impl Rules {
    /// Of a policy without faults. A policy of an earlier version may have some; what makes no
    /// sense in it is passed over, so that a fleet always has rules.
    pub fn of(policy: &Policy) -> Self {
        let tunables = &policy.tunables;
        let pretended = tunables.node_memory_override_gb;
        Self {
            quantum: policy.quantum.clone(),
            tunables: snapshot_tunables(policy),
            pools: pools(policy),
            classes: classes(policy),
            users: users(policy),
            queues: queues(policy),
            planners: planners(policy),
            homes: Homes::of(policy),
            mounts: mounts(policy),
            reserved_bytes: bytes(tunables.node_reserved_gb),
            pretended_bytes: (pretended > 0).then(|| bytes(pretended)),
        }
    }

    /// Puts them in force for the rounds that plan from this snapshot. How long a round takes is
    /// not the policy's affair.
    pub fn write(&self, into: &mut Snapshot) {
        let cycle_ms = into.tunables.cycle_ms;
        into.quantum = self.quantum.clone();
        into.tunables = snapshot::Tunables {
            cycle_ms,
            ..self.tunables.clone()
        };
        into.pools.clone_from(&self.pools);
        into.classes.clone_from(&self.classes);
        into.users.clone_from(&self.users);
        into.queues.clone_from(&self.queues);
        // What is known of a planner stays known, whatever else is changed.
        into.outside
            .retain(|pool, _| self.planners.contains_key(pool));
        for pool in self.planners.keys() {
            into.outside.entry(pool.clone()).or_default();
        }
    }

    /// The pool of a node; none when there are no pools at all.
    pub fn pool_of(&self, node: Identity<'_>) -> Option<&str> {
        self.homes.pool_of(node)
    }

    /// What a node of this pool offers: its capacity, and with a container engine the mounts that
    /// its pool lists. What it says itself of mounts counts for nothing.
    #[must_use]
    pub fn offer(&self, pool: &str, reported: &Size) -> Size {
        let mut size = self.capacity(reported);
        size.extras.retain(|name, _| !name.starts_with(MOUNT));
        if size.extras.contains_key(ENGINE) {
            let listed = self.mounts.get(pool).into_iter().flatten();
            let places = listed.map(|name| (name.clone(), ENGINE_PLACES));
            size.extras.extend(places);
        }
        size
    }

    /// What of a node may be given out.
    #[must_use]
    pub fn capacity(&self, reported: &Size) -> Size {
        let memory = self.pretended_bytes.unwrap_or(reported.memory_bytes);
        Size {
            memory_bytes: memory.saturating_sub(self.reserved_bytes),
            ..reported.clone()
        }
    }
}

fn queues(policy: &Policy) -> BTreeMap<String, Queues> {
    let top = policy
        .pools
        .iter()
        .filter(|(_, pool)| pool.parent.is_none());
    let read = top.filter_map(|(name, pool)| {
        let queues = config::read(pool.queues.as_ref()?).ok()?;
        Some((name.clone(), queues))
    });
    read.collect()
}

/// Queues come first where a policy of an earlier version has both.
fn planners(policy: &Policy) -> BTreeMap<String, PoolPlanner> {
    let top = policy.pools.iter();
    let top = top.filter(|(_, pool)| pool.parent.is_none() && pool.queues.is_none());
    top.filter_map(|(name, pool)| Some((name.clone(), pool.planner.clone()?)))
        .collect()
}

/// S21: what a pool lists for writing may be read too.
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
    let said = &policy.tunables;
    let unit = policy.quantum.0.memory_bytes;
    let in_quanta = said
        .global_allotment_quanta
        .map(|quanta| quanta.saturating_mul(unit));
    let limit = said.global_allotment_gb.map(bytes).or(in_quanta);
    snapshot::Tunables {
        initialization_cap: said.initialization_cap,
        expand_by_doubling: said.expand_by_doubling,
        use_prediction: said.use_prediction,
        prediction_fudge_ms: said.prediction_fudge_ms,
        global_allotment_bytes: limit.filter(|_| said.use_global_allotment),
        reserve_overage_bytes: said.reserve_overage_gb.map(bytes),
        fragmentation_threshold: said.fragmentation_threshold,
        defragmentation: said.defragmentation,
        settings: settings(policy.preset, &policy.settings),
        ..snapshot::Tunables::default()
    }
}

fn settings(preset: Preset, said: &Switches) -> Settings {
    let base = match preset {
        Preset::Default => Settings::default(),
        Preset::Reference => Settings::reference(),
    };
    let churn = match said.churn_rounds {
        None => base.churn_rounds,
        Some(0) => None,
        Some(rounds) => Some(rounds),
    };
    Settings {
        carry_remainders: said.carry_remainders.unwrap_or(base.carry_remainders),
        squatters_go_home: said.squatters_go_home.unwrap_or(base.squatters_go_home),
        count_leaving_room: said.count_leaving_room.unwrap_or(base.count_leaving_room),
        spare_donors: said.spare_donors.unwrap_or(base.spare_donors),
        count_what_fits: said.count_what_fits.unwrap_or(base.count_what_fits),
        pack: said.pack.unwrap_or(base.pack),
        churn_rounds: churn,
        preemption_pool_percent_per_hour: budget(
            said.preemption_pool_percent_per_hour,
            base.preemption_pool_percent_per_hour,
        ),
        preemption_user_percent_per_hour: budget(
            said.preemption_user_percent_per_hour,
            base.preemption_user_percent_per_hour,
        ),
        evict_for_somebody: said.evict_for_somebody.unwrap_or(base.evict_for_somebody),
        lend_idle: said.lend_idle.unwrap_or(base.lend_idle),
        clear_promised: said.clear_promised.unwrap_or(base.clear_promised),
        relieve_shrunken: said.relieve_shrunken.unwrap_or(base.relieve_shrunken),
        replace_lost: said.replace_lost.unwrap_or(base.replace_lost),
        rest_on_closed: said.rest_on_closed.unwrap_or(base.rest_on_closed),
        reserve_whole_nodes: said.reserve_whole_nodes.unwrap_or(base.reserve_whole_nodes),
        steady_counts: said.steady_counts.unwrap_or(base.steady_counts),
        level_remainders: said.level_remainders.unwrap_or(base.level_remainders),
        holes_among_rivals: said.holes_among_rivals.unwrap_or(base.holes_among_rivals),
        lose_least: said.lose_least.unwrap_or(base.lose_least),
        exchange: said.exchange.unwrap_or(base.exchange),
        pack_gpus: said.pack_gpus.unwrap_or(base.pack_gpus),
    }
}

fn budget(said: Option<u64>, base: Option<u64>) -> Option<u64> {
    said.or(base).filter(|percent| *percent < MOST_PERCENT)
}

fn pools(policy: &Policy) -> BTreeMap<String, snapshot::Pool> {
    let placed = (0_u64..).zip(definition_order::pools(policy));
    placed
        .map(|(place, (name, pool))| {
            let quantum = pool.quantum.clone().filter(|_| pool.parent.is_none());
            let entry = snapshot::Pool {
                parent: pool.parent.clone(),
                search_order: pool.search_order,
                place,
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
            let lineage = Lineage::of(policy, name).ok()?;
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
                place,
                debug: lineage.find(|class| class.debug.clone()).filter(|_| fair),
                growth: growth(&lineage, fair),
            };
            Some((name.to_owned(), entry))
        })
        .collect()
}

/// other work grows by the global values, whatever its class inherits.
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
    let named = policy.users.iter();
    named
        .filter_map(|(name, user)| Some((UserName::new(name.as_str()).ok()?, entry(user))))
        .collect()
}

#[cfg(test)]
mod tests;
