//! Adds, changes and removes allocations in the lists of their work and of their nodes.

use hayward_vocabulary::{AllocationId, UserName};

use super::{
    AllocationRecord, FleetIndex, apply_delta::DirtyRows, derive::set, lookup::OfAllocation,
};
use crate::{
    collections::id_list::IdList,
    ids::{AllocIx, NodeIx, UserIx, WorkIx},
    input::snapshot::Allocation,
};

impl FleetIndex {
    pub(super) fn set_allocation(&mut self, found: &OfAllocation, dirty: &mut DirtyRows) {
        let (id, Some(stated)) = (found.name, found.stated) else {
            return;
        };
        let work = self.find_work(&stated.work);
        let node = self.find_node(&stated.node);
        let user_at = self.user_index(&stated.user);
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
            // The search starts at the end, because most new allocations have the largest id.
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

    /// Removes ended allocations.
    pub(super) fn remove_allocations(&mut self, delta: &[OfAllocation], dirty: &mut DirtyRows) {
        let removed = delta.iter().filter(|entry| entry.stated.is_none());
        for allocation in removed.filter_map(|entry| entry.row) {
            self.unlink(allocation, dirty);
            set(&mut self.faulty, allocation, false);
            dirty.allocations.remove(allocation);
            self.free_allocations.push(allocation);
        }
    }

    /// Takes an allocation out of all lists.
    fn unlink(&mut self, allocation: AllocIx, dirty: &mut DirtyRows) {
        let AllocationRecord { work, node, .. } = self.allocations[allocation];
        self.remove_from_work(allocation, work, dirty);
        if let Some(node) = node {
            self.nodes[node].allocations.remove_item(allocation);
        }
        self.unload(allocation);
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
}

fn allocation_record(
    (id, (user_name, user)): (&AllocationId, (UserName, UserIx)),
    it: &Allocation,
    (work, node): (Option<WorkIx>, Option<NodeIx>),
) -> AllocationRecord {
    AllocationRecord {
        id: id.clone(),
        work_id: it.work.clone(),
        work,
        kind: it.kind,
        user_name,
        user,
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
