//! Which sizes of node suit a request for whole nodes.

use hayward_vocabulary::{Quantum, Size, WorkKind};

use crate::{
    input::snapshot::{Demand, Snapshot},
    output::plan::Grant,
};

/// Where the fleet names an overage, a reservation takes a node that is no larger than what it
/// asks for and that on top, other work none that is larger at all; and what has been
/// given a node once stays with nodes of that order. That the node is large enough is
/// seen by its capacity: a node that is exactly as large may hold one quantum less.
pub(super) fn suits(
    snapshot: &Snapshot,
    grant: &Grant,
    demand: &Demand,
    quantum: &Quantum,
) -> bool {
    let Some(overage) = snapshot.tunables.reserve_overage_bytes else {
        return true;
    };
    if let Some(order) = snapshot.carried.upgrades.get(&grant.work) {
        return grant.order == *order;
    }
    let mut most = demand.size.clone();
    if demand.kind == WorkKind::Reservation {
        if demand.size == Size::default() {
            return true;
        }
        most.memory_bytes = most.memory_bytes.saturating_add(overage);
    }
    grant.order <= quantum.work_order(&most)
}
