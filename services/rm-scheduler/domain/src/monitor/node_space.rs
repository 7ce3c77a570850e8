//! Allocations on nodes: no node is over-committed, and a blocked node gets no new allocation.

use std::collections::BTreeMap;

use hayward_vocabulary::invariant::{Evidence, Finding, Inquiry, Rule};
use hayward_vocabulary::{AllocationId, NodeName, Size};

use super::Sequence;
use crate::{
    check::{node_load::NodeLoad, quantum_of, totals::held_of},
    input::snapshot::Snapshot,
};

pub const OVER_COMMIT: Rule = Rule {
    id: "I2",
    title: "no node has given out more than it has",
};
pub const BLOCKED: Rule = Rule {
    id: "I16",
    title: "nothing new lands on a blocked node",
};

/// An allocation granted after the last capacity change of its node, with its size and GPUs.
type Late<'a> = (&'a AllocationId, Size, &'a [u64]);

/// Checks that no node has granted more than its capacity (I2). A node that shrank may be overfull,
/// unless a later grant on it uses an exceeded dimension.
pub fn no_over_commit(snapshot: &Snapshot, sequence: &Sequence) -> Finding {
    let mut loads: BTreeMap<&NodeName, (NodeLoad, Vec<Late>)> = BTreeMap::new();
    for (id, allocation) in &snapshot.allocations {
        let (load, late) = loads.entry(&allocation.node).or_default();
        let size = held_of(snapshot, allocation);
        load.add(allocation.order, &size, &allocation.gpus);
        if sequence.after_size(id, &allocation.node) {
            late.push((id, size, &allocation.gpus));
        }
    }
    let mut inquiry = Inquiry::new(OVER_COMMIT);
    for (name, node) in &snapshot.nodes {
        let Some((load, late)) = loads.get(name) else {
            inquiry.examine(None);
            continue;
        };
        let has = quantum_of(snapshot, &node.pool).node_order(&node.capacity);
        let over = |(_, size, gpus): &&Late| {
            let takes = load.is_within(&node.capacity, size);
            load.order > has || !takes || !load.gpus_suffice(&node.capacity, gpus)
        };
        let fault = late.iter().rfind(over).map(|(late, ..)| {
            let detail = format!(
                "{} of {has} quanta are given out, or another resource twice; {late} was granted \
                 since the node has what it has",
                load.order
            );
            Evidence::new(name, detail)
                .with_number("held_quanta", load.order)
                .with_number("quanta", has)
                .with_number("held_memory_bytes", load.size.memory_bytes)
                .with_number("memory_bytes", node.capacity.memory_bytes)
        });
        inquiry.examine(fault);
    }
    inquiry.finish()
}

/// Checks that a blocked node gets no new allocation (I16). A node on trial is not blocked.
pub fn blocked_means_blocked(snapshot: &Snapshot, sequence: &Sequence) -> Finding {
    let mut inquiry = Inquiry::new(BLOCKED);
    for (id, allocation) in &snapshot.allocations {
        let node = snapshot.nodes.get(&allocation.node);
        let Some(block) = node.and_then(|node| node.block.as_ref()) else {
            continue;
        };
        let late = sequence.after_block(id, &allocation.node);
        inquiry.examine(late.then(|| {
            let (node, work) = (&allocation.node, &allocation.work);
            let detail = format!(
                "was granted to {work} on {node} after it was blocked: {}",
                block.reason
            );
            Evidence::new(id, detail).with_number("order", allocation.order)
        }));
    }
    inquiry.finish()
}
