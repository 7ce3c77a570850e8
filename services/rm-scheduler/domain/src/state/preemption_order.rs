//! The order in which allocations are preempted.

use std::cmp::Reverse;

use super::RoundState;
use crate::ids::AllocIx;

/// Returns the sort key of an allocation. The allocation that costs least to lose comes first. With
/// the setting `squatters_go_home`, squatters come before all other allocations.
pub(crate) fn preemption_key<'b>(state: &'b RoundState, allocation: AllocIx) -> impl Ord + use<'b> {
    let record = &state.allocations[allocation];
    let node_state = record.node.map(|node| &state.nodes[node]);
    let pool = node_state.and_then(|node_state| node_state.pool);
    let home = record.work.and_then(|work| state.home(work));
    let memory = record
        .node
        .map_or(0, |node| state.node_record(node).node.capacity.memory_bytes);
    (
        state.settings.squatters_go_home && pool == home,
        record.running,
        state.invested_ms(allocation),
        Reverse(pool.map_or(0, |pool| state.forest.depth(pool))),
        // Nodes of equal quanta may differ in memory.
        Reverse((node_state.map_or(0, |node_state| node_state.quanta), memory)),
        Reverse(record.granted_at),
        Reverse(&record.id),
    )
}
