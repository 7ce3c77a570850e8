//! Invariants of nodes: no node is over-committed, and a blocked node gets no new allocation.

use std::collections::BTreeMap;

use hayward_vocabulary::invariant_finding::{Evidence, Finding, Inquiry, Rule};
use hayward_vocabulary::{AllocationId, NodeName, Size};

use super::Sequence;
use crate::{
    check::{node_load::NodeLoad, quantum_of, totals::held_size},
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

/// An allocation that was granted after the last capacity change of its node.
struct LateGrant<'a> {
    id: &'a AllocationId,
    size: Size,
    gpus: &'a [u64],
}

/// Checks that no node has granted more than its capacity (I2). A node may be overfull because it
/// shrank. That is a violation only if a later grant uses an exceeded dimension.
pub fn check_over_commit(snapshot: &Snapshot, sequence: &Sequence) -> Finding {
    let mut loads: BTreeMap<&NodeName, (NodeLoad, Vec<LateGrant>)> = BTreeMap::new();
    for (id, allocation) in &snapshot.allocations {
        let (load, late_grants) = loads.entry(&allocation.node).or_default();
        let size = held_size(snapshot, allocation);
        load.add(allocation.quanta, &size, &allocation.gpus);
        if sequence.is_after_resize(id, &allocation.node) {
            let gpus = &allocation.gpus;
            late_grants.push(LateGrant { id, size, gpus });
        }
    }
    let mut inquiry = Inquiry::new(OVER_COMMIT);
    for (name, node) in &snapshot.nodes {
        let Some((load, late_grants)) = loads.get(name) else {
            inquiry.examine(None);
            continue;
        };
        let capacity = quantum_of(snapshot, &node.pool).quanta_of_node(&node.capacity);
        let exceeds = |grant: &&LateGrant| {
            load.quanta > capacity
                || !load.is_within(&node.capacity, &grant.size)
                || !load.gpus_are_within(&node.capacity, grant.gpus)
        };
        let fault = late_grants.iter().rfind(exceeds).map(|grant| {
            let detail = format!(
                "{} of {capacity} quanta are given out, or another resource twice; {} was \
                 granted since the node has what it has",
                load.quanta, grant.id
            );
            Evidence::new(name, detail)
                .with_number("held_quanta", load.quanta)
                .with_number("quanta", capacity)
                .with_number("held_memory_bytes", load.size.memory_bytes)
                .with_number("memory_bytes", node.capacity.memory_bytes)
        });
        inquiry.examine(fault);
    }
    inquiry.finish()
}

/// Checks that a blocked node gets no new allocation (I16). A node on trial is not blocked.
pub fn check_blocked_nodes(snapshot: &Snapshot, sequence: &Sequence) -> Finding {
    let mut inquiry = Inquiry::new(BLOCKED);
    for (id, allocation) in &snapshot.allocations {
        let node = snapshot.nodes.get(&allocation.node);
        let Some(block) = node.and_then(|node| node.block.as_ref()) else {
            continue;
        };
        let is_late = sequence.is_after_block(id, &allocation.node);
        inquiry.examine(is_late.then(|| {
            let (node, work) = (&allocation.node, &allocation.work);
            let detail = format!(
                "was granted to {work} on {node} after it was blocked: {}",
                block.reason
            );
            Evidence::new(id, detail).with_number("order", allocation.quanta)
        }));
    }
    inquiry.finish()
}
