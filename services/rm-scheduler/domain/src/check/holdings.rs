//! Sums of all allocations by node, by work, by user and by queue, which the check needs.
//!
//! A delta updates the sums, so the cost of a check depends on the delta and the plan, and not on
//! the number of allocations.

mod charge;
mod keyed_rows;
mod policy_inputs;

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Size, UserName, WorkId};
use rustc_hash::FxHashMap;

use super::{anti_affinity::AntiAffinityGroups, held_size, node_load::NodeLoad, queues};
use crate::input::{
    delta::SnapshotDelta,
    snapshot::{Allocation, Snapshot},
};
use charge::Charge;
use keyed_rows::KeyedRows;
use policy_inputs::PolicyInputs;

/// Sums of the allocations of one snapshot. Deltas update them to later snapshots.
#[derive(Debug, Default)]
pub struct Holdings {
    policy_inputs: PolicyInputs,
    /// Entries by allocation. There may be millions, so an entry is a few numbers.
    entries: FxHashMap<AllocationId, Entry>,
    nodes: KeyedRows<NodeName, NodeSums>,
    work: KeyedRows<WorkId, WorkSums>,
    /// Number of allocations, by shape.
    shapes: KeyedRows<Shape, u64>,
    charges: FxHashMap<AllocationId, Charge>,
    /// Bytes of allocations that are never preempted, by user and class.
    pub(super) fixed: BTreeMap<(UserName, String), u64>,
    /// Anti-affinity groups.
    pub(super) groups: AntiAffinityGroups,
    /// Nodes of the processes of work in a group, including leaving processes.
    nodes_of_groups: FxHashMap<WorkId, Vec<NodeName>>,
    pub(super) queues: queues::QueueSums,
}

/// Allocation as it was added to the sums, so that the same amounts are subtracted.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Number of the row in [`Holdings::nodes`], and likewise for `work` and `shape`.
    node: u32,
    work: u32,
    shape: u32,
    /// True if the allocation does not leave.
    stays: bool,
}

/// Amounts of one allocation. Allocations with equal amounts share a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Shape {
    quanta: u64,
    size: Size,
    gpus: Vec<u64>,
}

#[derive(Debug, Default)]
struct NodeSums {
    /// Load of the node. It includes leaving allocations, which occupy the node until they are gone
    ///
    load: NodeLoad,
    /// Number of allocations on the node.
    allocation_count: u64,
    /// Tree whose queues are charged. `None` if it has no queues.
    tree: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct WorkSums {
    processes: u64,
    /// Number of processes that do not leave.
    staying: u64,
}

impl Holdings {
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut holdings = Self {
            policy_inputs: PolicyInputs::new(snapshot),
            ..Self::default()
        };
        // Space is reserved at once, because a growing map needs memory for the old and the new
        // table.
        holdings.entries.reserve(snapshot.allocations.len());
        for (work, demand) in &snapshot.demand {
            holdings.groups.update(work, Some(demand));
        }
        for (id, allocation) in &snapshot.allocations {
            holdings.add(snapshot, id, allocation);
        }
        holdings
    }

    /// Updates the sums to this snapshot. `delta` must name all entries that differ from the last
    /// snapshot. It may also name unchanged entries, because the values come from the snapshot.
    pub fn apply_delta(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) {
        if !self.begin_update(snapshot, delta) {
            self.rebuild(snapshot);
            return;
        }
        let mut is_exact = true;
        for id in delta.allocations.keys() {
            is_exact &= self.subtract(id);
            if let Some(allocation) = snapshot.allocations.get(id) {
                self.add(snapshot, id, allocation);
            }
        }
        if !is_exact {
            self.rebuild(snapshot);
        }
    }

    /// Updates the anti-affinity groups. Returns false if the delta is not enough to update the
    /// sums. The groups may then be incomplete, and all must be rebuilt.
    fn begin_update(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) -> bool {
        !delta.everything
            && self.policy_inputs.are_unchanged_in(snapshot)
            && !self.has_moved_node(snapshot, delta)
            && self.regroup(snapshot, delta)
    }

    fn rebuild(&mut self, snapshot: &Snapshot) {
        // Free the old sums first, so that memory does not hold both.
        *self = Self::default();
        *self = Self::new(snapshot);
    }

    /// Returns the load of a node.
    pub(super) fn load_on(&self, node: &NodeName) -> Option<&NodeLoad> {
        Some(&self.nodes.get(node)?.load)
    }

    /// Returns whether the work has an allocation, leaving or not.
    pub(super) fn has_allocation(&self, work: &WorkId) -> bool {
        self.work.get(work).is_some()
    }

    /// Returns the number of processes that do not leave.
    pub(super) fn staying(&self, work: &WorkId) -> u64 {
        self.work.get(work).map_or(0, |sums| sums.staying)
    }

    /// Returns the work of an allocation, or `None` if the allocation leaves or is unknown.
    pub(super) fn work_of_staying(&self, id: &AllocationId) -> Option<&WorkId> {
        let entry = self.entries.get(id).filter(|entry| entry.stays)?;
        self.work.key(entry.work)
    }

    /// Returns the nodes of the processes of this work, including leaving processes. Empty if the
    /// work is in no group.
    pub(super) fn nodes_of(&self, work: &WorkId) -> &[NodeName] {
        self.nodes_of_groups.get(work).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a node of the delta moved to another tree, so that its allocations are
    /// charged to other queues.
    fn has_moved_node(&self, snapshot: &Snapshot, delta: &SnapshotDelta) -> bool {
        let is_moved = |node: &NodeName| {
            let node_sums = self.nodes.get(node);
            node_sums.is_some_and(|sums| sums.tree.as_deref() != tree_of(snapshot, node))
        };
        !snapshot.queues.is_empty() && delta.nodes.iter().any(is_moved)
    }

    /// Updates the anti-affinity groups. Returns false if work with allocations joined a group,
    /// because the nodes of such work are not known. All sums must then be rebuilt.
    fn regroup(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) -> bool {
        delta.work.keys().all(|work| {
            let has_joined = self.groups.update(work, snapshot.demand.get(work));
            if !self.groups.contains(work) {
                self.nodes_of_groups.remove(work);
            }
            !has_joined || !self.has_allocation(work)
        })
    }

    /// Adds an allocation to all sums.
    fn add(&mut self, snapshot: &Snapshot, id: &AllocationId, allocation: &Allocation) {
        let shape = Shape {
            quanta: allocation.quanta,
            size: held_size(snapshot, allocation),
            gpus: allocation.gpus.clone(),
        };
        let entry = Entry {
            node: self.nodes.number(&allocation.node),
            work: self.work.number(&allocation.work),
            shape: self.shapes.number(&shape),
            stays: !allocation.leaving && !allocation.purged,
        };
        *self.shapes.at_mut(entry.shape) += 1;
        let node_sums = self.nodes.at_mut(entry.node);
        if node_sums.allocation_count == 0 {
            node_sums.tree = tree_of(snapshot, &allocation.node).map(str::to_owned);
        }
        node_sums.load.add(shape.quanta, &shape.size, &shape.gpus);
        node_sums.allocation_count += 1;
        let work_sums = self.work.at_mut(entry.work);
        work_sums.processes += 1;
        work_sums.staying += u64::from(entry.stays);
        if self.groups.contains(&allocation.work) {
            let nodes = self
                .nodes_of_groups
                .entry(allocation.work.clone())
                .or_default();
            nodes.push(allocation.node.clone());
        }
        let tree = node_sums.tree.as_deref();
        if let Some(charge) = Charge::new(snapshot, allocation, tree) {
            if let Some(bytes) = charge.fixed_bytes {
                let sum = self.fixed.entry(charge.owner()).or_default();
                *sum = sum.saturating_add(bytes);
            }
            if let Some(tree) = tree {
                self.queues.add(charge.queue_accounts(tree), &charge.size);
            }
            self.charges.insert(id.clone(), charge);
        }
        self.entries.insert(id.clone(), entry);
    }

    /// Subtracts an allocation. Returns false if a sum was saturated, so that the result is
    /// unknown.
    fn subtract(&mut self, id: &AllocationId) -> bool {
        let Some(entry) = self.entries.remove(id) else {
            return true;
        };
        let mut is_exact = self.subtract_charge(id, entry);
        let work_sums = self.work.at_mut(entry.work);
        work_sums.processes -= 1;
        work_sums.staying -= u64::from(entry.stays);
        let is_last = work_sums.processes == 0;
        if let (Some(work), Some(node)) = (self.work.key(entry.work), self.nodes.key(entry.node))
            && let Some(nodes) = self.nodes_of_groups.get_mut(work)
        {
            let index = nodes.iter().position(|name| name == node);
            index.map(|index| nodes.swap_remove(index));
            if is_last {
                self.nodes_of_groups.remove(work);
            }
        }
        if is_last {
            self.work.remove(entry.work);
        }
        let node_sums = self.nodes.at_mut(entry.node);
        node_sums.allocation_count -= 1;
        if node_sums.allocation_count == 0 {
            self.nodes.remove(entry.node);
        } else if let Some(Shape { quanta, size, gpus }) = self.shapes.key(entry.shape) {
            is_exact &= node_sums.load.subtract(*quanta, size, gpus);
        }
        let same_shape = self.shapes.at_mut(entry.shape);
        *same_shape -= 1;
        if *same_shape == 0 {
            self.shapes.remove(entry.shape);
        }
        is_exact
    }

    /// Subtracts the charge of an allocation. Returns false if a sum was saturated.
    fn subtract_charge(&mut self, id: &AllocationId, entry: Entry) -> bool {
        let charge = if self.charges.is_empty() {
            None
        } else {
            self.charges.remove(id)
        };
        let Some(charge) = charge else {
            return true;
        };
        let mut is_exact = true;
        if let Some(tree) = &self.nodes.at(entry.node).tree {
            is_exact &= self
                .queues
                .subtract(charge.queue_accounts(tree), &charge.size);
        }
        if let Some(bytes) = charge.fixed_bytes
            && let Some(sum) = self.fixed.get_mut(&charge.owner())
        {
            is_exact &= *sum < u64::MAX;
            *sum = sum.saturating_sub(bytes);
            if *sum == 0 {
                self.fixed.remove(&charge.owner());
            }
        }
        is_exact
    }
}

#[cfg(test)]
impl Holdings {
    /// Asserts equal sums, whatever the order in which the allocations were added.
    pub(crate) fn assert_same(&self, other: &Self) {
        assert_eq!(self.policy_inputs, other.policy_inputs);
        let entries = |holdings: &Self| {
            let named = |(id, entry): (&AllocationId, &Entry)| {
                let (node, work) = (
                    holdings.nodes.key(entry.node),
                    holdings.work.key(entry.work),
                );
                let amounts = (
                    node.cloned(),
                    work.cloned(),
                    holdings.shapes.key(entry.shape).cloned(),
                );
                (id.clone(), (amounts, entry.stays))
            };
            holdings
                .entries
                .iter()
                .map(named)
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(entries(self), entries(other));
        let nodes = |holdings: &Self| {
            let comparable = |sums: &NodeSums| {
                (
                    sums.load.without_zeros(),
                    sums.allocation_count,
                    sums.tree.clone(),
                )
            };
            let nodes = holdings.nodes.iter();
            let nodes = nodes.map(|(name, sums)| (name.clone(), comparable(sums)));
            nodes.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(nodes(self), nodes(other));
        let work = |holdings: &Self| {
            let work = holdings.work.iter();
            let work = work.map(|(id, sums)| (id.clone(), (sums.processes, sums.staying)));
            work.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(work(self), work(other));
        let nodes_of_groups = |holdings: &Self| {
            let mut sorted = holdings.nodes_of_groups.clone();
            for nodes in sorted.values_mut() {
                nodes.sort_unstable();
            }
            sorted
        };
        assert_eq!(nodes_of_groups(self), nodes_of_groups(other));
        assert_eq!(self.charges, other.charges);
        let fixed = |holdings: &Self| {
            let mut fixed = holdings.fixed.clone();
            fixed.retain(|_, bytes| *bytes > 0);
            fixed
        };
        assert_eq!(fixed(self), fixed(other));
        assert_eq!(self.groups, other.groups);
        self.queues.assert_same(&other.queues);
    }
}

/// Returns the tree of a node, or `None` if the tree has no queues.
fn tree_of<'a>(snapshot: &'a Snapshot, node: &NodeName) -> Option<&'a str> {
    if snapshot.queues.is_empty() {
        return None;
    }
    let node = snapshot.nodes.get(node)?;
    let (tree, _) = queues::tree_of(snapshot, &node.pool)?;
    Some(tree)
}

#[cfg(test)]
mod tests;
