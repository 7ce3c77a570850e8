//! Used and free space of each node.

use std::collections::BTreeSet;

use hayward_vocabulary::WorkId;

use super::{
    FleetIndex, NodeRecord, allocation_usage::NodeUsage, derive::set, node_space::NodeSpace,
};
use crate::ids::{AllocIx, NodeIx};

/// Space that was computed from each allocation, because the sum does not describe it.
pub(super) struct Counted {
    free: NodeSpace,
    /// Space once everything that leaves has left.
    future: NodeSpace,
}

struct NodeContents {
    /// True if the node takes work.
    open: bool,
    over: bool,
    free: NodeSpace,
    /// Space without fixed allocations.
    space: NodeSpace,
    future: NodeSpace,
    held_quanta: u64,
    services: BTreeSet<WorkId>,
}

impl NodeContents {
    fn new(index: &FleetIndex, node_record: &NodeRecord, taken: &NodeUsage) -> Self {
        let early = index.policy.tunables.settings.count_what_fits;
        let mut open = node_record.pool.is_some() && node_record.node.is_schedulable();
        let mut free = NodeSpace::new(node_record.quanta, &node_record.node.capacity);
        let mut space = free.clone();
        let mut services = BTreeSet::new();
        let mut future = free.clone();
        let (mut held_quanta, all) = taken.all.load();
        free.take(held_quanta, &all, &[]);
        let (mut quanta, mut size) = taken.staying().load();
        future.take(quanta, &size, &[]);
        let some = taken.others > 0;
        let others = some
            .then(|| node_record.allocations.iter())
            .into_iter()
            .flatten();
        let has_shape = |allocation: AllocIx| index.usage[allocation].shape().is_some();
        for allocation in others.filter(|allocation| !has_shape(*allocation)) {
            let record = &index.allocations[allocation];
            held_quanta = held_quanta.saturating_add(record.quanta);
            free.take(record.quanta, &record.size, &record.gpus);
            if record.fixed && !(record.leaving && early) {
                space.take(record.quanta, &record.size, &record.gpus);
            }
            if !record.leaving {
                future.take(record.quanta, &record.size, &record.gpus);
                quanta = quanta.saturating_add(record.quanta);
                size.add(&record.size);
            }
            let Some(work) = record.work else {
                continue;
            };
            services.extend(index.work[work].constraints().service.clone());
            // A fixed allocation whose work has no class, or may not be here any more, closes the
            // node until it ends.
            let misplaced = record.fixed
                && !index.work[work].is_instance()
                && node_record
                    .pool
                    .is_none_or(|pool| !index.may_use(work, pool));
            open &= index.work[work].class.is_some() && !misplaced;
        }
        Self {
            open,
            over: quanta > node_record.quanta || !size.fits(&node_record.node.capacity),
            free,
            space,
            future,
            held_quanta,
            services,
        }
    }

    /// Returns true if the change concerns only fields of this node, and no index over nodes.
    fn is_seen_here_alone(&self, node_record: &NodeRecord) -> bool {
        let (open, over) = (node_record.schedulable, node_record.is_overfull);
        (self.open, self.over) == (open, over) && self.space == node_record.space_without_fixed
    }

    fn write(self, node_record: &mut NodeRecord) {
        (node_record.space_without_fixed, node_record.services) = (self.space, self.services);
        node_record.is_overfull = self.over;
        node_record.held_quanta = self.held_quanta;
        let (free, future) = (self.free, self.future);
        node_record.counted = Some(Box::new(Counted { free, future }));
    }

    #[cfg(test)]
    fn assert_is(&self, node_record: &NodeRecord, taken: &NodeUsage) {
        assert!(self.is_seen_here_alone(node_record));
        assert_eq!(
            (&self.free, &self.future),
            (&node_record.free(taken), &node_record.coming(taken))
        );
        assert_eq!(self.held_quanta, node_record.held_quanta);
        assert_eq!(self.services, node_record.services);
    }
}

/// Returns true if the sum of the allocations describes the node, and no index over nodes changes.
fn is_simple_sum(node_record: &NodeRecord, taken: &NodeUsage) -> bool {
    taken.others == 0
        && has_simple_space(node_record)
        && node_record.is_overfull != taken.staying().fits(&node_record.space_without_fixed)
}

/// Returns true if the node has no GPUs, named resources or fixed allocations. Its allocations must
/// also not close it: it is closed only for a reason of its own.
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
    fn set_free(&self, taken: &NodeUsage, free: &mut NodeSpace) {
        match &self.counted {
            Some(counted) => free.set(&counted.free),
            None => taken.all.leave(&self.space_without_fixed, free),
        }
    }

    fn coming(&self, taken: &NodeUsage) -> NodeSpace {
        if let Some(counted) = &self.counted {
            return counted.future.clone();
        }
        let mut future = NodeSpace::default();
        taken
            .staying()
            .leave(&self.space_without_fixed, &mut future);
        future
    }

    #[cfg(test)]
    fn free(&self, taken: &NodeUsage) -> NodeSpace {
        let mut free = NodeSpace::default();
        self.set_free(taken, &mut free);
        free
    }
}

impl FleetIndex {
    /// Writes the free space of a node.
    pub fn set_free(&self, node: NodeIx, free: &mut NodeSpace) {
        self.nodes[node].set_free(&self.node_usage[node], free);
    }

    /// Returns the space of a node once everything that leaves has left.
    pub fn future_free(&self, node: NodeIx) -> NodeSpace {
        self.nodes[node].coming(&self.node_usage[node])
    }

    /// Returns the quanta of the future space.
    pub fn future_quanta(&self, node: NodeIx) -> u64 {
        let node_record = &self.nodes[node];
        let staying = || self.node_usage[node].staying().quanta();
        let counted = node_record
            .counted
            .as_ref()
            .map(|counted| counted.future.quanta);
        counted.unwrap_or_else(|| node_record.quanta.saturating_sub(staying()))
    }

    /// Updates the space of these nodes. Returns the nodes that opened or closed.
    pub(super) fn update_space(&mut self, nodes: &[NodeIx]) -> Vec<NodeIx> {
        let mut stations = std::mem::take(&mut self.nodes);
        let mut changed = Vec::new();
        for node in nodes.iter().copied() {
            let node_record = &mut stations[node];
            if is_simple_sum(node_record, &self.node_usage[node]) {
                node_record.held_quanta = self.node_usage[node].all.quanta();
                node_record.counted = None;
                #[cfg(test)]
                NodeContents::new(self, node_record, &self.node_usage[node])
                    .assert_is(node_record, &self.node_usage[node]);
                continue;
            }
            let contents = NodeContents::new(self, node_record, &self.node_usage[node]);
            if contents.is_seen_here_alone(node_record) {
                contents.write(node_record);
                continue;
            }
            changed.push((node, contents));
        }
        self.nodes = stations;
        let turned = changed.into_iter().filter_map(|(node, contents)| {
            let turned = self.set_contents(node, contents);
            turned.then_some(node)
        });
        turned.collect()
    }

    /// Returns true if the node opened or closed.
    fn set_contents(&mut self, node: NodeIx, contents: NodeContents) -> bool {
        set(&mut self.overfull, node, contents.over);
        let node_record = &self.nodes[node];
        let turned = node_record.schedulable != contents.open;
        let moved = turned || node_record.space_without_fixed != contents.space;
        if moved {
            self.forget_kind(node);
            self.open_for(node, contents.open);
        }
        let (node_record, open) = (&mut self.nodes[node], contents.open);
        contents.write(node_record);
        if let Some(pool) = node_record.pool.filter(|_| open && moved) {
            *self
                .node_kinds
                .entry((pool, node_record.space_without_fixed.clone()))
                .or_default() += 1;
            self.node_kinds_changed = true;
        }
        turned
    }
}
