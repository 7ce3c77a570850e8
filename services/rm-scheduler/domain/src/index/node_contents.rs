//! Space that the allocations of each node use, and space that is free. Updates the node rows after
//! allocations changed.

use std::collections::BTreeSet;

use hayward_vocabulary::WorkId;

use super::{
    FleetIndex, NodeRecord, derived_fields::set_membership, node_space::NodeSpace,
    node_usage::NodeUsage,
};
use crate::ids::{AllocIx, NodeIx};

/// Space that was computed allocation by allocation. It is needed if the sums over the allocations
/// do not suffice, for example on nodes with GPUs.
pub(super) struct ComputedSpace {
    free: NodeSpace,
    /// Free space once everything that leaves has left.
    future: NodeSpace,
}

/// Space of a node and properties that follow from its allocations.
struct NodeContents {
    /// True if the node takes work.
    schedulable: bool,
    is_overfull: bool,
    free: NodeSpace,
    /// Capacity minus the fixed allocations.
    space_without_fixed: NodeSpace,
    /// Free space once everything that leaves has left.
    future: NodeSpace,
    /// Quanta of all allocations on the node.
    held_quanta: u64,
    /// Services with an instance on the node.
    services: BTreeSet<WorkId>,
}

impl NodeContents {
    fn new(index: &FleetIndex, node_record: &NodeRecord, usage: &NodeUsage) -> Self {
        let ignores_leaving = index.policy.tunables.settings.count_what_fits;
        let mut schedulable = node_record.pool.is_some() && node_record.node.is_schedulable();
        let mut free = NodeSpace::new(node_record.quanta, &node_record.node.capacity);
        let mut space_without_fixed = free.clone();
        let mut services = BTreeSet::new();
        let mut future = free.clone();
        let (mut held_quanta, all) = usage.all.quanta_and_size();
        free.take(held_quanta, &all, &[]);
        let (mut staying_quanta, mut staying_size) = usage.staying().quanta_and_size();
        future.take(staying_quanta, &staying_size, &[]);
        // The sums cover only allocations with a shape. All others are added one by one.
        let has_unshaped = usage.without_shape > 0;
        let without_shape = has_unshaped
            .then(|| node_record.allocations.iter())
            .into_iter()
            .flatten();
        let has_shape = |allocation: AllocIx| index.allocations[allocation].has_shape();
        for allocation in without_shape.filter(|allocation| !has_shape(*allocation)) {
            let record = &index.allocations[allocation];
            held_quanta = held_quanta.saturating_add(record.quanta);
            free.take(record.quanta, &record.size, &record.gpus);
            if record.fixed && !(record.leaving && ignores_leaving) {
                space_without_fixed.take(record.quanta, &record.size, &record.gpus);
            }
            if !record.leaving {
                future.take(record.quanta, &record.size, &record.gpus);
                staying_quanta = staying_quanta.saturating_add(record.quanta);
                staying_size.add(&record.size);
            }
            let Some(work) = record.work else {
                continue;
            };
            services.extend(index.work[work].constraints().service.clone());
            // A fixed allocation closes the node until it ends, if its work has no class or may no
            // longer use the node.
            let misplaced = record.fixed
                && !index.work[work].is_instance()
                && node_record
                    .pool
                    .is_none_or(|pool| !index.may_use(work, pool));
            schedulable &= index.work[work].class.is_some() && !misplaced;
        }
        Self {
            schedulable,
            is_overfull: staying_quanta > node_record.quanta
                || !staying_size.fits(&node_record.node.capacity),
            free,
            space_without_fixed,
            future,
            held_quanta,
            services,
        }
    }

    /// Returns true if only fields of this node change, and no set or count over several nodes.
    fn changes_only_node(&self, node_record: &NodeRecord) -> bool {
        let (schedulable, is_overfull) = (node_record.schedulable, node_record.is_overfull);
        (self.schedulable, self.is_overfull) == (schedulable, is_overfull)
            && self.space_without_fixed == node_record.space_without_fixed
    }

    fn write_to(self, node_record: &mut NodeRecord) {
        (node_record.space_without_fixed, node_record.services) =
            (self.space_without_fixed, self.services);
        node_record.is_overfull = self.is_overfull;
        node_record.held_quanta = self.held_quanta;
        let (free, future) = (self.free, self.future);
        node_record.computed_space = Some(Box::new(ComputedSpace { free, future }));
    }

    #[cfg(test)]
    fn assert_matches(&self, node_record: &NodeRecord, usage: &NodeUsage) {
        assert!(self.changes_only_node(node_record));
        assert_eq!(
            (&self.free, &self.future),
            (&node_record.free(usage), &node_record.future_space(usage))
        );
        assert_eq!(self.held_quanta, node_record.held_quanta);
        assert_eq!(self.services, node_record.services);
    }
}

/// Returns true if the sums over the allocations suffice for the space of the node, and no set or
/// count over several nodes changes.
fn is_simple_sum(node_record: &NodeRecord, usage: &NodeUsage) -> bool {
    usage.without_shape == 0
        && has_simple_space(node_record)
        && node_record.is_overfull != usage.staying().fits(&node_record.space_without_fixed)
}

/// Returns true if the node has no GPUs, named resources or fixed allocations, and no allocation
/// closes it.
fn has_simple_space(node_record: &NodeRecord) -> bool {
    let capacity = &node_record.node.capacity;
    capacity.gpu_milli == 0
        && capacity.extras.is_empty()
        && node_record.schedulable
            == (node_record.pool.is_some() && node_record.node.is_schedulable())
        && node_record.space_without_fixed.quanta == node_record.quanta
        && node_record.space_without_fixed.size == *capacity
        && node_record.services.is_empty()
}

impl NodeRecord {
    fn write_free_space(&self, usage: &NodeUsage, free: &mut NodeSpace) {
        match &self.computed_space {
            Some(computed_space) => free.copy_from(&computed_space.free),
            None => usage.all.write_free_space(&self.space_without_fixed, free),
        }
    }

    fn future_space(&self, usage: &NodeUsage) -> NodeSpace {
        if let Some(computed_space) = &self.computed_space {
            return computed_space.future.clone();
        }
        let mut future = NodeSpace::default();
        usage
            .staying()
            .write_free_space(&self.space_without_fixed, &mut future);
        future
    }

    #[cfg(test)]
    fn free(&self, usage: &NodeUsage) -> NodeSpace {
        let mut free = NodeSpace::default();
        self.write_free_space(usage, &mut free);
        free
    }
}

impl FleetIndex {
    /// Writes the free space of a node to `free`.
    pub fn write_free_space(&self, node: NodeIx, free: &mut NodeSpace) {
        self.nodes[node].write_free_space(&self.node_usage[node], free);
    }

    /// Returns the space of a node once everything that leaves has left.
    pub fn future_free(&self, node: NodeIx) -> NodeSpace {
        self.nodes[node].future_space(&self.node_usage[node])
    }

    /// Returns the quanta of the future space.
    pub fn future_quanta(&self, node: NodeIx) -> u64 {
        let node_record = &self.nodes[node];
        let staying = || self.node_usage[node].staying().quanta();
        let computed_quanta = node_record
            .computed_space
            .as_ref()
            .map(|computed_space| computed_space.future.quanta);
        computed_quanta.unwrap_or_else(|| node_record.quanta.saturating_sub(staying()))
    }

    /// Updates the space of these nodes. Returns the nodes that opened or closed.
    pub(super) fn update_space(&mut self, nodes: &[NodeIx]) -> Vec<NodeIx> {
        let mut node_records = std::mem::take(&mut self.nodes);
        let mut changed = Vec::new();
        for node in nodes.iter().copied() {
            let node_record = &mut node_records[node];
            if is_simple_sum(node_record, &self.node_usage[node]) {
                node_record.held_quanta = self.node_usage[node].all.quanta();
                node_record.computed_space = None;
                #[cfg(test)]
                NodeContents::new(self, node_record, &self.node_usage[node])
                    .assert_matches(node_record, &self.node_usage[node]);
                continue;
            }
            let contents = NodeContents::new(self, node_record, &self.node_usage[node]);
            if contents.changes_only_node(node_record) {
                contents.write_to(node_record);
                continue;
            }
            changed.push((node, contents));
        }
        self.nodes = node_records;
        let opened_or_closed = changed.into_iter().filter_map(|(node, contents)| {
            let opened_or_closed = self.set_contents(node, contents);
            opened_or_closed.then_some(node)
        });
        opened_or_closed.collect()
    }

    /// Stores the contents of a node. Returns true if the node opened or closed.
    fn set_contents(&mut self, node: NodeIx, contents: NodeContents) -> bool {
        set_membership(&mut self.overfull, node, contents.is_overfull);
        let node_record = &self.nodes[node];
        let opened_or_closed = node_record.schedulable != contents.schedulable;
        let changes_kind =
            opened_or_closed || node_record.space_without_fixed != contents.space_without_fixed;
        if changes_kind {
            self.remove_node_kind(node);
            self.set_schedulable(node, contents.schedulable);
        }
        let (node_record, schedulable) = (&mut self.nodes[node], contents.schedulable);
        contents.write_to(node_record);
        if let Some(pool) = node_record.pool.filter(|_| schedulable && changes_kind) {
            *self
                .node_kinds
                .entry((pool, node_record.space_without_fixed.clone()))
                .or_default() += 1;
            self.node_kinds_changed = true;
        }
        opened_or_closed
    }
}
