//! Allocations come, change and end: in the lists of their work and of their nodes.

use std::sync::Arc;

use hayward_vocabulary::{AllocationId, UserName};

use super::{
    AllocationRecord, AllocationUsage, FleetIndex, NodeRecord, Shape, allocation_usage::NodeUsage,
    apply_delta::DirtyRows, derive::set, lookup::OfAllocation,
};
use crate::{
    collections::id_list::IdList,
    ids::{AllocIx, Ix, NodeIx, TypedVec, WorkIx},
    incremental::{join::join, prefetch::fetch_rows},
    input::snapshot::Allocation,
};

impl FleetIndex {
    pub(super) fn set_allocation(&mut self, found: &OfAllocation, dirty: &mut DirtyRows) {
        let (id, Some(stated)) = (found.name, found.stated) else {
            return;
        };
        let work = self.find_work(&stated.work);
        let node = self.find_node(&stated.node);
        let user_at = self.user_number(&stated.user);
        let user = (self.user_names[user_at].clone(), user_at);
        let mut entry = allocation_record((id, user), stated, (work, node));
        self.leave_remnant(&mut entry);
        let allocation = if let Some(allocation) = found.row {
            self.unlink(allocation, dirty);
            self.allocations[allocation] = entry;
            allocation
        } else if let Some(allocation) = self.free_allocations.pop() {
            self.allocations[allocation] = entry;
            allocation
        } else {
            self.allocations.push(entry)
        };
        if found.row.is_none() {
            self.allocation_by_name.insert(found.hash, allocation);
        }
        if stated.fixed {
            self.fixed.insert(allocation);
        }
        if stated.leaving || stated.purged {
            self.leaving.insert(allocation);
        }
        let allocations = &self.allocations;
        let link = |list: &mut IdList<AllocIx>| {
            // Most new allocations have the largest id.
            let after = list.iter().rposition(|other| allocations[other].id < *id);
            list.insert(after.map_or(0, |after| after + 1), allocation);
        };
        match work {
            Some(work) => link(&mut self.work[work].allocations),
            None => link(self.without_demand.entry(stated.work.clone()).or_default()),
        }
        if let Some(node) = node {
            link(&mut self.nodes[node].allocations);
        }
        dirty.nodes_by_load.extend(node);
        dirty.work.extend(work);
        dirty.allocations.insert(allocation);
    }

    /// Removes ended allocations. The lists of nodes are updated in parallel with `then`, which
    /// does not read nodes.
    pub(super) fn remove_allocations(
        &mut self,
        delta: &[OfAllocation],
        dirty: &mut DirtyRows,
        then: impl FnOnce(&mut Self, &mut DirtyRows),
    ) {
        let stated = delta.iter().filter(|it| it.stated.is_none());
        let mut gone: Vec<RemovedAllocation> = Vec::with_capacity(delta.len());
        gone.extend(stated.filter_map(|it| self.removed(it)));
        let (mut nodes, shapes) = (self.lend_nodes(), Arc::clone(&self.shapes));
        let off_work = || {
            let work = || gone.iter().filter_map(RemovedAllocation::work);
            fetch_rows(work().map(|work| self.work[work].allocations.len()));
            fetch_first(work().map(|work| &self.work[work].allocations));
            for it in &gone {
                let allocation = it.allocation();
                self.remove_from_work(allocation, it.work(), dirty);
                set(&mut self.faulty, allocation, false);
                dirty.allocations.remove(allocation);
                self.free_allocations.push(allocation);
            }
            then(self, dirty);
        };
        let off_nodes = || {
            nodes.fetch(&gone);
            for it in &gone {
                nodes.remove_allocation(it.allocation(), it.node(), &shapes);
            }
        };
        join(gone.len(), off_work, off_nodes);
        self.return_nodes(nodes);
        let machines = gone.iter().filter_map(RemovedAllocation::node);
        dirty.nodes_by_load.extend(machines);
    }

    /// An ended allocation, from its compact row, which still names the work it had before this
    /// delta.
    fn removed(&self, entry: &OfAllocation) -> Option<RemovedAllocation> {
        let allocation = entry.row?;
        let load = &self.usage[allocation];
        let node = load.node().or_else(|| self.allocations[allocation].node);
        Some(RemovedAllocation {
            allocation,
            work: load.work(),
            node,
        })
    }

    /// Takes an allocation out of all lists.
    fn unlink(&mut self, allocation: AllocIx, dirty: &mut DirtyRows) {
        let AllocationRecord { work, node, .. } = self.allocations[allocation];
        self.remove_from_work(allocation, work, dirty);
        let (mut nodes, shapes) = (self.lend_nodes(), Arc::clone(&self.shapes));
        nodes.remove_allocation(allocation, node, &shapes);
        self.return_nodes(nodes);
        dirty.nodes_by_load.extend(node);
    }

    fn remove_from_work(
        &mut self,
        allocation: AllocIx,
        work: Option<WorkIx>,
        dirty: &mut DirtyRows,
    ) {
        if let Some(work) = work {
            self.work[work].allocations.remove_item(allocation);
            dirty.work.insert(work);
        } else {
            let id = &self.allocations[allocation].work_id;
            if let Some(list) = self.without_demand.get_mut(id) {
                list.remove_item(allocation);
                if list.is_empty() {
                    self.without_demand.remove(id);
                }
            }
        }
        for among in [
            &mut self.fixed,
            &mut self.leaving,
            &mut self.squatters,
            &mut self.orphans,
            &mut self.unplaced,
            &mut self.unclassed,
        ] {
            set(among, allocation, false);
        }
    }

    fn lend_nodes(&mut self) -> NodeLists {
        NodeLists {
            rows: std::mem::take(&mut self.nodes),
            usage: std::mem::take(&mut self.usage),
            node_usage: std::mem::take(&mut self.node_usage),
        }
    }

    fn return_nodes(&mut self, nodes: NodeLists) {
        (self.nodes, self.usage, self.node_usage) = (nodes.rows, nodes.usage, nodes.node_usage);
    }
}

/// An ended allocation, with its work and its node.
struct RemovedAllocation {
    allocation: AllocIx,
    work: Option<WorkIx>,
    node: Option<NodeIx>,
}

impl RemovedAllocation {
    fn allocation(&self) -> AllocIx {
        self.allocation
    }

    fn work(&self) -> Option<WorkIx> {
        self.work
    }

    fn node(&self) -> Option<NodeIx> {
        self.node
    }
}

/// Rows and sums of nodes, while they are updated in parallel with the rest.
struct NodeLists {
    rows: TypedVec<NodeIx, NodeRecord>,
    usage: TypedVec<AllocIx, AllocationUsage>,
    node_usage: TypedVec<NodeIx, NodeUsage>,
}

impl NodeLists {
    /// Prefetches the lists that change.
    fn fetch(&self, gone: &[RemovedAllocation]) {
        let nodes = || gone.iter().filter_map(RemovedAllocation::node);
        fetch_rows(nodes().map(|node| self.rows[node].allocations.len()));
        fetch_rows(nodes().map(|node| self.node_usage[node].others));
        fetch_first(nodes().map(|node| &self.rows[node].allocations));
    }

    /// Takes an allocation out of the list of this node and out of the sums that include it.
    fn remove_allocation(&mut self, allocation: AllocIx, node: Option<NodeIx>, shapes: &[Shape]) {
        if let Some(node) = node {
            self.rows[node].allocations.remove_item(allocation);
        }
        if let Some(load) = self.usage.get_mut(allocation) {
            load.leave(&mut self.node_usage, shapes);
        }
    }
}

fn fetch_first<'l>(lists: impl Iterator<Item = &'l IdList<AllocIx>>) {
    fetch_rows(lists.filter_map(IdList::first).map(Ix::index));
}

fn allocation_record(
    (id, (user, user_at)): (&AllocationId, (UserName, usize)),
    it: &Allocation,
    (work, node): (Option<WorkIx>, Option<NodeIx>),
) -> AllocationRecord {
    AllocationRecord {
        id: id.clone(),
        work_id: it.work.clone(),
        work,
        kind: it.kind,
        user_name: user,
        user: user_at,
        class: if it.fixed {
            it.class.clone()
        } else {
            String::new()
        },
        node_name: it.node.clone(),
        node,
        quanta: it.order,
        size: it.size.clone(),
        gpus: it.gpus.clone(),
        fixed: it.fixed,
        running: it.running,
        granted_at: it.granted_at,
        started_at: it.started_at,
        running_since: it.running_since,
        investment_ms: it.investment_ms,
        item_ms: it.item_ms,
        leaving: it.leaving || it.purged,
        purged: it.purged,
    }
}
