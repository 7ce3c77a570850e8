//! Beneficiaries of vacates. An allocation is vacated only for a process that other work of the
//! pool still lacks, that could run on this node, and that has no space there otherwise (I14).

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    NodeSpace, Plan,
    snapshot::{Allocation, Class, Demand, Node, Policy},
};
use hayward_vocabulary::{AllocationId, NodeName, Size, WorkId};

use super::AcceptedGrant;
use crate::{
    external_pool_trees::quantum_of,
    pool_view::{PoolView, WorkItem},
    recent_preemptions,
};

/// Maximum number of pairs of work and node examined per response. Further vacates find no
/// beneficiary.
const MAX_PAIRS: usize = 1_000_000;

/// Work with missing processes for which no space has been freed.
pub(super) struct MissingWork<'a> {
    pub work: &'a WorkId,
    demand: &'a Demand,
    class: &'a Class,
    /// Quanta of one process.
    quanta: u64,
    /// Resources of one process.
    size: Size,
    /// Number of missing processes for which no space has been freed.
    processes: u64,
}

/// Space on a node with vacate candidates: allocations that the response wants to vacate.
pub(super) struct CandidateNode<'a> {
    pub name: &'a NodeName,
    node: &'a Node,
    /// Free space, as if the forced vacates had left.
    pub free: NodeSpace,
    /// Free space after all candidates of this response have left.
    pub max_free: NodeSpace,
}

/// All work that could benefit from vacates, the oldest first.
pub(super) struct WaitingWork<'a> {
    entries: Vec<MissingWork<'a>>,
    /// Work and node of each process in an anti-affinity group, by group.
    groups: BTreeMap<&'a WorkId, Vec<(WorkId, NodeName)>>,
    /// Number of pairs of work and node examined so far.
    checks: usize,
}

impl<'a> WaitingWork<'a> {
    /// Lists the waiting work. Work that loses processes in the same response is excluded, because
    /// that would be a pointless exchange.
    pub fn new(
        view: &PoolView<'a>,
        preempted_work: &BTreeSet<&WorkId>,
        grants: &[AcceptedGrant],
    ) -> Self {
        let mut granted_processes: BTreeMap<&WorkId, u64> = BTreeMap::new();
        for accepted in grants {
            *granted_processes.entry(&accepted.grant.work).or_default() += 1;
        }
        let to_missing_work = |(work, item): (&&'a WorkId, &WorkItem<'a>)| {
            let granted_processes = granted_processes.get(work).copied().unwrap_or(0);
            let freed = recent_preemptions::pending_grants(&view.preemptions, work)
                .saturating_sub(granted_processes);
            let processes = item.missing().saturating_sub(freed);
            let is_missing = processes > 0 && !preempted_work.contains(work);
            is_missing.then_some(MissingWork {
                work,
                demand: item.demand,
                class: item.class,
                quanta: item.quanta,
                size: item.size.clone(),
                processes,
            })
        };
        let mut entries: Vec<MissingWork> = view.work.iter().filter_map(to_missing_work).collect();
        entries.sort_by_key(|it| (it.demand.submitted_at, it.work));
        let staying = view
            .allocations
            .values()
            .filter(|it| !it.leaving && !it.purged);
        let staying = staying.map(|it| (&it.work, &it.node));
        let granted = grants.iter().map(|it| (&it.grant.work, &it.grant.node));
        let mut groups: BTreeMap<&WorkId, Vec<(WorkId, NodeName)>> = BTreeMap::new();
        for (work, node) in staying.chain(granted) {
            let item = view.work.get(work);
            if let Some(anti_affinity) = item.and_then(|item| item.demand.anti_affinity.as_ref()) {
                let members = groups.entry(&anti_affinity.group).or_default();
                members.push((work.clone(), node.clone()));
            }
        }
        Self {
            entries,
            groups,
            checks: 0,
        }
    }

    /// Returns the oldest work from index `start` on that could run a process on the node after all
    /// candidates have left. Also returns the quanta and the size of that process.
    pub fn next_beneficiary(
        &mut self,
        view: &PoolView,
        candidate: &CandidateNode,
        start: usize,
    ) -> Option<(usize, u64, Size)> {
        for index in start..self.entries.len() {
            if self.checks >= MAX_PAIRS {
                return None;
            }
            self.checks += 1;
            let missing = &self.entries[index];
            if missing.processes == 0 || !self.is_allowed(view, missing, candidate) {
                continue;
            }
            let (quanta, size) = process_size(view, missing, candidate.node);
            if candidate.max_free.count_fitting(quanta, &size) > 0 {
                return Some((index, quanta, size));
            }
        }
        None
    }

    /// Counts one missing process of the work as served.
    pub fn serve(&mut self, index: usize) -> &MissingWork<'a> {
        let missing = &mut self.entries[index];
        missing.processes = missing.processes.saturating_sub(1);
        missing
    }

    /// Returns true if `check` would allow the work on the node, apart from free space.
    fn is_allowed(
        &self,
        view: &PoolView,
        missing: &MissingWork,
        candidate: &CandidateNode,
    ) -> bool {
        let demand = missing.demand;
        let listed = &demand.node_list;
        view.may_use_pool(missing.class, &candidate.node.pool)
            && (listed.is_empty() || listed.contains(candidate.name))
            && !demand.avoids.contains(candidate.name)
            && demand.size.fits(&candidate.node.capacity)
            && self.satisfies_anti_affinity(view, missing, candidate)
    }

    fn satisfies_anti_affinity(
        &self,
        view: &PoolView,
        missing: &MissingWork,
        candidate: &CandidateNode,
    ) -> bool {
        let Some(anti_affinity) = &missing.demand.anti_affinity else {
            return true;
        };
        let label = anti_affinity.by_label.as_ref();
        let value = |node: &Node| label.and_then(|label| node.labels.get(label)).cloned();
        let label_value = value(candidate.node);
        let conflicts = |name: &NodeName| {
            let other_value = view.snapshot.nodes.get(name).and_then(value);
            name == candidate.name || (label.is_some() && other_value == label_value)
        };
        let others = self.groups.get(&anti_affinity.group).into_iter().flatten();
        let mut others = others.filter(|(work, _)| work != missing.work);
        (label.is_none() || label_value.is_some()) && !others.any(|(_, node)| conflicts(node))
    }
}

/// Returns the quanta and the size of one process on this node. A reservation gets the whole node.
fn process_size(view: &PoolView, missing: &MissingWork, node: &Node) -> (u64, Size) {
    if missing.class.policy == Policy::Reserve {
        let node_quanta = view.quantum.quanta_of_node(&node.capacity);
        return (node_quanta, node.capacity.clone());
    }
    (missing.quanta, missing.size.clone())
}

impl CandidateNode<'_> {
    /// Adds the space of a victim to the free space.
    pub fn release(&mut self, allocation: &Allocation) {
        self.free
            .give(allocation.quanta, &allocation.size, &allocation.gpus);
    }

    /// Subtracts the space of an allocation that stays from the maximum free space.
    pub fn retain(&mut self, allocation: &Allocation) {
        self.max_free
            .take(allocation.quanta, &allocation.size, &allocation.gpus);
    }

    /// Removes the space of one served process.
    pub fn occupy(&mut self, quanta: u64, size: &Size) {
        let gpus = self.free.choose_gpus(size.gpu_milli);
        self.free.take(quanta, size, &gpus);
        self.max_free.take(quanta, size, &gpus);
    }
}

/// Returns the schedulable nodes of the vacate candidates, with their free space after the forced
/// vacates.
pub(super) fn candidate_nodes<'a>(
    view: &PoolView<'a>,
    vacate_candidates: &BTreeMap<&AllocationId, &'a NodeName>,
    forced: &BTreeSet<AllocationId>,
    plan: &Plan,
    grants: &[AcceptedGrant],
) -> BTreeMap<&'a NodeName, CandidateNode<'a>> {
    let candidate_names: BTreeSet<&NodeName> = vacate_candidates.values().copied().collect();
    let nodes = view
        .nodes()
        .filter(|(name, node)| candidate_names.contains(*name) && node.is_schedulable());
    let empty_candidate = |(name, node): (&'a NodeName, &'a Node)| {
        let node_quanta = quantum_of(view.snapshot, &node.pool).quanta_of_node(&node.capacity);
        let free = NodeSpace::new(node_quanta, &node.capacity);
        let max_free = free.clone();
        (
            name,
            CandidateNode {
                name,
                node,
                free,
                max_free,
            },
        )
    };
    let mut candidate_nodes: BTreeMap<_, _> = nodes.map(empty_candidate).collect();
    for (id, allocation) in &view.snapshot.allocations {
        let leaves = allocation.leaving || allocation.purged || forced.contains(id);
        if let Some(candidate) = candidate_nodes
            .get_mut(&allocation.node)
            .filter(|_| !leaves)
        {
            candidate
                .free
                .take(allocation.quanta, &allocation.size, &allocation.gpus);
            if !vacate_candidates.contains_key(id) {
                candidate.retain(allocation);
            }
        }
    }
    for grant in plan.grants.iter().chain(grants.iter().map(|it| &it.grant)) {
        if let Some(candidate) = candidate_nodes.get_mut(&grant.node) {
            candidate.free.take(grant.quanta, &grant.size, &grant.gpus);
            candidate
                .max_free
                .take(grant.quanta, &grant.size, &grant.gpus);
        }
    }
    candidate_nodes
}
