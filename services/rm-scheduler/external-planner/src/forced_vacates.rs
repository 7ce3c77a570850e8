//! Vacates that do not depend on the external planner: withdrawn work, lost and offline nodes,
//! evacuations, classes that may not use the pool, and surplus processes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::{
    plan::{Vacate, VacateReason},
    snapshot::{Allocation, BlockEffect},
};
use hayward_vocabulary::{AllocationId, WorkKind};

use crate::pool_view::PoolView;

pub(crate) fn forced_vacates(view: &PoolView) -> Vec<Vacate> {
    let mut vacates = Vec::new();
    for (id, allocation) in &view.allocations {
        let node = view.snapshot.nodes.get(&allocation.node);
        let is_lost = node.is_none_or(|node| node.lost);
        // An allocation that leaves a lost node is vacated once more, with `purge`. The scheduler
        // then does not wait for its container.
        let already_vacated = allocation.purged || (allocation.leaving && !is_lost);
        if let Some((reason, detail)) =
            reason_to_leave(view, allocation).filter(|_| !already_vacated)
        {
            vacates.push(Vacate {
                allocation: (*id).clone(),
                reason,
                detail,
                purge: is_lost,
            });
        }
    }
    vacate_surplus(view, &mut vacates);
    vacates
}

fn reason_to_leave(view: &PoolView, allocation: &Allocation) -> Option<(VacateReason, String)> {
    let Some(item) = view.work.get(&allocation.work) else {
        let detail = format!("work {} is withdrawn", allocation.work);
        return Some((VacateReason::WorkGone, detail));
    };
    // A reservation stays until its work is withdrawn (I12).
    if allocation.kind == WorkKind::Reservation {
        return None;
    }
    let node = view.snapshot.nodes.get(&allocation.node);
    let Some(node) = node.filter(|node| !node.lost) else {
        let detail = format!("node {} was lost", allocation.node);
        return Some((VacateReason::NodeLost, detail));
    };
    let block = node.block.as_ref();
    if let Some(block) = block.filter(|block| block.effect == BlockEffect::Evacuate) {
        let detail = format!("node {} is evacuated: {}", allocation.node, block.reason);
        return Some((VacateReason::Blocked, detail));
    }
    if node.offline && !allocation.fixed {
        let detail = format!("node {} was varied off", allocation.node);
        return Some((VacateReason::NodeOffline, detail));
    }
    let is_instance = item.demand.kind == WorkKind::Service && !item.demand.managed;
    let is_movable = !allocation.fixed || is_instance;
    let is_misplaced = is_movable && !view.may_use_pool(item.class, &node.pool);
    let (class, pool) = (item.class_name, &node.pool);
    let detail = format!("class {class:?} may not use pool {pool:?}");
    is_misplaced.then_some((VacateReason::Misplaced, detail))
}

/// Vacates the newest allocations of work with more processes than allowed.
fn vacate_surplus(view: &PoolView, vacates: &mut Vec<Vacate>) {
    let already_vacated: BTreeSet<AllocationId> =
        vacates.iter().map(|it| it.allocation.clone()).collect();
    let remains = |id: &AllocationId, allocation: &Allocation| {
        !allocation.leaving && !allocation.purged && !already_vacated.contains(id)
    };
    for (work, item) in &view.work {
        let demand = item.demand;
        let is_retained = demand.keeps_what_it_holds || demand.completing;
        if is_retained
            || demand.kind == WorkKind::Reservation
            || item.current <= item.max_processes()
        {
            continue;
        }
        let own_allocations = view
            .allocations
            .iter()
            .filter(|(_, allocation)| allocation.work == **work);
        let mut own_allocations: Vec<_> = own_allocations
            .filter(|(id, allocation)| remains(id, allocation))
            .collect();
        own_allocations.sort_by_key(|(id, allocation)| Reverse((allocation.granted_at, *id)));
        let excess = (own_allocations.len() as u64).saturating_sub(item.max_processes());
        let excess = usize::try_from(excess).unwrap_or(usize::MAX);
        vacates.extend(
            own_allocations
                .into_iter()
                .take(excess)
                .map(|(id, _)| Vacate {
                    allocation: (*id).clone(),
                    reason: VacateReason::OwnLimit,
                    detail: format!("its work may have {} processes", item.max_processes()),
                    purge: false,
                }),
        );
    }
}
