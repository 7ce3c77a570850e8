//! Whole nodes: the nodes that a piece of work accepts, and the nodes that are reserved.

use hayward_vocabulary::{Size, WorkKind};

use super::RoundState;
use crate::ids::{NodeIx, WorkIx};

/// Returns the quanta that a node must have for this work. `reserve_overage_bytes` limits how much
/// larger than the demand a node can be. If it is not set, any larger node is acceptable.
pub(crate) fn acceptable_quanta(state: &RoundState, work: WorkIx) -> std::ops::RangeInclusive<u64> {
    let work_state = &state.work[work];
    let requested = state.requested_size(work);
    let min = if *requested == Size::default() {
        1
    } else {
        work_state.process_quanta
    };
    if work_state.has_reserved_node && state.snapshot.tunables.reserve_overage_bytes.is_some() {
        return work_state.process_quanta..=work_state.process_quanta;
    }
    let max = match state.snapshot.tunables.reserve_overage_bytes {
        None => u64::MAX,
        Some(_) if state.work_record(work).kind != WorkKind::Reservation => min,
        Some(_) if *requested == Size::default() => u64::MAX,
        Some(overage) => {
            let mut larger = requested.clone();
            larger.memory_bytes = larger.memory_bytes.saturating_add(overage);
            let quantum = state.index.quantum(state.home(work));
            quantum.quanta_of_work(&larger)
        }
    };
    min..=max
}

/// Returns true if the size is acceptable and the node is listed. The state of the node is ignored.
pub(crate) fn accepts_node(state: &RoundState, work: WorkIx, node: NodeIx) -> bool {
    let node_record = state.node_record(node);
    acceptable_quanta(state, work).contains(&node_record.quanta)
        && state.requested_size(work).fits(&node_record.node.capacity)
        && state.admits(work, node)
}

/// Returns true if this whole node is reserved.
pub(crate) fn is_whole_node_reserved(state: &RoundState, node: NodeIx) -> bool {
    !state.whole_nodes.is_empty() && state.nodes[node].whole_node_for.is_some()
}
