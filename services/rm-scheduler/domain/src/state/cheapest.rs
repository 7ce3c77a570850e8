//! The order in which allocations are preempted.

use std::cmp::Reverse;

use super::RoundState;
use crate::ids::AllocIx;

/// Sort key of preemption: the allocation that costs least to lose comes first. With
/// `squatters_go_home`, squatters come before all others.
pub(crate) fn cheapest<'b>(state: &'b RoundState, held: AllocIx) -> impl Ord + use<'b> {
    let record = &state.allocations[held];
    let allocation = record;
    let node = record.node.map(|node| &state.nodes[node]);
    let pool = node.and_then(|node| node.pool);
    let home = record.work.and_then(|work| state.home(work));
    let memory = record
        .node
        .map_or(0, |at| state.node_record(at).node.capacity.memory_bytes);
    (
        state.settings.squatters_go_home && pool == home,
        allocation.running,
        state.invested_ms(held),
        Reverse(pool.map_or(0, |pool| state.forest.depth(pool))),
        // Nodes of equal quanta may differ in memory.
        Reverse((node.map_or(0, |m| m.quanta), memory)),
        Reverse(allocation.granted_at),
        Reverse(&record.id),
    )
}
