//! Whether a second attempt could place more at all. Mostly it could not: those who wait are the
//! largest, and no node that was open to them has room for another. Then it need not be made.

use super::{fair, size, waiting};
use crate::{collections::bit_set::Bits, input::snapshot::Policy, state::Books};

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
    pub fn of(books: &Books, turns: &[(Policy, usize)]) -> Self {
        let mut wants = Self::default();
        for at in fair(turns) {
            let request = &books.requests[at];
            let waiting = waiting(request);
            if waiting > 0 {
                wants.waiting += waiting * request.order;
                let least = wants.least.unwrap_or(u64::MAX);
                wants.least = Some(least.min(request.order));
            }
            let placed = request.placed;
            wants.can_give_up |= placed > 0 && request.missing() + placed > request.reach;
            if request.coming > 0 {
                wants.coming = true;
                wants.coming_gpus |= books.size(at).gpu_milli > 0;
            }
        }
        wants
    }
}

/// Could what was placed `since` then, laid out anew, leave less waiting? `in_turn` when it was
/// placed in the order of `turns`.
pub(super) fn is_left(
    books: &Books,
    (turns, wants): (&[(Policy, usize)], &Wants),
    since: usize,
    in_turn: impl FnOnce() -> bool,
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
    let all_fair = || turns.iter().all(|(policy, _)| *policy == Policy::FairShare);
    let by_size = || turns.is_sorted_by_key(|(_, at)| size(books, *at));
    let nothing_meant = !wants.coming && !placed.iter().any(|it| it.meant);
    let same = nothing_meant && in_turn() && all_fair() && by_size();
    !same && has_room(books, (turns, wants), since)
}

/// Smaller ones than those who wait all have a place, so more of the larger ones would need one: is
/// there a node that could hold more of them than it does?
fn has_room(books: &Books, (turns, wants): (&[(Policy, usize)], &Wants), since: usize) -> bool {
    let Some(least) = wants.least else {
        return false;
    };
    if wants.can_give_up {
        return true;
    }
    let is_open = |pool: &usize| {
        let mut nodes = books.sets.rooms.free.with(*pool, least);
        nodes.any(|at| {
            let place = &books.machines[at];
            let untouched = place.pending.last().is_none_or(|last| *last < since);
            untouched && place.free.order >= least
        })
    };
    let tree = fair(turns).next().and_then(|at| books.tree_of(at));
    let mut pools = tree.into_iter().flat_map(|tree| books.forest.subtree(tree));
    if pools.any(is_open) {
        return true;
    }
    let rows = fair(turns).map(|at| &books.requests[at]);
    let asking = rows.filter(|it| it.order >= least && it.missing() + it.placed > 0);
    let mut used = Used::by(asking.map(|it| it.order));
    (since..books.pending.len()).any(|at| {
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
    orders: Vec<usize>,
    /// By the quanta of the hole.
    most: Vec<u64>,
}

impl Used {
    /// There are few among many.
    fn by(orders: impl Iterator<Item = u64>) -> Self {
        let mut few = Bits::default();
        // Others fit into no hole for which that is asked.
        let small = orders.filter(|order| (1..LARGE).contains(order));
        for order in small.filter_map(|order| usize::try_from(order).ok()) {
            few.insert(order);
        }
        Self {
            orders: few.iter().collect(),
            most: vec![0],
        }
    }

    fn at_most(&mut self, hole: u64) -> u64 {
        let Some(at) = usize::try_from(hole).ok().filter(|_| hole < LARGE) else {
            return hole;
        };
        for size in self.most.len()..=at {
            let with = |order: &usize| {
                let rest = size.checked_sub(*order)?;
                Some(*order as u64 + self.most[rest])
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
        let mut used = Used::by([8, 3, 3].into_iter());
        let most = [0, 2, 3, 5, 6, 8, 10, 11].map(|hole| used.at_most(hole));
        assert_eq!(most, [0, 0, 3, 3, 6, 8, 9, 11]);
        assert_eq!(used.at_most(LARGE + 1), LARGE + 1);
    }
}
