//! Creates the state of a round from the index. At the end of the round, moves its rows to the
//! cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use hayward_vocabulary::WorkKind;
use rustc_hash::FxHashMap;

use super::{
    ClassState, NodeState, ProcessCounts, RoundCache, RoundState, WorkState, budget::OpenBudget,
    derived_sets::DerivedSets, idle_trees::TreeOutcome, needy::Needy,
};
use crate::{
    collections::bit_set::BitSet,
    ids::{NodeIx, WorkIx},
    incremental::tracked_vec::TrackedVec,
    index::FleetIndex,
    input::{
        settings::Settings,
        snapshot::{Policy, Snapshot},
    },
};

impl<'a> RoundState<'a> {
    /// Opens a round. Takes the rows of the last round from the cache and updates them.
    pub fn open(cache: &mut RoundCache, index: &'a FleetIndex, snapshot: &'a Snapshot) -> Self {
        let classes = index.classes.iter().map(|class_record| ClassState {
            name: &class_record.name,
            class: &class_record.class,
            pool: class_record.pool,
            users: &class_record.users,
            entitlement: ProcessCounts::default(),
            weighted_share: 0,
            user_entitlements: Vec::new(),
        });
        let settings = &snapshot.tunables.settings;
        let (nodes, work) = update_rows(cache, index, settings);
        let mut leaving = std::mem::take(&mut cache.leaving);
        leaving.clear();
        leaving.extend(index.leaving.iter().copied());
        let mut state = Self {
            snapshot,
            settings,
            index,
            forest: &index.forest,
            nodes,
            allocations: &index.allocations,
            leaving,
            classes: classes.collect(),
            work,
            granted: std::mem::take(&mut cache.granted),
            vacates: Vec::new(),
            vacate_position: FxHashMap::default(),
            receipts: Vec::new(),
            fixed_bytes_by_user: FxHashMap::default(),
            fixed_bytes_by_user_and_class: FxHashMap::default(),
            deficits: snapshot.carried.deficits.clone(),
            class_group_quanta: Vec::new(),
            previously_needy: BitSet::default(),
            nodes_with_reservations: BTreeSet::new(),
            changed_space: BTreeMap::new(),
            changed_caps: BTreeMap::new(),
            whole_nodes: BTreeMap::new(),
            outcomes: std::mem::take(&mut cache.outcomes),
            depends_on_time: AtomicBool::new(false),
            budget_stops: FxHashMap::default(),
            budget: OpenBudget::default(),
            derived: std::mem::take(&mut cache.derived),
        };
        state
            .outcomes
            .resize_with(state.forest.len(), TreeOutcome::default);
        state.apply_carried(std::mem::take(&mut cache.needy));
        state.set_whole_node_quanta();
        state.sum_fixed_bytes();
        state
    }

    /// Sums the bytes of fixed allocations by user.
    fn sum_fixed_bytes(&mut self) {
        let index = self.index;
        for allocation in &index.fixed {
            let record = &index.allocations[*allocation];
            let class = index.find_class(&record.class);
            let home = class.and_then(|class| index.classes[class].pool);
            let quantum_bytes = index.quantum(home).0.memory_bytes;
            let bytes = record.quanta.saturating_mul(quantum_bytes);
            self.add_fixed_bytes(&record.user_name, &record.class, bytes);
        }
    }

    /// Moves the rows and caches into the cache for the next round.
    pub fn close(&mut self, cache: &mut RoundCache, needy: Needy) {
        cache.work = std::mem::take(&mut self.work);
        cache.nodes = std::mem::take(&mut self.nodes);
        cache.leaving = std::mem::take(&mut self.leaving);
        if !self.index.rebuilt {
            // The next round needs about as much capacity for grants as this one.
            let grants = std::mem::take(&mut self.granted).into_iter();
            // Drops all grants. The standard library reuses the allocation for the empty list,
            // which has another lifetime.
            cache.granted = grants.map_while(|_| None).collect();
        }
        cache.outcomes = std::mem::take(&mut self.outcomes);
        cache.needy = needy;
        cache.derived = std::mem::take(&mut self.derived);
    }

    /// Applies what the last round carried over.
    fn apply_carried(&mut self, needy: Needy) {
        let (index, carried) = (self.index, &self.snapshot.carried);
        for (id, quanta) in &carried.reserved_node_quanta {
            if let Some(work) = index.find_work(id).filter(|work| self.is_reserve(*work)) {
                if index.work[work].allocations.is_empty() {
                    // The carried value may be absent in the next round. The row is therefore
                    // written in each round, which marks it dirty, so that the next round resets
                    // it.
                    let work_state = &mut self.work[work];
                    (work_state.process_quanta, work_state.has_reserved_node) = (*quanta, true);
                } else {
                    self.set_reserved_node_quanta(work, *quanta);
                }
            }
        }
        for work in carried.ended.iter().filter_map(|id| index.find_work(id)) {
            self.work[work].ended = index.work[work].kind != WorkKind::Job;
        }
        self.previously_needy = needy.carried_indices(index, &carried.needy);
    }

    /// Sets the quanta of the node that is reserved for the work. An unchanged row is not written,
    /// because writing marks it dirty.
    fn set_reserved_node_quanta(&mut self, work: WorkIx, quanta: u64) {
        let work_state = &self.work[work];
        if (work_state.process_quanta, work_state.has_reserved_node) != (quanta, true) {
            let work_state = &mut self.work[work];
            (work_state.process_quanta, work_state.has_reserved_node) = (quanta, true);
        }
    }

    fn is_reserve(&self, work: WorkIx) -> bool {
        self.policy(work) == Some(Policy::Reserve)
    }

    /// Sets the process size of work that holds whole nodes to that of the nodes.
    fn set_whole_node_quanta(&mut self) {
        let index = self.index;
        for class in self.classes.indices() {
            if self.classes[class].class.policy != Policy::Reserve {
                continue;
            }
            for work in self.classes[class].work() {
                if let Some(last) = index.work[work].allocations.last() {
                    self.set_reserved_node_quanta(work, self.allocations[last].quanta);
                }
            }
        }
    }
}

/// Updates the rows of nodes and work, and the structures derived from them.
fn update_rows(
    cache: &mut RoundCache,
    index: &FleetIndex,
    settings: &Settings,
) -> (TrackedVec<NodeIx, NodeState>, TrackedVec<WorkIx, WorkState>) {
    let mut nodes = std::mem::take(&mut cache.nodes);
    let mut work = std::mem::take(&mut cache.work);
    if index.rebuilt {
        nodes.fill(
            index
                .nodes
                .indices()
                .map(|node| NodeState::new(index, node)),
        );
        let work_records = index.work.iter();
        work.fill(work_records.map(|work_record| WorkState::new(work_record, settings)));
        // A rebuild renumbers work and pools.
        cache.derived = DerivedSets::default();
        cache.outcomes.clear();
        return (nodes, work);
    }
    let changed = index.changed_nodes.iter().copied();
    let new_row = |node| NodeState::new(index, node);
    nodes.start_round(changed, new_row, |node, row, was_touched| {
        row.reset(index, node, was_touched);
    });
    #[cfg(test)]
    for (node, row) in nodes.enumerate() {
        row.assert_equals(&NodeState::new(index, node));
    }
    let changed = index.touched.iter().chain(&index.rederived);
    let new_row = |item: WorkIx| WorkState::new(&index.work[item], settings);
    work.start_round(changed.copied(), new_row, |item, row, _| {
        let reset = new_row(item);
        let class = reset.class.map(|class| &index.classes[class].class);
        let is_fair_share = class.is_some_and(|class| class.policy == Policy::FairShare);
        // The entitlements of fair-share work stay valid from round to round.
        let entitlement = if is_fair_share { row.entitlement } else { 0 };
        *row = WorkState {
            entitlement,
            ..reset
        };
    });
    (nodes, work)
}
