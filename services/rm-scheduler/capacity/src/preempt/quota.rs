//! Enforces a lowered maximum by vacating the excess. It is off unless both the pool and the queue
//! enable it, and never takes more than the excess.

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::plan::{Receipt, VacateReason};

use super::{
    guarantee::net,
    victims::{is_originator, is_willing},
};
use crate::{
    resource_vec::{Vector, share_a_type, take},
    round_state::RoundState,
    tree::ROOT,
};

pub(crate) fn enforce(round: &mut RoundState) {
    let now = round.snapshot.now;
    let before = std::mem::take(&mut round.carried.over);
    if !round.queues.quota_preemption {
        return;
    }
    let mut busy: Vec<usize> = Vec::new();
    for queue in 1..round.tree.entries.len() {
        let queue_state = &round.tree.entries[queue];
        let delay = queue_state.settings.quota_delay_ms;
        let over = over(round, queue);
        if queue_state.config.is_none() || delay == 0 || over.iter().all(|over| *over == 0) {
            continue;
        }
        let since = before.get(&queue_state.path).copied().unwrap_or(now);
        round.carried.over.insert(queue_state.path.clone(), since);
        // A queue is reduced as a whole, before its children.
        let above = busy.iter().any(|top| round.tree.is_below(queue, *top));
        if above || now.ms_since(since) < delay {
            continue;
        }
        busy.push(queue);
        bring_down(round, queue, &over, over.clone());
    }
}

/// Returns the excess over the maximum, limited so that no guarantee above is broken.
fn over(round: &RoundState, queue: usize) -> Vector {
    let mut over = round.dims.zero();
    for (dim, over) in over.iter_mut().enumerate().skip(1) {
        if let Some(max) = round.tree.entries[queue].max[dim] {
            *over = net(round, queue, dim).saturating_sub(max);
        }
        for above in round.tree.path(queue).filter(|at| *at != ROOT) {
            if let Some(least) = round.tree.entries[above].guaranteed[dim] {
                *over = (*over).min(net(round, above, dim).saturating_sub(least));
            }
        }
    }
    over
}

/// Reduces the usage below a queue. Children give in proportion to their excess over their
/// guarantees. Then they give one after the other, because only whole processes can leave. Returns
/// the amount that was not freed.
fn bring_down(round: &mut RoundState, queue: usize, over: &Vector, amount: Vector) -> Vector {
    if round.tree.entries[queue].leaf {
        return take_from(round, queue, over, amount);
    }
    let children: Vec<usize> = round.tree.entries[queue]
        .children
        .values()
        .copied()
        .collect();
    let mut rest = amount.clone();
    for (child, part) in in_proportion(round, &children, &amount) {
        let left = bring_down(round, child, over, part.clone());
        take(&mut rest, &gone(part, &left));
    }
    for child in children {
        let mut part = rest.clone();
        for (dim, part) in part.iter_mut().enumerate() {
            *part = (*part).min(excess(round, child, dim));
        }
        let left = bring_down(round, child, over, part.clone());
        take(&mut rest, &gone(part, &left));
    }
    rest
}

fn gone(mut before: Vector, after: &[u64]) -> Vector {
    take(&mut before, after);
    before
}

/// Returns the excess of a queue over its guarantee.
fn excess(round: &RoundState, queue: usize, dim: usize) -> u64 {
    let least = round.tree.entries[queue].guaranteed[dim].unwrap_or(0);
    net(round, queue, dim).saturating_sub(least)
}

fn in_proportion(round: &RoundState, children: &[usize], amount: &[u64]) -> Vec<(usize, Vector)> {
    let mut parts: Vec<(usize, Vector)> = Vec::new();
    for child in children {
        let mut part = round.dims.zero();
        for dim in 1..part.len() {
            let all = children
                .iter()
                .map(|it| u128::from(excess(round, *it, dim)));
            let mine = u128::from(excess(round, *child, dim));
            let share = (u128::from(amount[dim]) * mine)
                .checked_div(all.sum())
                .unwrap_or(0);
            part[dim] = u64::try_from(share.min(mine)).unwrap_or(0);
        }
        parts.push((*child, part));
    }
    parts
}

/// Vacates the newest allocations, except those larger than the excess and those a guarantee needs.
/// Types without excess do not count.
fn take_from(round: &mut RoundState, leaf: usize, over: &Vector, mut amount: Vector) -> Vector {
    for at in candidates(round, leaf) {
        if amount.iter().all(|amount| *amount == 0) {
            break;
        }
        let vector = round.held[at].vector.clone();
        let fits = |dim: usize| over[dim] == 0 || vector[dim] <= amount[dim];
        let helps = share_a_type(&vector, &amount) && (1..vector.len()).all(fits);
        if helps && !undercuts(round, leaf, &vector) {
            take(&mut amount, &vector);
            vacate(round, leaf, at);
        }
    }
    amount
}

/// Returns true if the loss of this amount would break a guarantee on the path.
fn undercuts(round: &RoundState, leaf: usize, vector: &[u64]) -> bool {
    let mut path = round.tree.path(leaf).filter(|at| *at != ROOT);
    path.any(|at| {
        let least = round.tree.entries[at].guaranteed.iter().enumerate();
        let mut least = least.filter(|(dim, _)| vector[*dim] > 0);
        least.any(|(dim, least)| {
            least.is_some_and(|least| net(round, at, dim) < least.saturating_add(vector[dim]))
        })
    })
}

fn candidates(round: &RoundState, leaf: usize) -> Vec<usize> {
    let mine = |at: &usize| {
        let held = &round.held[*at];
        let required = held
            .item
            .map(|item| round.items[item].queued.required_node.is_some());
        held.queue == Some(leaf) && !held.leaves && required == Some(false)
    };
    let mut mine: Vec<usize> = (0..round.held.len()).filter(mine).collect();
    mine.sort_by_key(|at| {
        let it = &round.held[*at];
        let newest = Reverse((it.allocation.granted_at, it.id));
        (!is_willing(round, *at), is_originator(round, *at), newest)
    });
    mine
}

fn vacate(round: &mut RoundState, leaf: usize, at: usize) {
    let held = &round.held[at];
    let queue = &round.tree.entries[leaf].path;
    let detail = format!("queue {queue} has more than its maximum");
    round.receipts.push(Receipt {
        allocation: held.id.clone(),
        work: held.allocation.work.clone(),
        user: held.allocation.user.clone(),
        node: held.allocation.node.clone(),
        order: held.allocation.order,
        lost_ms: round.snapshot.now.ms_since(held.allocation.granted_at),
        beneficiary: None,
        for_user: None,
    });
    round.vacate(at, VacateReason::Preempted, detail);
}
