//! Adds, changes and removes allocations in the lists of their work and of their nodes.

use hayward_vocabulary::{AllocationId, UserName};

use super::{
    AllocationRecord, FleetIndex, apply_delta::DirtyRows, delta_lookup::AllocationEntry,
    derived_fields::set_membership, node_usage::AllocationUsage,
};
use crate::{
    collections::id_list::IdList,
    ids::{AllocIx, NodeIx, UserIx, WorkIx},
    input::snapshot::Allocation,
};

impl FleetIndex {
    /// Adds an allocation, or replaces the one of the same id. Does nothing if the allocation
    /// ended.
    pub(super) fn set_allocation(&mut self, entry: &AllocationEntry, dirty: &mut DirtyRows) {
        let (id, Some(value)) = (entry.name, entry.value) else {
            return;
        };
        let work = self.find_work(&value.work);
        let node = self.find_node(&value.node);
        let user = self.find_or_add_user(&value.user);
        let refs = AllocationRefs {
            user_name: self.user_names[user].clone(),
            user,
            work,
            node,
        };
        let mut record = new_allocation_record(id, value, refs);
        self.exclude_remnant(&mut record);
        let allocation = if let Some(allocation) = entry.row {
            self.unlink(allocation, dirty);
            self.allocations[allocation] = record;
            allocation
        } else if let Some(allocation) = self.free_allocation_rows.pop() {
            self.allocations[allocation] = record;
            allocation
        } else {
            self.allocations.push(record)
        };
        if entry.row.is_none() {
            self.allocation_by_name.insert(entry.hash, allocation);
        }
        if value.fixed {
            self.fixed.insert(allocation);
        }
        if value.leaving || value.purged {
            self.leaving.insert(allocation);
        }
        let allocations = &self.allocations;
        let insert_sorted = |list: &mut IdList<AllocIx>| {
            // The search starts at the end, because most new allocations have the largest id.
            let after = list.iter().rposition(|other| allocations[other].id < *id);
            list.insert(after.map_or(0, |after| after + 1), allocation);
        };
        match work {
            Some(work) => insert_sorted(&mut self.work[work].allocations),
            None => insert_sorted(
                self.allocations_without_demand
                    .entry(value.work.clone())
                    .or_default(),
            ),
        }
        if let Some(node) = node {
            insert_sorted(&mut self.nodes[node].allocations);
        }
        dirty.nodes_with_changed_usage.extend(node);
        dirty.work.extend(work);
        dirty.allocations.insert(allocation);
    }

    /// Removes ended allocations.
    pub(super) fn remove_allocations(
        &mut self,
        entries: &[AllocationEntry],
        dirty: &mut DirtyRows,
    ) {
        let removed = entries.iter().filter(|entry| entry.value.is_none());
        for allocation in removed.filter_map(|entry| entry.row) {
            self.unlink(allocation, dirty);
            set_membership(&mut self.faulty, allocation, false);
            dirty.allocations.remove(allocation);
            self.free_allocation_rows.push(allocation);
        }
    }

    /// Removes an allocation from all lists.
    fn unlink(&mut self, allocation: AllocIx, dirty: &mut DirtyRows) {
        let AllocationRecord { work, node, .. } = self.allocations[allocation];
        self.remove_from_work(allocation, work, dirty);
        if let Some(node) = node {
            self.nodes[node].allocations.remove_item(allocation);
        }
        self.remove_from_node_usage(allocation);
        dirty.nodes_with_changed_usage.extend(node);
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
            if let Some(list) = self.allocations_without_demand.get_mut(id) {
                list.remove_item(allocation);
                if list.is_empty() {
                    self.allocations_without_demand.remove(id);
                }
            }
        }
        for set in [
            &mut self.fixed,
            &mut self.leaving,
            &mut self.squatters,
            &mut self.orphans,
            &mut self.unplaced,
            &mut self.unclassed,
        ] {
            set_membership(set, allocation, false);
        }
    }
}

/// Rows that an allocation refers to.
struct AllocationRefs {
    user_name: UserName,
    user: UserIx,
    work: Option<WorkIx>,
    node: Option<NodeIx>,
}

fn new_allocation_record(
    id: &AllocationId,
    allocation: &Allocation,
    refs: AllocationRefs,
) -> AllocationRecord {
    let AllocationRefs {
        user_name,
        user,
        work,
        node,
    } = refs;
    AllocationRecord {
        id: id.clone(),
        work_id: allocation.work.clone(),
        work,
        kind: allocation.kind,
        user_name,
        user,
        class: if allocation.fixed {
            allocation.class.clone()
        } else {
            String::new()
        },
        node_name: allocation.node.clone(),
        node,
        quanta: allocation.quanta,
        size: allocation.size.clone(),
        gpus: allocation.gpus.clone(),
        fixed: allocation.fixed,
        running: allocation.running,
        granted_at: allocation.granted_at,
        started_at: allocation.started_at,
        running_since: allocation.running_since,
        investment_ms: allocation.investment_ms,
        item_ms: allocation.item_ms,
        leaving: allocation.leaving || allocation.purged,
        purged: allocation.purged,
        usage: AllocationUsage::default(),
    }
}
