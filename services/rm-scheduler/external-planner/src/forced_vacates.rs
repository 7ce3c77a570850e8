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

pub(crate) fn forced(view: &PoolView) -> Vec<Vacate> {
    let mut orders = Vec::new();
    for (id, held) in &view.held {
        let node = view.snapshot.nodes.get(&held.node);
        let lost = node.is_none_or(|node| node.lost);
        // An allocation on a lost node is vacated a second time, and is then not waited for.
        let already_vacated = held.purged || (held.leaving && !lost);
        if let Some((reason, detail)) = reason_to_leave(view, held).filter(|_| !already_vacated) {
            orders.push(Vacate {
                allocation: (*id).clone(),
                reason,
                detail,
                purge: lost,
            });
        }
    }
    shrink(view, &mut orders);
    orders
}

fn reason_to_leave(view: &PoolView, held: &Allocation) -> Option<(VacateReason, String)> {
    let Some(item) = view.work.get(&held.work) else {
        let detail = format!("work {} is withdrawn", held.work);
        return Some((VacateReason::WorkGone, detail));
    };
    // A reservation ends with its work (I12).
    if held.kind == WorkKind::Reservation {
        return None;
    }
    let node = view.snapshot.nodes.get(&held.node);
    let Some(node) = node.filter(|node| !node.lost) else {
        let detail = format!("node {} was lost", held.node);
        return Some((VacateReason::NodeLost, detail));
    };
    let block = node.block.as_ref();
    if let Some(block) = block.filter(|block| block.effect == BlockEffect::Evacuate) {
        let detail = format!("node {} is evacuated: {}", held.node, block.reason);
        return Some((VacateReason::Blocked, detail));
    }
    if node.offline && !held.fixed {
        let detail = format!("node {} was varied off", held.node);
        return Some((VacateReason::NodeOffline, detail));
    }
    let instance = item.demand.kind == WorkKind::Service && !item.demand.managed;
    let moves = !held.fixed || instance;
    let misplaced = moves && !view.reaches(item.class, &node.pool);
    let (class, pool) = (item.class_name, &node.pool);
    let detail = format!("class {class:?} may not use pool {pool:?}");
    misplaced.then_some((VacateReason::Misplaced, detail))
}

/// Vacates the newest allocations of work that has more processes than allowed.
fn shrink(view: &PoolView, orders: &mut Vec<Vacate>) {
    let already_vacated: BTreeSet<AllocationId> =
        orders.iter().map(|it| it.allocation.clone()).collect();
    let stays = |id: &AllocationId, held: &Allocation| {
        !held.leaving && !held.purged && !already_vacated.contains(id)
    };
    for (work, item) in &view.work {
        let demand = item.demand;
        let held_back = demand.keeps_what_it_holds || demand.completing;
        if held_back || demand.kind == WorkKind::Reservation || item.has <= item.most() {
            continue;
        }
        let mine = view.held.iter().filter(|(_, held)| held.work == **work);
        let mut mine: Vec<_> = mine.filter(|(id, held)| stays(id, held)).collect();
        mine.sort_by_key(|(id, held)| Reverse((held.granted_at, *id)));
        let excess = (mine.len() as u64).saturating_sub(item.most());
        let excess = usize::try_from(excess).unwrap_or(usize::MAX);
        orders.extend(mine.into_iter().take(excess).map(|(id, _)| Vacate {
            allocation: (*id).clone(),
            reason: VacateReason::OwnLimit,
            detail: format!("its work may have {} processes", item.most()),
            purge: false,
        }));
    }
}
