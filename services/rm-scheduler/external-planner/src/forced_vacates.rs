//! What leaves whatever the planner outside wants, by the everyday rules: withdrawn work, lost and
//! offline nodes, evacuations, work whose class may not be there any more, and work that may have
//! fewer processes than it has.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::{
    plan::{Vacate, VacateReason},
    snapshot::{Allocation, BlockEffect},
};
use hayward_vocabulary::{AllocationId, WorkKind};

use crate::pool_view::Book;

pub(crate) fn forced(book: &Book) -> Vec<Vacate> {
    let mut orders = Vec::new();
    for (id, held) in &book.held {
        let node = book.snapshot.nodes.get(&held.node);
        let lost = node.is_none_or(|node| node.lost);
        // A node that cannot answer is told again, and then not waited for.
        let told = held.purged || (held.leaving && !lost);
        if let Some((reason, detail)) = fault(book, held).filter(|_| !told) {
            orders.push(Vacate {
                allocation: (*id).clone(),
                reason,
                detail,
                purge: lost,
            });
        }
    }
    shrink(book, &mut orders);
    orders
}

fn fault(book: &Book, held: &Allocation) -> Option<(VacateReason, String)> {
    let Some(wish) = book.work.get(&held.work) else {
        let detail = format!("work {} is withdrawn", held.work);
        return Some((VacateReason::WorkGone, detail));
    };
    // I12: a reservation goes when its work goes.
    if held.kind == WorkKind::Reservation {
        return None;
    }
    let node = book.snapshot.nodes.get(&held.node);
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
    let instance = wish.demand.kind == WorkKind::Service && !wish.demand.managed;
    let moves = !held.fixed || instance;
    let misplaced = moves && !book.reaches(wish.class, &node.pool);
    let (class, pool) = (wish.class_name, &node.pool);
    let detail = format!("class {class:?} may not use pool {pool:?}");
    misplaced.then_some((VacateReason::Misplaced, detail))
}

/// Work that may have fewer processes than it has gives up its newest.
fn shrink(book: &Book, orders: &mut Vec<Vacate>) {
    let told: BTreeSet<AllocationId> = orders.iter().map(|it| it.allocation.clone()).collect();
    let stays =
        |id: &AllocationId, held: &Allocation| !held.leaving && !held.purged && !told.contains(id);
    for (work, wish) in &book.work {
        let demand = wish.demand;
        let held_back = demand.keeps_what_it_holds || demand.completing;
        if held_back || demand.kind == WorkKind::Reservation || wish.has <= wish.most() {
            continue;
        }
        let mine = book.held.iter().filter(|(_, held)| held.work == **work);
        let mut mine: Vec<_> = mine.filter(|(id, held)| stays(id, held)).collect();
        mine.sort_by_key(|(id, held)| Reverse((held.granted_at, *id)));
        let excess = (mine.len() as u64).saturating_sub(wish.most());
        let excess = usize::try_from(excess).unwrap_or(usize::MAX);
        orders.extend(mine.into_iter().take(excess).map(|(id, _)| Vacate {
            allocation: (*id).clone(),
            reason: VacateReason::OwnLimit,
            detail: format!("its work may have {} processes", wish.most()),
            purge: false,
        }));
    }
}
