//! Sums of all allocations by node, by work, by user and by queue, which the check needs.
//!
//! A delta updates them, so the cost of a check depends on the delta and the plan, and not on the
//! number of allocations.

mod charge;
mod keyed_rows;
mod sum_terms;

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Size, UserName, WorkId};
use rustc_hash::FxHashMap;

use super::{anti_affinity::Groups, held_of, node_load::NodeLoad, queues};
use crate::input::{
    delta::SnapshotDelta,
    snapshot::{Allocation, Snapshot},
};
use charge::Charge;
use keyed_rows::KeyedRows;
use sum_terms::SumTerms;

/// Sums of the allocations of one snapshot. They follow later snapshots by their deltas.
#[derive(Debug, Default)]
pub struct Holdings {
    terms: SumTerms,
    /// Entries by allocation. There may be millions, so an entry is a few numbers.
    entries: FxHashMap<AllocationId, Entry>,
    nodes: KeyedRows<NodeName, OnNode>,
    work: KeyedRows<WorkId, OfWork>,
    /// Number of allocations with this shape.
    shapes: KeyedRows<Shape, u64>,
    charges: FxHashMap<AllocationId, Charge>,
    /// Bytes without preemption, by user and class.
    pub(super) fixed: BTreeMap<(UserName, String), u64>,
    pub(super) groups: Groups,
    /// Nodes of the processes of work in a group, leaving ones included.
    places: FxHashMap<WorkId, Vec<NodeName>>,
    pub(super) queues: queues::Held,
}

/// Allocation as it was added to the sums, so that the same amounts are subtracted.
#[derive(Debug, Clone, Copy)]
struct Entry {
    node: u32,
    work: u32,
    shape: u32,
    /// True if the allocation does not leave.
    stays: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Shape {
    order: u64,
    size: Size,
    gpus: Vec<u64>,
}

#[derive(Debug, Default)]
struct OnNode {
    /// Load of the node. It includes leaving allocations, which occupy the node until they are gone
    ///
    load: NodeLoad,
    /// Number of allocations on the node.
    things: u64,
    /// Tree whose queues are charged. `None` if it has no queues.
    tree: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct OfWork {
    processes: u64,
    /// Number of processes that do not leave.
    staying: u64,
}

impl Holdings {
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut holdings = Self {
            terms: SumTerms::new(snapshot),
            ..Self::default()
        };
        // Space is reserved at once, because a growing map needs memory for the old and the new
        // table.
        holdings.entries.reserve(snapshot.allocations.len());
        for (work, demand) in &snapshot.demand {
            holdings.groups.renew(work, Some(demand));
        }
        for (id, allocation) in &snapshot.allocations {
            holdings.enter(snapshot, id, allocation);
        }
        holdings
    }

    /// Updates the sums to this snapshot. `news` must name everything that differs from the last
    /// snapshot. It may name more, since the values come from the snapshot.
    pub fn follow(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) {
        if !self.can_follow(snapshot, news) {
            self.rebuild(snapshot);
            return;
        }
        let mut is_exact = true;
        for id in news.allocations.keys() {
            is_exact &= self.leave(id);
            if let Some(allocation) = snapshot.allocations.get(id) {
                self.enter(snapshot, id, allocation);
            }
        }
        if !is_exact {
            self.rebuild(snapshot);
        }
    }

    /// Returns whether the delta is enough to follow the snapshot. Also updates the groups, which
    /// may be incomplete if the result is false.
    fn can_follow(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) -> bool {
        !news.everything
            && self.terms.hold_in(snapshot)
            && !self.a_node_moved(snapshot, news)
            && self.regroup(snapshot, news)
    }

    fn rebuild(&mut self, snapshot: &Snapshot) {
        // Free the old sums first, so that memory does not hold both.
        *self = Self::default();
        *self = Self::new(snapshot);
    }

    /// Returns the load of a node.
    pub(super) fn on(&self, node: &NodeName) -> Option<&NodeLoad> {
        Some(&self.nodes.get(node)?.load)
    }

    /// Returns whether the work has an allocation, leaving or not.
    pub(super) fn knows(&self, work: &WorkId) -> bool {
        self.work.get(work).is_some()
    }

    /// Returns the number of processes that do not leave.
    pub(super) fn staying(&self, work: &WorkId) -> u64 {
        self.work.get(work).map_or(0, |it| it.staying)
    }

    /// Returns the work of an allocation, or `None` if the allocation leaves or is unknown.
    pub(super) fn work_of_staying(&self, id: &AllocationId) -> Option<&WorkId> {
        let entry = self.entries.get(id).filter(|entry| entry.stays)?;
        self.work.key(entry.work)
    }

    /// Returns the nodes of the processes of this work, including leaving processes. Empty if the
    /// work is in no group.
    pub(super) fn places_of(&self, work: &WorkId) -> &[NodeName] {
        self.places.get(work).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a node moved to another tree, so that its allocations are charged to other
    /// queues.
    fn a_node_moved(&self, snapshot: &Snapshot, news: &SnapshotDelta) -> bool {
        let moved = |node: &NodeName| {
            let known = self.nodes.get(node);
            known.is_some_and(|known| known.tree.as_deref() != tree_of(snapshot, node))
        };
        !snapshot.queues.is_empty() && news.nodes.iter().any(moved)
    }

    /// Updates the groups. Returns false if work with allocations joined a group, since nodes are
    /// known only for work in groups. The update is then incomplete, and all sums must be rebuilt.
    fn regroup(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) -> bool {
        news.work.keys().all(|work| {
            let is_new = self.groups.renew(work, snapshot.demand.get(work));
            if !self.groups.has(work) {
                self.places.remove(work);
            }
            !is_new || !self.knows(work)
        })
    }

    fn enter(&mut self, snapshot: &Snapshot, id: &AllocationId, allocation: &Allocation) {
        let shape = Shape {
            order: allocation.order,
            size: held_of(snapshot, allocation),
            gpus: allocation.gpus.clone(),
        };
        let entry = Entry {
            node: self.nodes.number(&allocation.node),
            work: self.work.number(&allocation.work),
            shape: self.shapes.number(&shape),
            stays: !allocation.leaving && !allocation.purged,
        };
        *self.shapes.at_mut(entry.shape) += 1;
        let on_node = self.nodes.at_mut(entry.node);
        if on_node.things == 0 {
            on_node.tree = tree_of(snapshot, &allocation.node).map(str::to_owned);
        }
        on_node.load.add(shape.order, &shape.size, &shape.gpus);
        on_node.things += 1;
        let of_work = self.work.at_mut(entry.work);
        of_work.processes += 1;
        of_work.staying += u64::from(entry.stays);
        if self.groups.has(&allocation.work) {
            let places = self.places.entry(allocation.work.clone()).or_default();
            places.push(allocation.node.clone());
        }
        let tree = on_node.tree.as_deref();
        if let Some(charge) = Charge::new(snapshot, allocation, tree) {
            if let Some(bytes) = charge.fixed_bytes {
                let sum = self.fixed.entry(charge.whose()).or_default();
                *sum = sum.saturating_add(bytes);
            }
            if let Some(tree) = tree {
                self.queues.add(charge.queued(tree), &charge.size);
            }
            self.charges.insert(id.clone(), charge);
        }
        self.entries.insert(id.clone(), entry);
    }

    /// Subtracts an allocation. Returns false if a sum was saturated, so that the rest is unknown.
    fn leave(&mut self, id: &AllocationId) -> bool {
        let Some(entry) = self.entries.remove(id) else {
            return true;
        };
        let mut is_exact = self.discharge(id, entry);
        let of_work = self.work.at_mut(entry.work);
        of_work.processes -= 1;
        of_work.staying -= u64::from(entry.stays);
        let is_last = of_work.processes == 0;
        if let (Some(work), Some(node)) = (self.work.key(entry.work), self.nodes.key(entry.node))
            && let Some(places) = self.places.get_mut(work)
        {
            let place = places.iter().position(|place| place == node);
            place.map(|place| places.swap_remove(place));
            if is_last {
                self.places.remove(work);
            }
        }
        if is_last {
            self.work.remove(entry.work);
        }
        let on_node = self.nodes.at_mut(entry.node);
        on_node.things -= 1;
        if on_node.things == 0 {
            self.nodes.remove(entry.node);
        } else if let Some(Shape { order, size, gpus }) = self.shapes.key(entry.shape) {
            is_exact &= on_node.load.take(*order, size, gpus);
        }
        let alike = self.shapes.at_mut(entry.shape);
        *alike -= 1;
        if *alike == 0 {
            self.shapes.remove(entry.shape);
        }
        is_exact
    }

    fn discharge(&mut self, id: &AllocationId, entry: Entry) -> bool {
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
            is_exact &= self.queues.take(charge.queued(tree), &charge.size);
        }
        if let Some(bytes) = charge.fixed_bytes
            && let Some(sum) = self.fixed.get_mut(&charge.whose())
        {
            is_exact &= *sum < u64::MAX;
            *sum = sum.saturating_sub(bytes);
            if *sum == 0 {
                self.fixed.remove(&charge.whose());
            }
        }
        is_exact
    }
}

#[cfg(test)]
impl Holdings {
    /// Asserts equal sums. The order in which they were built does not matter.
    pub(crate) fn assert_same(&self, other: &Self) {
        assert_eq!(self.terms, other.terms);
        let entries = |holdings: &Self| {
            let named = |(id, entry): (&AllocationId, &Entry)| {
                let (node, work) = (
                    holdings.nodes.key(entry.node),
                    holdings.work.key(entry.work),
                );
                let what = (
                    node.cloned(),
                    work.cloned(),
                    holdings.shapes.key(entry.shape).cloned(),
                );
                (id.clone(), (what, entry.stays))
            };
            holdings
                .entries
                .iter()
                .map(named)
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(entries(self), entries(other));
        let nodes = |holdings: &Self| {
            let sums = |it: &OnNode| (it.load.normal(), it.things, it.tree.clone());
            let nodes = holdings.nodes.iter();
            let nodes = nodes.map(|(name, it)| (name.clone(), sums(it)));
            nodes.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(nodes(self), nodes(other));
        let work = |holdings: &Self| {
            let work = holdings.work.iter();
            let work = work.map(|(id, it)| (id.clone(), (it.processes, it.staying)));
            work.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(work(self), work(other));
        let places = |holdings: &Self| {
            let mut places = holdings.places.clone();
            for nodes in places.values_mut() {
                nodes.sort_unstable();
            }
            places
        };
        assert_eq!(places(self), places(other));
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
    Some(queues::tree_of(snapshot, &node.pool)?.0)
}

#[cfg(test)]
mod tests;
