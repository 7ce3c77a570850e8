//! Whom room is made for. Nothing is taken back but for a process that other work of the pool
//! still lacks, that could stand on just this node, and that has no room there otherwise (I14).

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Plan, Room,
    plan::Grant,
    snapshot::{Allocation, Node, Policy},
};
use hayward_vocabulary::{AllocationId, NodeName, Size, WorkId};

use crate::{
    pool_view::{Book, Wish},
    recent_moves,
    trees::quantum_of,
};

/// Pairs of work and node that are looked at for one answer; what comes later serves nobody.
const MOST_LOOKS: usize = 1_000_000;

/// Work that lacks processes for which no room was made yet.
pub(super) struct Lacking<'a> {
    pub work: &'a WorkId,
    demand: &'a hayward_rm_scheduler_domain::snapshot::Demand,
    class: &'a hayward_rm_scheduler_domain::snapshot::Class,
    order: u64,
    size: Size,
    processes: u64,
}

/// Room on a node of which something may go.
pub(super) struct Site<'a> {
    pub name: &'a NodeName,
    node: &'a Node,
    /// Free, or going whatever is answered.
    pub room: Room,
    /// With all that may still go by this answer.
    pub most: Room,
}

pub(super) struct Waiting<'a> {
    lacking: Vec<Lacking<'a>>,
    /// Who stands where of those that are kept apart.
    groups: BTreeMap<&'a WorkId, Vec<(WorkId, NodeName)>>,
    looks: usize,
}

impl<'a> Waiting<'a> {
    /// Nobody who gives up a place by the same answer: that would be an exchange for nobody's sake.
    pub fn open(book: &Book<'a>, gives_up: &BTreeSet<&WorkId>, grants: &[(usize, Grant)]) -> Self {
        let mut got: BTreeMap<&WorkId, u64> = BTreeMap::new();
        for (_, grant) in grants {
            *got.entry(&grant.work).or_default() += 1;
        }
        let lacks = |(work, wish): (&&'a WorkId, &Wish<'a>)| {
            let got = got.get(work).copied().unwrap_or(0);
            let made = recent_moves::served(&book.moved, work).saturating_sub(got);
            let processes = wish.missing().saturating_sub(made);
            let lacks = processes > 0 && !gives_up.contains(work);
            lacks.then_some(Lacking {
                work,
                demand: wish.demand,
                class: wish.class,
                order: wish.order,
                size: wish.size.clone(),
                processes,
            })
        };
        let mut lacking: Vec<Lacking> = book.work.iter().filter_map(lacks).collect();
        lacking.sort_by_key(|it| (it.demand.submitted_at, it.work));
        let held = book.held.values().filter(|it| !it.leaving && !it.purged);
        let held = held.map(|it| (&it.work, &it.node));
        let granted = grants.iter().map(|(_, it)| (&it.work, &it.node));
        let mut groups: BTreeMap<&WorkId, Vec<(WorkId, NodeName)>> = BTreeMap::new();
        for (work, node) in held.chain(granted) {
            let wish = book.work.get(work);
            if let Some(apart) = wish.and_then(|wish| wish.demand.apart.as_ref()) {
                let places = groups.entry(&apart.group).or_default();
                places.push((work.clone(), node.clone()));
            }
        }
        Self {
            lacking,
            groups,
            looks: 0,
        }
    }

    /// The oldest work from `from` on that could have a process there if all went that may, with
    /// what that process takes.
    pub fn next(&mut self, book: &Book, site: &Site, from: usize) -> Option<(usize, u64, Size)> {
        for at in from..self.lacking.len() {
            if self.looks >= MOST_LOOKS {
                return None;
            }
            self.looks += 1;
            let it = &self.lacking[at];
            if it.processes == 0 || !self.suits(book, it, site) {
                continue;
            }
            let (order, size) = takes(book, it, site.node);
            if site.most.fitting(order, &size) > 0 {
                return Some((at, order, size));
            }
        }
        None
    }

    pub fn serve(&mut self, at: usize) -> &Lacking<'a> {
        let it = &mut self.lacking[at];
        it.processes = it.processes.saturating_sub(1);
        it
    }

    /// What `check` asks of the node, but for room.
    fn suits(&self, book: &Book, it: &Lacking, site: &Site) -> bool {
        let listed = &it.demand.machines;
        book.reaches(it.class, &site.node.pool)
            && (listed.is_empty() || listed.contains(site.name))
            && !it.demand.avoids.contains(site.name)
            && it.demand.size.fits(&site.node.capacity)
            && self.is_apart(book, it, site)
    }

    fn is_apart(&self, book: &Book, it: &Lacking, site: &Site) -> bool {
        let Some(apart) = &it.demand.apart else {
            return true;
        };
        let label = apart.by_label.as_ref();
        let value = |node: &Node| label.and_then(|label| node.labels.get(label)).cloned();
        let here = value(site.node);
        let near = |name: &NodeName| {
            let there = book.snapshot.nodes.get(name).and_then(value);
            name == site.name || (label.is_some() && there == here)
        };
        let others = self.groups.get(&apart.group).into_iter().flatten();
        let mut others = others.filter(|(work, _)| work != it.work);
        (label.is_none() || here.is_some()) && !others.any(|(_, node)| near(node))
    }
}

fn takes(book: &Book, it: &Lacking, node: &Node) -> (u64, Size) {
    if it.class.policy == Policy::Reserve {
        let order = book.quantum.node_order(&node.capacity);
        return (order, node.capacity.clone());
    }
    (it.order, it.size.clone())
}

impl Site<'_> {
    pub fn goes(&mut self, held: &Allocation) {
        self.room.give(held.order, &held.size, &held.gpus);
    }

    pub fn stays(&mut self, held: &Allocation) {
        self.most.take(held.order, &held.size, &held.gpus);
    }

    pub fn take(&mut self, order: u64, size: &Size) {
        let gpus = self.room.choose_gpus(size.gpu_milli);
        self.room.take(order, size, &gpus);
        self.most.take(order, size, &gpus);
    }
}

/// The nodes of what may go, where work may be placed. What leaves anyway is as good as gone.
pub(super) fn sites<'a>(
    book: &Book<'a>,
    may_go: &BTreeMap<&AllocationId, &'a NodeName>,
    (going, plan, grants): (&BTreeSet<AllocationId>, &Plan, &[(usize, Grant)]),
) -> BTreeMap<&'a NodeName, Site<'a>> {
    let named: BTreeSet<&NodeName> = may_go.values().copied().collect();
    let nodes = book
        .nodes()
        .filter(|(name, node)| named.contains(*name) && node.is_schedulable());
    let site = |(name, node): (&'a NodeName, &'a Node)| {
        let order = quantum_of(book.snapshot, &node.pool).node_order(&node.capacity);
        let room = Room::new(order, &node.capacity);
        let most = room.clone();
        (
            name,
            Site {
                name,
                node,
                room,
                most,
            },
        )
    };
    let mut sites: BTreeMap<_, _> = nodes.map(site).collect();
    for (id, held) in &book.snapshot.allocations {
        let leaves = held.leaving || held.purged || going.contains(id);
        if let Some(site) = sites.get_mut(&held.node).filter(|_| !leaves) {
            site.room.take(held.order, &held.size, &held.gpus);
            if !may_go.contains_key(id) {
                site.stays(held);
            }
        }
    }
    for grant in plan.grants.iter().chain(grants.iter().map(|(_, it)| it)) {
        if let Some(site) = sites.get_mut(&grant.node) {
            site.room.take(grant.order, &grant.size, &grant.gpus);
            site.most.take(grant.order, &grant.size, &grant.gpus);
        }
    }
    sites
}
