//! Taking back what is over a maximum that was lowered (10.5): off unless the pool and the queue
//! both say so, best effort, and never more than what is over.

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::plan::{Receipt, VacateReason};

use super::{
    guarantee::net,
    victims::{is_originator, is_willing},
};
use crate::{
    books::Books,
    dims::{Vector, take},
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
        bring_down(books, queue, over);
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

/// Children give in proportion to what each has over its guarantee.
fn bring_down(books: &mut Books, queue: usize, amount: Vector) {
    if books.tree.spots[queue].leaf {
        return take_from(books, queue, amount);
    }
    let children: Vec<usize> = books.tree.spots[queue].children.values().copied().collect();
    let gives = |books: &Books, child: usize, dim: usize| {
        let least = books.tree.spots[child].guaranteed[dim].unwrap_or(0);
        net(books, child, dim).saturating_sub(least)
    };
    let mut parts: Vec<(usize, Vector)> = Vec::new();
    for child in &children {
        let mut part = books.dims.zero();
        for dim in 1..part.len() {
            let all: u128 = children
                .iter()
                .map(|it| u128::from(gives(books, *it, dim)))
                .sum();
            let mine = u128::from(gives(books, *child, dim));
            let share = (u128::from(amount[dim]) * mine)
                .checked_div(all)
                .unwrap_or(0);
            part[dim] = u64::try_from(share.min(mine)).unwrap_or(0);
        }
        parts.push((*child, part));
    }
    for (child, part) in parts {
        bring_down(books, child, part);
    }
}

/// The newest go; whoever is larger than what is still over stays.
fn take_from(books: &mut Books, leaf: usize, mut amount: Vector) {
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
    let limited = |books: &Books, dim: usize| {
        let mut path = books.tree.path(leaf);
        path.any(|at| books.tree.spots[at].max[dim].is_some())
    };
    for at in mine {
        let vector = books.held[at].vector.clone();
        let counts = (1..vector.len()).filter(|dim| vector[*dim] > 0 && limited(books, *dim));
        let counts: Vec<usize> = counts.collect();
        let fits = counts.iter().all(|dim| vector[*dim] <= amount[*dim]);
        if counts.is_empty() || !fits {
            continue;
        }
        take(&mut amount, &vector);
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
}
