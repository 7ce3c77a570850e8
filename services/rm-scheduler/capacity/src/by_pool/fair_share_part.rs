//! The part of a snapshot that the fair-share planner may see, updated from round to round.
//!
//! Invariant: the part depends only on the snapshot, not on earlier updates. Each update visits all
//! allocations and nodes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use hayward_rm_scheduler_domain::{
    Snapshot, SnapshotDelta, Verdict,
    snapshot::{Allocation, Carried, Demand, Node},
};
use hayward_rm_scheduler_external_planner::Trees;
use hayward_vocabulary::NodeName;

pub(super) struct FairSharePart(Snapshot);

/// The planner that an allocation belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Fair,
    /// Queues, or an external planner.
    Other,
}

impl FairSharePart {
    pub fn is_needed(snapshot: &Snapshot) -> bool {
        let mut demand = snapshot.demand.values();
        let other = !snapshot.queues.is_empty() || !snapshot.outside.is_empty();
        other || demand.any(|demand| demand.queued.is_some())
    }

    /// Returns true if the part is needed from now on. A policy with queues marks everything as
    /// changed.
    pub fn begins(news: &SnapshotDelta) -> bool {
        let mut fresh = news.work.values().flatten();
        fresh.any(|demand| demand.queued.is_some())
    }

    pub fn new(snapshot: &Snapshot) -> Self {
        let mut rest = Self(Snapshot::empty());
        let all = SnapshotDelta::of_work(snapshot, snapshot.demand.keys().cloned());
        rest.absorb(snapshot, &all);
        rest
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.0
    }

    /// Updates the part to a new snapshot, and returns the differences within the part.
    pub fn absorb(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) -> SnapshotDelta {
        let divided = Divided::new(snapshot);
        self.follow_small_parts(snapshot, &divided);
        let mut changes = SnapshotDelta::default();
        for (work, demand) in &news.work {
            let demand = demand.as_ref();
            let fair = demand.filter(|demand| divided.is_fair(snapshot, demand));
            match fair {
                Some(demand) => drop(self.0.demand.insert(work.clone(), demand.clone())),
                None => drop(self.0.demand.remove(work)),
            }
            changes.work.insert(work.clone(), fair.cloned());
        }
        let sides = self.follow_allocations(snapshot, divided, news, &mut changes);
        self.follow_nodes(snapshot, news, &sides, &mut changes);
        changes
    }

    fn follow_small_parts(&mut self, snapshot: &Snapshot, divided: &Divided) {
        let rest = &mut self.0;
        (rest.now, rest.round) = (snapshot.now, snapshot.round);
        follow(&mut rest.quantum, &snapshot.quantum);
        follow(&mut rest.tunables, &snapshot.tunables);
        follow(&mut rest.pools, &snapshot.pools);
        follow(&mut rest.classes, &snapshot.classes);
        if divided.outside.is_empty() {
            follow(&mut rest.users, &snapshot.users);
        } else {
            rest.users = divided.outside.allotments(snapshot);
        }
        follow(&mut rest.taken_back, &snapshot.taken_back);
        let carried = Carried {
            queues: BTreeMap::new(),
            outside: BTreeMap::new(),
            ..snapshot.carried.clone()
        };
        rest.carried = carried;
    }

    fn follow_allocations<'s>(
        &mut self,
        snapshot: &'s Snapshot,
        divided: Divided,
        news: &SnapshotDelta,
        changes: &mut SnapshotDelta,
    ) -> NodeSides<'s> {
        let mut sides = NodeSides {
            divided,
            fair: HashSet::new(),
            other: HashSet::new(),
        };
        let rest = &mut self.0.allocations;
        for (id, allocation) in &snapshot.allocations {
            let side = sides.divided.side(snapshot, allocation);
            let known = rest.contains_key(id);
            if side == Side::Other {
                sides.other.insert(&allocation.node);
                if known {
                    rest.remove(id);
                    changes.allocations.insert(id.clone(), None);
                }
                continue;
            }
            sides.fair.insert(&allocation.node);
            if !known || news.allocations.contains_key(id) {
                rest.insert(id.clone(), allocation.clone());
                changes
                    .allocations
                    .insert(id.clone(), Some(allocation.clone()));
            }
        }
        for (id, _) in news.allocations.iter().filter(|(_, held)| held.is_none()) {
            rest.remove(id);
            changes.allocations.insert(id.clone(), None);
        }
        sides
    }

    fn follow_nodes(
        &mut self,
        snapshot: &Snapshot,
        news: &SnapshotDelta,
        sides: &NodeSides,
        changes: &mut SnapshotDelta,
    ) {
        let rest = &mut self.0.nodes;
        for (name, node) in &snapshot.nodes {
            let known = rest.get(name);
            let Some(takes_work) = sides.seen(name, node) else {
                if known.is_some() {
                    rest.remove(name);
                    changes.nodes.insert(name.clone());
                }
                continue;
            };
            let same = known.is_some_and(|known| known.takes_work == takes_work);
            if !same || news.nodes.contains(name) {
                let seen = Node {
                    takes_work,
                    ..node.clone()
                };
                rest.insert(name.clone(), seen);
                changes.nodes.insert(name.clone());
            }
        }
        for name in &news.nodes {
            if !snapshot.nodes.contains_key(name) {
                rest.remove(name);
                changes.nodes.insert(name.clone());
            }
        }
    }
}

fn follow<T: PartialEq + Clone>(mine: &mut T, other: &T) {
    if mine != other {
        mine.clone_from(other);
    }
}

/// Nodes by the planners of their allocations.
struct NodeSides<'s> {
    divided: Divided,
    fair: HashSet<&'s NodeName>,
    other: HashSet<&'s NodeName>,
}

impl NodeSides<'_> {
    /// Returns whether fair shares may place work on the node, or `None` if the node is not in the
    /// part.
    fn seen(&self, name: &NodeName, node: &Node) -> Option<bool> {
        if self.divided.has(&node.pool) {
            return self.fair.contains(name).then_some(false);
        }
        Some(node.takes_work && !self.other.contains(name))
    }
}

/// Pools that other planners plan, with all pools below them.
#[derive(Debug, Default)]
pub(super) struct Divided {
    /// Pools with queues.
    pools: BTreeSet<String>,
    /// Classes of these pools.
    classes: BTreeMap<String, String>,
    outside: Trees,
}

impl Divided {
    pub fn new(snapshot: &Snapshot) -> Self {
        let outside = Trees::new(snapshot);
        if snapshot.queues.is_empty() {
            return Self {
                outside,
                ..Self::default()
            };
        }
        let top = |name: &str| -> bool {
            let above = |name: &&str| {
                let pool = snapshot.pools.get(*name)?;
                pool.parent.as_deref()
            };
            let path = std::iter::successors(Some(name), above);
            let top = path.take(snapshot.pools.len() + 1).last();
            top.is_some_and(|top| snapshot.queues.contains_key(top))
        };
        let pools = snapshot.pools.keys().filter(|name| top(name));
        let pools: BTreeSet<String> = pools.cloned().collect();
        let classes = snapshot.classes.iter();
        let classes = classes.filter(|(_, class)| pools.contains(&class.pool));
        let classes = classes.map(|(name, class)| (name.clone(), class.pool.clone()));
        Self {
            classes: classes.collect(),
            pools,
            outside,
        }
    }

    fn has(&self, pool: &str) -> bool {
        self.pools.contains(pool) || self.outside.of_pool(pool).is_some()
    }

    fn is_fair(&self, snapshot: &Snapshot, demand: &Demand) -> bool {
        demand.queued.is_none() && self.outside.of_work(snapshot, demand).is_none()
    }

    fn side(&self, snapshot: &Snapshot, allocation: &Allocation) -> Side {
        if self.outside.of_held(snapshot, allocation).is_some() {
            return Side::Other;
        }
        let demand = snapshot.demand.get(&allocation.work);
        // The work is withdrawn, so its node and class decide which planner ends it.
        let withdrawn = || {
            let node = snapshot.nodes.get(&allocation.node);
            node.is_some_and(|node| self.pools.contains(&node.pool))
                && !snapshot.classes.contains_key(&allocation.class)
        };
        let queues = demand.map_or_else(withdrawn, |demand| demand.queued.is_some());
        if queues { Side::Other } else { Side::Fair }
    }

    /// Adds to the verdict that work of its class cannot run in a pool with queues.
    pub fn explain(&self, verdict: &mut Verdict) {
        let class = verdict.class.as_deref().filter(|_| verdict.waits);
        let pool = class.and_then(|class| Some((class, self.classes.get(class)?)));
        if let Some((class, pool)) = pool {
            verdict.detail = format!(
                "pool {pool} of class {class} is divided among queues: name a queue, or a class \
                 of another pool"
            );
            verdict.unblock = None;
        }
    }

    pub fn explain_all<'a>(&self, verdicts: impl Iterator<Item = &'a mut Verdict>) {
        if !self.classes.is_empty() {
            verdicts.for_each(|verdict| self.explain(verdict));
        }
    }
}
