//! Checks that a node is not too large for work that gets it as a whole.

use hayward_vocabulary::{Quantum, Size, WorkKind};

use crate::{
    input::snapshot::{Demand, Snapshot},
    output::plan::Grant,
};

/// Returns whether the node of a grant is small enough. The caller checks that it is large enough.
///
/// Without the setting `reserve_overage_bytes`, every size is accepted. With the setting, the node
/// of a reservation may exceed the request by that many bytes. The node of other work may not
/// exceed the request. Work that already had a node takes only nodes with the same quanta.
pub(super) fn is_small_enough(
    snapshot: &Snapshot,
    grant: &Grant,
    demand: &Demand,
    quantum: &Quantum,
) -> bool {
    let Some(overage) = snapshot.tunables.reserve_overage_bytes else {
        return true;
    };
    if let Some(quanta) = snapshot.carried.reserved_node_quanta.get(&grant.work) {
        return grant.quanta == *quanta;
    }
    let mut max = demand.size.clone();
    if demand.kind == WorkKind::Reservation {
        if demand.size == Size::default() {
            return true;
        }
        max.memory_bytes = max.memory_bytes.saturating_add(overage);
    }
    grant.quanta <= quantum.quanta_of_work(&max)
}
