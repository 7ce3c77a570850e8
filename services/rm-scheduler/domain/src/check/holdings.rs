//! What is held, by node, by work, by user and by queue: what a check asks of a fleet beside what
//! the plan names. News bring it up to date, so that checking costs what is new and what is
//! planned, however much is held.

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

/// Read off a snapshot. From then on they follow it by the names of what became different.
#[derive(Debug, Default)]
pub struct Holdings {
    terms: SumTerms,
    /// There may be millions, so each is but a few numbers.
    entries: FxHashMap<AllocationId, Entry>,
    nodes: KeyedRows<NodeName, OnNode>,
    work: KeyedRows<WorkId, OfWork>,
    /// How many things are alike.
    shapes: KeyedRows<Shape, u64>,
    charges: FxHashMap<AllocationId, Charge>,
    /// Bytes that are never taken back, by user and class.
    pub(super) fixed: BTreeMap<(UserName, String), u64>,
    pub(super) groups: Groups,
    /// Where work of these groups is, be it that it leaves.
    places: FxHashMap<WorkId, Vec<NodeName>>,
    pub(super) queues: queues::Held,
}

/// One thing that is held: what was added is what is taken away again.
#[derive(Debug, Clone, Copy)]
struct Entry {
    node: u32,
    work: u32,
    shape: u32,
    /// Nobody told it to leave.
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
    /// What leaves is in here: it occupies its node until it is gone.
    load: NodeLoad,
    things: u64,
    /// The queues of this tree are charged for it.
    tree: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct OfWork {
    processes: u64,
    /// How many of them stay.
    staying: u64,
}

impl Holdings {
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut holdings = Self {
            terms: SumTerms::of(snapshot),
            ..Self::default()
        };
        // A map that grows needs the room of both.
        holdings.entries.reserve(snapshot.allocations.len());
        for (work, demand) in &snapshot.demand {
            holdings.groups.renew(work, Some(demand));
        }
        for (id, allocation) in &snapshot.allocations {
            holdings.enter(snapshot, id, allocation);
        }
        holdings
    }

    /// `news` names all that differs between this snapshot and the one that was followed last.
    /// Naming it again changes nothing, for what counts is what the snapshot says.
    pub fn follow(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) {
        if !self.can_follow(snapshot, news) {
            self.read_anew(snapshot);
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
            self.read_anew(snapshot);
        }
    }

    /// Also brings the groups up to date, as far as that goes.
    fn can_follow(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) -> bool {
        !news.everything
            && self.terms.hold_in(snapshot)
            && !self.a_node_moved(snapshot, news)
            && self.regroup(snapshot, news)
    }

    fn read_anew(&mut self, snapshot: &Snapshot) {
        // There is not room for two of them where much is held.
        *self = Self::default();
        *self = Self::of(snapshot);
    }

    /// What lies on a node.
    pub(super) fn on(&self, node: &NodeName) -> Option<&NodeLoad> {
        Some(&self.nodes.get(node)?.load)
    }

    /// Something of it is held, be it that it leaves.
    pub(super) fn knows(&self, work: &WorkId) -> bool {
        self.work.get(work).is_some()
    }

    /// Processes that stay.
    pub(super) fn staying(&self, work: &WorkId) -> u64 {
        self.work.get(work).map_or(0, |it| it.staying)
    }

    /// The work of one that stays.
    pub(super) fn work_of_staying(&self, id: &AllocationId) -> Option<&WorkId> {
        let entry = self.entries.get(id).filter(|entry| entry.stays)?;
        self.work.key(entry.work)
    }

    /// Where the processes of work in some group are, be it that they leave.
    pub(super) fn places_of(&self, work: &WorkId) -> &[NodeName] {
        self.places.get(work).map_or(&[], Vec::as_slice)
    }

    /// Queues are charged by the tree a node stands in, so what lies there would have to be
    /// charged to another.
    fn a_node_moved(&self, snapshot: &Snapshot, news: &SnapshotDelta) -> bool {
        let moved = |node: &NodeName| {
            let known = self.nodes.get(node);
            known.is_some_and(|known| known.tree.as_deref() != tree_of(snapshot, node))
        };
        !snapshot.queues.is_empty() && news.nodes.iter().any(moved)
    }

    /// False where work that holds something came to a group: nobody keeps by name where all other
    /// work is. Then it is half done, and everything has to be read anew.
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
        if let Some(charge) = Charge::of(snapshot, allocation, tree) {
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

    /// False where a sum had run over, so that it cannot be said what it is without this.
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
    /// The same sums, whatever order they were made in.
    pub(crate) fn assert_same(&self, other: &Self) {
        assert_eq!(self.terms, other.terms);
        let entries = |of: &Self| {
            let named = |(id, entry): (&AllocationId, &Entry)| {
                let (node, work) = (of.nodes.key(entry.node), of.work.key(entry.work));
                let what = (
                    node.cloned(),
                    work.cloned(),
                    of.shapes.key(entry.shape).cloned(),
                );
                (id.clone(), (what, entry.stays))
            };
            of.entries.iter().map(named).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(entries(self), entries(other));
        let nodes = |of: &Self| {
            let sums = |it: &OnNode| (it.load.normal(), it.things, it.tree.clone());
            let nodes = of.nodes.iter();
            let nodes = nodes.map(|(name, it)| (name.clone(), sums(it)));
            nodes.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(nodes(self), nodes(other));
        let work = |of: &Self| {
            let work = of.work.iter();
            let work = work.map(|(id, it)| (id.clone(), (it.processes, it.staying)));
            work.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(work(self), work(other));
        let places = |of: &Self| {
            let mut places = of.places.clone();
            for nodes in places.values_mut() {
                nodes.sort_unstable();
            }
            places
        };
        assert_eq!(places(self), places(other));
        assert_eq!(self.charges, other.charges);
        let fixed = |of: &Self| {
            let mut fixed = of.fixed.clone();
            fixed.retain(|_, bytes| *bytes > 0);
            fixed
        };
        assert_eq!(fixed(self), fixed(other));
        assert_eq!(self.groups, other.groups);
        self.queues.assert_same(&other.queues);
    }
}

/// The tree with queues that a node stands in.
fn tree_of<'a>(snapshot: &'a Snapshot, node: &NodeName) -> Option<&'a str> {
    if snapshot.queues.is_empty() {
        return None;
    }
    let node = snapshot.nodes.get(node)?;
    Some(queues::tree_of(snapshot, &node.pool)?.0)
}

#[cfg(test)]
mod tests;
