//! Taking back what is over a maximum that was lowered (10.5): off unless the pool and the queue
//! both say so, best effort, and never more than what is over.

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::plan::{Receipt, VacateReason};

use super::{
    guarantee::net,
    victims::{is_originator, is_willing},
};
use crate::{
    resource_vec::{Vector, share_a_type, take},
    round_state::Books,
    tree::ROOT,
};

pub(crate) fn enforce(books: &mut Books) {
    let now = books.snapshot.now;
    let before = std::mem::take(&mut books.kept.over);
    if !books.queues.quota_preemption {
        return;
    }
    let mut busy: Vec<usize> = Vec::new();
    for queue in 1..books.tree.spots.len() {
        let spot = &books.tree.spots[queue];
        let delay = spot.manner.quota_delay_ms;
        let over = over(books, queue);
        if spot.config.is_none() || delay == 0 || over.iter().all(|over| *over == 0) {
            continue;
        }
        let since = before.get(&spot.path).copied().unwrap_or(now);
        books.kept.over.insert(spot.path.clone(), since);
        // A queue that is being brought down is brought down as a whole.
        let above = busy.iter().any(|top| books.tree.is_below(queue, *top));
        if above || now.ms_since(since) < delay {
            continue;
        }
        busy.push(queue);
        bring_down(books, (queue, &over), over.clone());
    }
}

/// What it has over its maximum, as far as no guarantee above it is undercut.
fn over(books: &Books, queue: usize) -> Vector {
    let mut over = books.dims.zero();
    for (dim, over) in over.iter_mut().enumerate().skip(1) {
        if let Some(max) = books.tree.spots[queue].max[dim] {
            *over = net(books, queue, dim).saturating_sub(max);
        }
        for above in books.tree.path(queue).filter(|at| *at != ROOT) {
            if let Some(least) = books.tree.spots[above].guaranteed[dim] {
                *over = (*over).min(net(books, above, dim).saturating_sub(least));
            }
        }
    }
    over
}

/// Children give in proportion to what each has over its guarantee, and then what is still over,
/// one after the other: what each gives is made of whole processes. The rest of the amount is
/// returned.
fn bring_down(books: &mut Books, (queue, over): (usize, &Vector), amount: Vector) -> Vector {
    if books.tree.spots[queue].leaf {
        return take_from(books, (queue, over), amount);
    }
    let children: Vec<usize> = books.tree.spots[queue].children.values().copied().collect();
    let mut rest = amount.clone();
    for (child, part) in in_proportion(books, &children, &amount) {
        let left = bring_down(books, (child, over), part.clone());
        take(&mut rest, &gone(part, &left));
    }
    for child in children {
        let mut part = rest.clone();
        for (dim, part) in part.iter_mut().enumerate() {
            *part = (*part).min(gives(books, child, dim));
        }
        let left = bring_down(books, (child, over), part.clone());
        take(&mut rest, &gone(part, &left));
    }
    rest
}

fn gone(mut before: Vector, after: &[u64]) -> Vector {
    take(&mut before, after);
    before
}

/// What a queue has over its guarantee.
fn gives(books: &Books, queue: usize, dim: usize) -> u64 {
    let least = books.tree.spots[queue].guaranteed[dim].unwrap_or(0);
    net(books, queue, dim).saturating_sub(least)
}

fn in_proportion(books: &Books, children: &[usize], amount: &[u64]) -> Vec<(usize, Vector)> {
    let mut parts: Vec<(usize, Vector)> = Vec::new();
    for child in children {
        let mut part = books.dims.zero();
        for dim in 1..part.len() {
            let all = children.iter().map(|it| u128::from(gives(books, *it, dim)));
            let mine = u128::from(gives(books, *child, dim));
            let share = (u128::from(amount[dim]) * mine)
                .checked_div(all.sum())
                .unwrap_or(0);
            part[dim] = u64::try_from(share.min(mine)).unwrap_or(0);
        }
        parts.push((*child, part));
    }
    parts
}

/// The newest go. What is larger than what is still over stays, and what a guarantee needs.
///
/// Types that are not over do not count: bringing one down must not wait for another.
fn take_from(books: &mut Books, (leaf, over): (usize, &Vector), mut amount: Vector) -> Vector {
    for at in candidates(books, leaf) {
        if amount.iter().all(|amount| *amount == 0) {
            break;
        }
        let vector = books.held[at].vector.clone();
        let fits = |dim: usize| over[dim] == 0 || vector[dim] <= amount[dim];
        let helps = share_a_type(&vector, &amount) && (1..vector.len()).all(fits);
        if helps && !undercuts(books, leaf, &vector) {
            take(&mut amount, &vector);
            tell(books, leaf, at);
        }
    }
    amount
}

/// Without so much some queue on the path has less than it is guaranteed, of whatever type.
fn undercuts(books: &Books, leaf: usize, vector: &[u64]) -> bool {
    let mut path = books.tree.path(leaf).filter(|at| *at != ROOT);
    path.any(|at| {
        let least = books.tree.spots[at].guaranteed.iter().enumerate();
        let mut least = least.filter(|(dim, _)| vector[*dim] > 0);
        least.any(|(dim, least)| {
            least.is_some_and(|least| net(books, at, dim) < least.saturating_add(vector[dim]))
        })
    })
}

fn candidates(books: &Books, leaf: usize) -> Vec<usize> {
    let mine = |at: &usize| {
        let held = &books.held[*at];
        let required = held
            .ask
            .map(|ask| books.asks[ask].queued.required_node.is_some());
        held.queue == Some(leaf) && !held.leaves && required == Some(false)
    };
    let mut mine: Vec<usize> = (0..books.held.len()).filter(mine).collect();
    mine.sort_by_key(|at| {
        let it = &books.held[*at];
        let newest = Reverse((it.allocation.granted_at, it.id));
        (!is_willing(books, *at), is_originator(books, *at), newest)
    });
    mine
}

fn tell(books: &mut Books, leaf: usize, at: usize) {
    let held = &books.held[at];
    let queue = &books.tree.spots[leaf].path;
    let detail = format!("queue {queue} has more than its maximum");
    books.receipts.push(Receipt {
        allocation: held.id.clone(),
        work: held.allocation.work.clone(),
        user: held.allocation.user.clone(),
        node: held.allocation.node.clone(),
        order: held.allocation.order,
        lost_ms: books.snapshot.now.ms_since(held.allocation.granted_at),
        beneficiary: None,
        for_user: None,
    });
    books.vacate(at, (VacateReason::Preempted, detail));
}
