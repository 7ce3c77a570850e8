//! Beneficiaries of vacates. An allocation is vacated only for a process that other work of the
//! pool still lacks, that could run on this node, and that has no space there otherwise (I14).

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    NodeSpace, Plan,
    snapshot::{Allocation, Node, Policy},
};
use hayward_vocabulary::{AllocationId, NodeName, Size, WorkId};

use super::AcceptedGrant;
use crate::{
    pool_view::{PoolView, WorkItem},
    recent_moves,
    trees::quantum_of,
};

/// Maximum number of pairs of work and node examined per response. Further vacates find no
/// beneficiary.
const MAX_PAIRS: usize = 1_000_000;

/// Work with missing processes for which no space has been freed.
pub(super) struct MissingWork<'a> {
    pub work: &'a WorkId,
    demand: &'a hayward_rm_scheduler_domain::snapshot::Demand,
    class: &'a hayward_rm_scheduler_domain::snapshot::Class,
    order: u64,
    size: Size,
    processes: u64,
}

/// Space on a node with vacate candidates.
pub(super) struct CandidateNode<'a> {
    pub name: &'a NodeName,
    node: &'a Node,
    /// Free space, as if the forced vacates had left.
    pub free: NodeSpace,
    /// Free space after all candidates of this response have left.
    pub most: NodeSpace,
}

pub(super) struct Waiting<'a> {
    lacking: Vec<MissingWork<'a>>,
    /// Nodes of work in anti-affinity groups.
    groups: BTreeMap<&'a WorkId, Vec<(WorkId, NodeName)>>,
    checks: usize,
}

impl<'a> Waiting<'a> {
    /// Lists the waiting work. Work that loses processes in the same response is excluded, because
    /// that would be a pointless exchange.
    pub fn open(
        view: &PoolView<'a>,
        gives_up: &BTreeSet<&WorkId>,
        grants: &[AcceptedGrant],
    ) -> Self {
        let mut got: BTreeMap<&WorkId, u64> = BTreeMap::new();
        for accepted in grants {
            *got.entry(&accepted.grant.work).or_default() += 1;
        }
        let lacks = |(work, item): (&&'a WorkId, &WorkItem<'a>)| {
            let got = got.get(work).copied().unwrap_or(0);
            let made = recent_moves::served(&view.moved, work).saturating_sub(got);
            let processes = item.missing().saturating_sub(made);
            let lacks = processes > 0 && !gives_up.contains(work);
            lacks.then_some(MissingWork {
                work,
                demand: item.demand,
                class: item.class,
                order: item.order,
                size: item.size.clone(),
                processes,
            })
        };
        let mut lacking: Vec<MissingWork> = view.work.iter().filter_map(lacks).collect();
        lacking.sort_by_key(|it| (it.demand.submitted_at, it.work));
        let held = view.held.values().filter(|it| !it.leaving && !it.purged);
        let held = held.map(|it| (&it.work, &it.node));
        let granted = grants.iter().map(|it| (&it.grant.work, &it.grant.node));
        let mut groups: BTreeMap<&WorkId, Vec<(WorkId, NodeName)>> = BTreeMap::new();
        for (work, node) in held.chain(granted) {
            let item = view.work.get(work);
            if let Some(apart) = item.and_then(|item| item.demand.apart.as_ref()) {
                let places = groups.entry(&apart.group).or_default();
                places.push((work.clone(), node.clone()));
            }
        }
        Self {
            lacking,
            groups,
            checks: 0,
        }
    }

    /// Returns the oldest work from `from` on that could run a process on the node after all
    /// candidates have left. Also returns the needs of that process.
    pub fn next(
        &mut self,
        view: &PoolView,
        site: &CandidateNode,
        from: usize,
    ) -> Option<(usize, u64, Size)> {
        for at in from..self.lacking.len() {
            if self.checks >= MAX_PAIRS {
                return None;
            }
            self.checks += 1;
            let it = &self.lacking[at];
            if it.processes == 0 || !self.suits(view, it, site) {
                continue;
            }
            let (order, size) = takes(view, it, site.node);
            if site.most.fitting(order, &size) > 0 {
                return Some((at, order, size));
            }
        }
        None
    }

    pub fn serve(&mut self, at: usize) -> &MissingWork<'a> {
        let it = &mut self.lacking[at];
        it.processes = it.processes.saturating_sub(1);
        it
    }

    /// Checks the constraints that `check` has for the node, except free space.
    fn suits(&self, view: &PoolView, it: &MissingWork, site: &CandidateNode) -> bool {
        let listed = &it.demand.machines;
        view.reaches(it.class, &site.node.pool)
            && (listed.is_empty() || listed.contains(site.name))
            && !it.demand.avoids.contains(site.name)
            && it.demand.size.fits(&site.node.capacity)
            && self.is_apart(view, it, site)
    }

    fn is_apart(&self, view: &PoolView, it: &MissingWork, site: &CandidateNode) -> bool {
        let Some(apart) = &it.demand.apart else {
            return true;
        };
        let label = apart.by_label.as_ref();
        let value = |node: &Node| label.and_then(|label| node.labels.get(label)).cloned();
        let here = value(site.node);
        let near = |name: &NodeName| {
            let there = view.snapshot.nodes.get(name).and_then(value);
            name == site.name || (label.is_some() && there == here)
        };
        let others = self.groups.get(&apart.group).into_iter().flatten();
        let mut others = others.filter(|(work, _)| work != it.work);
        (label.is_none() || here.is_some()) && !others.any(|(_, node)| near(node))
    }
}

fn takes(view: &PoolView, it: &MissingWork, node: &Node) -> (u64, Size) {
    if it.class.policy == Policy::Reserve {
        let order = view.quantum.node_order(&node.capacity);
        return (order, node.capacity.clone());
    }
    (it.order, it.size.clone())
}

impl CandidateNode<'_> {
    pub fn goes(&mut self, held: &Allocation) {
        self.free.give(held.order, &held.size, &held.gpus);
    }

    pub fn stays(&mut self, held: &Allocation) {
        self.most.take(held.order, &held.size, &held.gpus);
    }

    pub fn take(&mut self, order: u64, size: &Size) {
        let gpus = self.free.choose_gpus(size.gpu_milli);
        self.free.take(order, size, &gpus);
        self.most.take(order, size, &gpus);
    }
}

/// Returns the nodes of the candidates that take work. Forced vacates count as gone.
pub(super) fn sites<'a>(
    view: &PoolView<'a>,
    may_go: &BTreeMap<&AllocationId, &'a NodeName>,
    going: &BTreeSet<AllocationId>,
    plan: &Plan,
    grants: &[AcceptedGrant],
) -> BTreeMap<&'a NodeName, CandidateNode<'a>> {
    let named: BTreeSet<&NodeName> = may_go.values().copied().collect();
    let nodes = view
        .nodes()
        .filter(|(name, node)| named.contains(*name) && node.is_schedulable());
    let site = |(name, node): (&'a NodeName, &'a Node)| {
        let order = quantum_of(view.snapshot, &node.pool).node_order(&node.capacity);
        let free = NodeSpace::new(order, &node.capacity);
        let most = free.clone();
        (
            name,
            CandidateNode {
                name,
                node,
                free,
                most,
            },
        )
    };
    let mut sites: BTreeMap<_, _> = nodes.map(site).collect();
    for (id, held) in &view.snapshot.allocations {
        let leaves = held.leaving || held.purged || going.contains(id);
        if let Some(site) = sites.get_mut(&held.node).filter(|_| !leaves) {
            site.free.take(held.order, &held.size, &held.gpus);
            if !may_go.contains_key(id) {
                site.stays(held);
            }
        }
    }
    for grant in plan.grants.iter().chain(grants.iter().map(|it| &it.grant)) {
        if let Some(site) = sites.get_mut(&grant.node) {
            site.free.take(grant.order, &grant.size, &grant.gpus);
            site.most.take(grant.order, &grant.size, &grant.gpus);
        }
    }
    sites
}
