//! Adds, changes and removes nodes.
//!
//! Numbers of nodes ascend by name, and every decision breaks ties by number. Some numbers stay
//! free, so that a new node gets a number between those of its neighbours. If no number is free
//! there, the index is rebuilt.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Size, WorkId};

use super::{
    FleetIndex, NodeRecord, apply_delta::DirtyRows, derived_fields::set_membership,
    largest_nodes::LargestNodes, node_space::NodeSpace,
};
use crate::{
    collections::id_list::IdList,
    ids::{AllocIx, Ix, NodeIx, PoolIx, TypedVec, WorkIx},
    input::{
        delta::SnapshotDelta,
        snapshot::{Node, Snapshot},
    },
};

/// Number of nodes after which one number is left free.
const NODES_PER_FREE_NUMBER: usize = 8;

impl FleetIndex {
    /// Reads and numbers all nodes.
    pub(super) fn read_nodes(&mut self, snapshot: &Snapshot) {
        let free_numbers = snapshot.nodes.len() / NODES_PER_FREE_NUMBER + 1;
        self.nodes
            .reserve_exact(snapshot.nodes.len() + free_numbers);
        for (position, (name, node)) in snapshot.nodes.iter().enumerate() {
            let node_record = self.new_node_record(name, node);
            if let Some(pool) = node_record.pool {
                self.all_quanta[pool] += node_record.quanta;
            }
            let index = self.nodes.push(node_record);
            self.node_by_name.insert(name.clone(), index);
            if position % NODES_PER_FREE_NUMBER == NODES_PER_FREE_NUMBER / 2 {
                self.nodes.push(NodeRecord::vacant(name));
            }
        }
        self.largest_nodes_by_pool = self.largest_nodes(snapshot);
        self.update_gpu_pools();
    }

    /// Returns the largest nodes of each pool.
    fn largest_nodes(&self, snapshot: &Snapshot) -> TypedVec<PoolIx, LargestNodes> {
        let mut capacities: TypedVec<PoolIx, Vec<&Size>> =
            TypedVec::filled(Vec::new(), self.forest.len());
        for node in snapshot.nodes.values() {
            if let Some(pool) = self.forest.find(&node.pool) {
                capacities[pool].push(&node.capacity);
            }
        }
        let largest = capacities.enumerate().map(|(pool, sizes)| {
            let quantum = self.quantum(Some(pool));
            LargestNodes::from_capacities(quantum, sizes.iter().copied())
        });
        largest.collect()
    }

    /// Returns false if the quanta of any process may have changed.
    fn keeps_process_quanta(&mut self, snapshot: &Snapshot) -> bool {
        let largest = self.largest_nodes(snapshot);
        let has_limits = |largest: &TypedVec<PoolIx, LargestNodes>| {
            largest.iter().any(LargestNodes::limits_process_quanta)
        };
        let unchanged = largest == self.largest_nodes_by_pool
            || !(has_limits(&largest) || has_limits(&self.largest_nodes_by_pool));
        self.largest_nodes_by_pool = largest;
        unchanged
    }

    /// Applies changed nodes. If nodes were added or removed, returns the work that avoids single
    /// nodes, which must be read again. Returns `None` if a rebuild is required: a new node finds
    /// no free number, or the quanta of processes may have changed.
    pub(super) fn apply_nodes(
        &mut self,
        snapshot: &Snapshot,
        delta: &SnapshotDelta,
        dirty: &mut DirtyRows,
    ) -> Option<Vec<WorkId>> {
        let (mut names_changed, mut sizes_changed) = (false, false);
        for name in &delta.nodes {
            let (old_node, new_node) = (self.find_node(name), snapshot.nodes.get(name));
            names_changed |= old_node.is_some() != new_node.is_some();
            sizes_changed |= old_node.map(|node| pool_and_capacity(&self.nodes[node].node))
                != new_node.map(pool_and_capacity);
            match (old_node, new_node) {
                (Some(node), Some(new_node)) => self.change_node(node, new_node, dirty),
                (None, Some(new_node)) => self.add_node(name, new_node, dirty)?,
                (Some(node), None) => self.remove_node(node, dirty),
                (None, None) => {}
            }
        }
        if sizes_changed && !self.keeps_process_quanta(snapshot) {
            return None;
        }
        let rows = self.work_avoiding_nodes.iter().filter(|_| names_changed);
        let reread = rows.map(|work| self.work[*work].id.clone());
        Some(reread.filter(|id| !delta.work.contains_key(id)).collect())
    }

    pub(super) fn update_work_avoiding_nodes(&mut self, work: WorkIx) {
        let avoids = !self.work[work].constraints().avoided.is_empty();
        set_membership(&mut self.work_avoiding_nodes, work, avoids);
    }

    fn change_node(&mut self, node: NodeIx, new_node: &Node, dirty: &mut DirtyRows) {
        if self.nodes[node].node != *new_node {
            let name = self.nodes[node].name.clone();
            let mut node_record = self.new_node_record(&name, new_node);
            node_record.allocations = std::mem::take(&mut self.nodes[node].allocations);
            self.replace_node(node, node_record, dirty);
        }
    }

    fn add_node(&mut self, name: &NodeName, new_node: &Node, dirty: &mut DirtyRows) -> Option<()> {
        let node = self.find_free_number(name)?;
        if node.index() == self.nodes.len() {
            self.nodes.push(NodeRecord::vacant(name));
        }
        self.node_by_name.insert(name.clone(), node);
        let mut node_record = self.new_node_record(name, new_node);
        // Allocations are sorted by id, as in all lists.
        let unplaced = self.unplaced.iter().copied();
        let mut allocations: Vec<AllocIx> = unplaced
            .filter(|allocation| self.allocations[*allocation].node_name == *name)
            .collect();
        allocations.sort_by(|a, b| self.allocations[*a].id.cmp(&self.allocations[*b].id));
        for allocation in allocations.iter().copied() {
            self.allocations[allocation].node = Some(node);
        }
        node_record.allocations = allocations.into_iter().collect();
        self.replace_node(node, node_record, dirty);
        Some(())
    }

    /// Returns a free number between the neighbours of the name, or the next number after the last
    /// node.
    fn find_free_number(&self, name: &NodeName) -> Option<NodeIx> {
        let next = self.nodes.partition_point(|record| record.name < *name);
        let is_free = |node: &NodeIx| self.nodes[*node].is_vacant;
        if next.index() == self.nodes.len() || is_free(&next) {
            return Some(next);
        }
        next.previous().filter(is_free)
    }

    fn remove_node(&mut self, node: NodeIx, dirty: &mut DirtyRows) {
        let allocations = std::mem::take(&mut self.nodes[node].allocations);
        for allocation in allocations.iter() {
            let record = &mut self.allocations[allocation];
            record.node = None;
            dirty.work.extend(record.work);
            dirty.allocations.insert(allocation);
        }
        let name = self.nodes[node].name.clone();
        self.node_by_name.remove(&name);
        self.replace_node(node, NodeRecord::vacant(&name), dirty);
    }

    /// Replaces the row of a node.
    fn replace_node(&mut self, node: NodeIx, node_record: NodeRecord, dirty: &mut DirtyRows) {
        self.remove_node_kind(node);
        self.set_schedulable(node, false);
        let before = &self.nodes[node];
        if let Some(pool) = before.pool {
            self.all_quanta[pool] -= before.quanta;
            self.left_pools.push(pool);
        }
        if let Some(pool) = node_record.pool {
            self.all_quanta[pool] += node_record.quanta;
        }
        let gpu_pool = |record: &NodeRecord| {
            let has_gpus = record.node.capacity.gpu_milli > 0;
            let pool = record
                .pool
                .filter(|pool| has_gpus || self.pool_has_gpus[*pool]);
            (pool, pool.is_some() && has_gpus)
        };
        let gpu_pool_changes = gpu_pool(&node_record) != gpu_pool(before);
        self.nodes_changed = true;
        // The row keeps the old `is_overfull`, because a later step compares it with the new one.
        let was_overfull = before.is_overfull;
        self.nodes[node] = NodeRecord {
            is_overfull: was_overfull,
            ..node_record
        };
        if gpu_pool_changes {
            self.update_gpu_pools();
        }
        dirty.nodes.insert(node);
        dirty.nodes_with_changed_usage.insert(node);
    }

    fn new_node_record(&self, name: &NodeName, node: &Node) -> NodeRecord {
        let pool = self.forest.find(&node.pool);
        let quanta = self.quantum(pool).quanta_of_node(&node.capacity);
        let space = NodeSpace::new(quanta, &node.capacity);
        NodeRecord {
            pool,
            quanta,
            node: node.clone(),
            space_without_fixed: space,
            is_vacant: false,
            ..NodeRecord::vacant(name)
        }
    }

    fn update_gpu_pools(&mut self) {
        let node_records = || self.nodes.enumerate();
        self.pool_has_gpus = TypedVec::filled(false, self.forest.len());
        let has_gpus = |record: &NodeRecord| record.node.capacity.gpu_milli > 0;
        for (_, node_record) in node_records().filter(|(_, record)| has_gpus(record)) {
            if let Some(pool) = node_record.pool {
                self.pool_has_gpus[pool] = true;
            }
        }
        let is_in_gpu_pool =
            |record: &NodeRecord| record.pool.is_some_and(|pool| self.pool_has_gpus[pool]);
        let nodes_with_gpu_pool =
            node_records().filter(|(_, node_record)| is_in_gpu_pool(node_record));
        self.gpu_pool_nodes = nodes_with_gpu_pool.map(|(node, _)| node).collect();
    }
}

fn pool_and_capacity(node: &Node) -> (&str, &Size) {
    (&node.pool, &node.capacity)
}

impl NodeRecord {
    /// Makes a row for a free number. Its name keeps the rows sorted by name.
    fn vacant(name: &NodeName) -> Self {
        Self {
            name: name.clone(),
            node: Node {
                pool: String::new(),
                capacity: Size::default(),
                takes_work: false,
                lost: false,
                offline: false,
                block: None,
                labels: BTreeMap::new(),
            },
            is_vacant: true,
            pool: None,
            quanta: 0,
            schedulable: false,
            space_without_fixed: NodeSpace::default(),
            computed_space: None,
            allocations: IdList::default(),
            held_quanta: 0,
            is_overfull: false,
            services: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::{
        Planner as _, Rounds, SnapshotDelta,
        planner::FairShare,
        tests::fixture::{Fixture, node_name},
    };

    /// Plans a round after a change of this node, and asserts that the plan equals that of a new
    /// planner. Returns true if the index was not rebuilt.
    fn plans_incrementally(rounds: &mut Rounds, fixture: &mut Fixture, name: &str) -> bool {
        let delta = SnapshotDelta {
            nodes: BTreeSet::from([node_name(name)]),
            ..SnapshotDelta::default()
        };
        let decided = rounds.decide(&fixture.snapshot, &delta);
        let was_incremental = decided.shares.is_some();
        let plan = rounds.full_plan(decided);
        assert_eq!(plan, FairShare.schedule(&fixture.snapshot));
        was_incremental
    }

    #[test]
    fn nodes_are_removed_and_added_without_a_rebuild() {
        let mut fixture = Fixture::eager().nodes(&[4, 4, 4]);
        for user in ["a", "b", "c"] {
            fixture.job(user, user, 6);
        }
        fixture.step();
        let mut rounds = Rounds::default();
        rounds.decide(&fixture.snapshot, &SnapshotDelta::everything());
        let removed = fixture.snapshot.nodes.remove("n01").unwrap();
        assert!(plans_incrementally(&mut rounds, &mut fixture, "n01"));
        let name = node_name("n01");
        fixture.snapshot.nodes.insert(name, removed.clone());
        assert!(
            plans_incrementally(&mut rounds, &mut fixture, "n01"),
            "the same node is added again"
        );
        for new_name in ["n03", "n04"] {
            fixture
                .snapshot
                .nodes
                .insert(node_name(new_name), removed.clone());
            assert!(
                plans_incrementally(&mut rounds, &mut fixture, new_name),
                "a new node is added at the end"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn nodes_are_added_and_removed_in_any_order(
            names in prop::collection::vec(0..40_u8, 1..30),
        ) {
            let mut fixture = Fixture::eager().nodes(&[3; 20]);
            for user in ["a", "b"] {
                fixture.job(user, user, 40);
            }
            fixture.step();
            let node = fixture.node("n00").clone();
            let mut rounds = Rounds::default();
            rounds.decide(&fixture.snapshot, &SnapshotDelta::everything());
            for number in names {
                // Every second new name lies between two existing names.
                let suffix = if number % 2 == 0 { "" } else { "x" };
                let name = format!("n{:02}{suffix}", number / 2);
                if fixture.snapshot.nodes.remove(name.as_str()).is_none() {
                    fixture.snapshot.nodes.insert(node_name(&name), node.clone());
                }
                plans_incrementally(&mut rounds, &mut fixture, &name);
            }
        }
    }
}
