//! Computes the entitlement of each piece of work. These are steps 3 and 4 of a round, called
//! How-Much in the specification.
//!
//! The input is the free and preemptable space of each pool, and the growth cap of each piece of
//! work. The result is the entitlement (`counted`) of each
//! [`WorkState`](crate::state::WorkState), and the quanta granted to classes.
//!
//! A hole is the space on one node that work can use. Classes of equal priority and policy form a
//! group, and groups are computed in order of priority. Each group removes the holes that it uses
//! before the next group is computed.
//!
//! This step chooses no nodes and no allocations that must leave.

mod apportion;
pub(crate) mod attainable_processes;
pub(crate) mod deficit;
mod fair_share;
mod fixed_share;
pub(crate) mod whole_nodes;

use std::collections::BTreeMap;

use crate::{
    ids::{ClassIx, PoolIx, TypedVec, WorkIx},
    index::FleetIndex,
    input::snapshot::Policy,
    output::plan::GroupQuanta,
    state::{RoundState, hole_table::HoleTable},
};
use attainable_processes::ReachIndex;
pub(crate) use fair_share::UserEntitlementCache;

/// Holes of each pool. Space of fixed allocations, which no work can take, is not included. Each
/// group removes the holes that it uses before the next group is computed.
pub(crate) struct HoleTables {
    pools: TypedVec<PoolIx, HoleTable>,
}

impl HoleTables {
    fn build(state: &RoundState) -> Self {
        let mut pools = TypedVec::filled(HoleTable::default(), state.forest.len());
        for ((pool, space), nodes) in &state.index.node_kinds {
            pools[*pool].add(space.quanta, *nodes);
        }
        // Fixed allocations that depart in this round leave their space to other work.
        for (node, space) in &state.changed_space {
            let node_record = &state.index.nodes[*node];
            if let Some(pool) = node_record.pool.filter(|_| node_record.schedulable) {
                pools[pool].remove(node_record.space_without_fixed.quanta);
                pools[pool].add(space.quanta, 1);
            }
        }
        Self { pools }
    }

    pub fn get(&self, pool: PoolIx) -> &HoleTable {
        &self.pools[pool]
    }

    /// Returns the quanta left in the pools of a tree.
    fn quanta(&self, state: &RoundState, tree: PoolIx) -> u64 {
        let pools = state.forest.subtree(tree).iter();
        pools.map(|pool| self.pools[*pool].total_quanta()).sum()
    }

    pub fn get_mut(&mut self, pool: PoolIx) -> &mut HoleTable {
        &mut self.pools[pool]
    }
}

/// Returns the classes of one tree that have work, grouped by priority and policy.
pub(crate) fn class_groups(state: &RoundState, tree: PoolIx) -> Vec<(Policy, Vec<ClassIx>)> {
    let mut class_groups: BTreeMap<(i64, Policy), Vec<ClassIx>> = BTreeMap::new();
    for (index, class) in state.classes.enumerate() {
        let in_tree = class
            .pool
            .is_some_and(|pool| state.forest.root(pool) == tree);
        if in_tree && !class.users.is_empty() {
            class_groups
                .entry((class.class.priority, class.class.policy))
                .or_default()
                .push(index);
        }
    }
    let sort_by_position = |classes: &mut Vec<ClassIx>| {
        classes.sort_by_key(|class| {
            (
                state.classes[*class].class.position,
                state.classes[*class].name,
            )
        });
    };
    class_groups
        .into_iter()
        .map(|((_, policy), mut classes)| {
            sort_by_position(&mut classes);
            (policy, classes)
        })
        .collect()
}

/// Returns the work of a group by class, then age. With the setting `count_what_fits`, the work of
/// all classes is sorted by age alone.
pub(crate) fn work_by_class_and_age(state: &RoundState, classes: &[ClassIx]) -> Vec<WorkIx> {
    let work_of_class = |class: &ClassIx| state.classes[*class].work();
    let sort_by_age = |work: &mut Vec<WorkIx>| {
        work.sort_by(|a, b| state.age_key(*a).cmp(&state.age_key(*b)));
    };
    if state.settings.count_what_fits {
        let mut work = classes.iter().flat_map(work_of_class).collect();
        sort_by_age(&mut work);
        return work;
    }
    let by_class = classes.iter().map(|class| {
        let mut work = work_of_class(class).collect();
        sort_by_age(&mut work);
        work
    });
    by_class.flatten().collect()
}

/// Results of this step that later rounds use again.
#[derive(Default)]
pub(crate) struct EntitlementCache {
    pub reach_index: ReachIndex,
    /// Entitlements of the users of FAIR_SHARE classes.
    pub users: UserEntitlementCache,
}

impl EntitlementCache {
    /// Brings the cache up to date with the index. Call it before entitlements are computed.
    pub fn update(&mut self, index: &FleetIndex) {
        if index.rebuilt {
            // A rebuild renumbers work and pools.
            *self = Self::default();
        } else {
            self.users.apply_edits(&index.work_list_edits);
        }
    }

    /// Frees the entitlements of users after a rebuild, because memory is scarcest then. The next
    /// round computes them again.
    pub fn clear_users_after_rebuild(&mut self, index: &FleetIndex) {
        if index.rebuilt {
            self.users = UserEntitlementCache::default();
        }
    }
}

/// Computes the entitlements of all work in one tree of pools, group by group.
pub(crate) fn compute(
    state: &mut RoundState,
    user_entitlements: &mut UserEntitlementCache,
    tree: PoolIx,
) {
    let mut tables = HoleTables::build(state);
    for (policy, classes) in class_groups(state, tree) {
        let available = tables.quanta(state, tree);
        match policy {
            Policy::FairShare => {
                fair_share::compute(state, user_entitlements, &mut tables, &classes);
            }
            Policy::FixedShare => fixed_share::compute(state, &mut tables, &classes),
            Policy::Reserve => whole_nodes::reserve(state, &mut tables, &classes),
        }
        let assigned = available - tables.quanta(state, tree);
        let group_quanta = GroupQuanta {
            available,
            assigned,
        };
        state
            .class_group_quanta
            .extend(classes.first().map(|class| (*class, group_quanta)));
    }
}
