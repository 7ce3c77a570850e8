//! Whether a second attempt could place more at all. Mostly it could not: those who wait are the
//! largest, and no node that was open to them has room for another. Then it need not be made.

use std::cmp::Reverse;

use super::priority;
use crate::{books::Books, snapshot::Policy};

/// Holes of so many quanta and more count as used to the last.
const LARGE: u64 = 1 << 12;

/// What those who are to be placed come to, found in one walk over them.
#[derive(Default)]
pub(super) struct Wants {
    /// Quanta that were counted and have no place, among what could have one at all.
    pub waiting: u64,
    /// Of one process of the smallest of those.
    least: Option<u64>,
    /// Room was made for some, and of those for some with gpus.
    coming: bool,
    coming_gpus: bool,
    /// Some lack more than they could ever have, so they can give up some of it and wait for no
    /// more.
    can_give_up: bool,
}

impl Wants {
    pub fn of(books: &Books, fair: &[usize]) -> Self {
        let mut wants = Self::default();
        for at in fair.iter().copied() {
            let request = &books.requests[at];
            let (missing, reach) = (request.missing(), request.reach);
            let waiting = missing.min(reach);
            if waiting > 0 {
                wants.waiting += waiting * request.order;
                let least = wants.least.unwrap_or(u64::MAX);
                wants.least = Some(least.min(request.order));
            }
            wants.can_give_up |= request.placed > 0 && missing + request.placed > reach;
            if request.coming > 0 {
                wants.coming = true;
                wants.coming_gpus |= books.size(at).gpu_milli > 0;
            }
        }
        wants
    }
}

/// Could what was placed `since` then, laid out anew, leave less waiting? `in_turn` when it was
/// placed in the order of `fair`.
pub(super) fn is_left(
    books: &Books,
    (fair, wants): (&[usize], &Wants),
    since: usize,
    in_turn: bool,
) -> bool {
    let placed = &books.pending[since..];
    let is_fair = |at: usize| books.policy(at) == Some(Policy::FairShare);
    // What others got stays, and which gpus are meant for somebody is chosen anew each time.
    if wants.coming_gpus
        || placed
            .iter()
            .any(|it| !it.live || it.meant && !it.gpus.is_empty() || !is_fair(it.request))
    {
        return true;
    }
    let by_size = |at: &usize| (priority(books, *at), Reverse(books.requests[*at].order));
    let nothing_meant = !wants.coming && !placed.iter().any(|it| it.meant);
    let same = nothing_meant && in_turn && fair.is_sorted_by_key(by_size);
    !same && has_room(books, (fair, wants), since)
}

/// Smaller ones than those who wait all have a place, so more of the larger ones would need one: is
/// there a node that could hold more of them than it does?
fn has_room(books: &Books, (fair, wants): (&[usize], &Wants), since: usize) -> bool {
    let Some(least) = wants.least else {
        return false;
    };
    if wants.can_give_up {
        return true;
    }
    let rows = fair.iter().map(|at| &books.requests[*at]);
    let asking = rows.filter(|it| it.order >= least && it.missing() + it.placed > 0);
    let mut used = Used::by(asking.map(|it| it.order).collect());
    let is_open = |pool: &usize| {
        let mut nodes = books.sets.rooms.free.with(*pool, least);
        nodes.any(|at| {
            let place = &books.machines[at];
            let untouched = place.pending.last().is_none_or(|last| *last < since);
            untouched && place.free.order >= least
        })
    };
    let tree = fair.first().and_then(|at| books.tree_of(*at));
    let mut pools = tree.into_iter().flat_map(|tree| books.forest.subtree(tree));
    pools.any(is_open)
        || (since..books.pending.len()).any(|at| {
            let place = &books.machines[books.pending[at].machine];
            let here = || place.pending.iter().filter(|other| **other >= since);
            // Each node once.
            if here().next() != Some(&at) {
                return false;
            }
            let orders = || here().map(|at| books.pending[*at].order);
            let large = orders().filter(|order| *order >= least).sum::<u64>();
            used.at_most(place.free.order + orders().sum::<u64>()) > large
        })
}

/// How many quanta of a hole processes of these orders can use.
struct Used {
    orders: Vec<u64>,
    /// By the quanta of the hole.
    most: Vec<u64>,
}

impl Used {
    fn by(mut orders: Vec<u64>) -> Self {
        orders.retain(|order| *order > 0);
        orders.sort_unstable();
        orders.dedup();
        let most = vec![0];
        Self { orders, most }
    }

    fn at_most(&mut self, hole: u64) -> u64 {
        let Some(at) = usize::try_from(hole).ok().filter(|_| hole < LARGE) else {
            return hole;
        };
        for size in self.most.len()..=at {
            let with = |order: &u64| {
                let rest = size.checked_sub(usize::try_from(*order).ok()?)?;
                Some(order + self.most[rest])
            };
            let most = self.orders.iter().filter_map(with).max();
            self.most.push(most.unwrap_or(0));
        }
        self.most[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_used_as_far_as_orders_add_up() {
        let mut used = Used::by(vec![8, 3, 3]);
        let most = [0, 2, 3, 5, 6, 8, 10, 11].map(|hole| used.at_most(hole));
        assert_eq!(most, [0, 0, 3, 3, 6, 8, 9, 11]);
        assert_eq!(used.at_most(LARGE + 1), LARGE + 1);
    }
}
