//! Whole nodes: the nodes that a piece of work accepts, and the nodes that are reserved.

use hayward_vocabulary::{Size, WorkKind};

use super::RoundState;
use crate::ids::{NodeIx, WorkIx};

/// Returns the acceptable quanta of a node. Without a configured overage, any larger node is
/// acceptable.
pub(crate) fn acceptable(state: &RoundState, work: WorkIx) -> std::ops::RangeInclusive<u64> {
    let work_state = &state.work[work];
    let work_record = state.requested_size(work);
    let least = if *work_record == Size::default() {
        1
    } else {
        work_state.process_quanta
    };
    if work_state.upgraded && state.snapshot.tunables.reserve_overage_bytes.is_some() {
        return work_state.process_quanta..=work_state.process_quanta;
    }
    let most = match state.snapshot.tunables.reserve_overage_bytes {
        None => u64::MAX,
        Some(_) if state.work_record(work).kind != WorkKind::Reservation => least,
        Some(_) if *work_record == Size::default() => u64::MAX,
        Some(overage) => {
            let mut larger = work_record.clone();
            larger.memory_bytes = larger.memory_bytes.saturating_add(overage);
            let quantum = state.index.quantum(state.home(work));
            quantum.work_order(&larger)
        }
    };
    least..=most
}

/// Returns true if the size is acceptable and the node is listed. The state of the node is ignored.
pub(crate) fn accepts(state: &RoundState, work: WorkIx, node: NodeIx) -> bool {
    let node_record = state.node_record(node);
    acceptable(state, work).contains(&node_record.quanta)
        && state.requested_size(work).fits(&node_record.node.capacity)
        && state.admits(work, node)
}

/// Returns true if this whole node is reserved. Usually no node is, which is known without reading
/// the row.
pub(crate) fn is_whole_node_taken(state: &RoundState, node: NodeIx) -> bool {
    !state.whole_nodes.is_empty() && state.nodes[node].whole_node_for.is_some()
}
