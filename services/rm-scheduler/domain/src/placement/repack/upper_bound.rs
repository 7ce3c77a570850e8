//! Whether a second attempt could place more at all. Mostly it could not: those who wait are the
//! largest, and no node that was open to them has room for another. Then it need not be made.

use super::{fair, size, waiting};
use crate::{collections::bit_set::BitSet, input::snapshot::Policy, state::RoundState};

/// Holes of so many quanta and more count as used to the last.
const LARGE: u64 = 1 << 12;

/// What those who are to be placed come to, found in one walk over them.
#[derive(Default)]
pub(super) struct Unplaced {
    /// Quanta that were counted and have no place, among what could have one at all.
    pub waiting_quanta: u64,
    /// Of one process of the smallest of those.
    least_quanta: Option<u64>,
    /// Room was made for some, and of those for some with gpus.
    has_reservations: bool,
    has_gpu_reservations: bool,
    /// Some lack more than they could ever have, so they can give up some of it and wait for no
    /// more.
    can_give_up: bool,
}

impl Unplaced {
    pub fn of(state: &RoundState, queue: &[(Policy, usize)]) -> Self {
        let mut wants = Self::default();
        for at in fair(queue) {
            let work = &state.work[at];
            let waiting = waiting(work);
            if waiting > 0 {
                wants.waiting_quanta += waiting * work.process_quanta;
                let least = wants.least_quanta.unwrap_or(u64::MAX);
                wants.least_quanta = Some(least.min(work.process_quanta));
            }
            let placed = work.placed;
            wants.can_give_up |= placed > 0 && work.missing() + placed > work.reach;
            if work.reserved > 0 {
                wants.has_reservations = true;
                wants.has_gpu_reservations |= state.size(at).gpu_milli > 0;
            }
        }
        wants
    }
}

/// Could what was placed `since` then, laid out anew, leave less waiting? `in_turn` when it was
/// placed in the order of `turns`.
pub(super) fn could_improve(
    state: &RoundState,
    (queue, wants): (&[(Policy, usize)], &Unplaced),
    since: usize,
    in_turn: impl FnOnce() -> bool,
) -> bool {
    let placed = &state.granted[since..];
    let is_fair = |at: usize| state.policy(at) == Some(Policy::FairShare);
    // What others got stays, and which gpus are meant for somebody is chosen anew each time.
    if wants.has_gpu_reservations
        || placed
            .iter()
            .any(|it| !it.live || it.in_reserved_space && !it.gpus.is_empty() || !is_fair(it.work))
    {
        return true;
    }
    let all_fair = || queue.iter().all(|(policy, _)| *policy == Policy::FairShare);
    let by_size = || queue.is_sorted_by_key(|(_, at)| size(state, *at));
    let nothing_meant = !wants.has_reservations && !placed.iter().any(|it| it.in_reserved_space);
    let same = nothing_meant && in_turn() && all_fair() && by_size();
    !same && has_room(state, (queue, wants), since)
}

/// Smaller ones than those who wait all have a place, so more of the larger ones would need one: is
/// there a node that could hold more of them than it does?
fn has_room(
    state: &RoundState,
    (queue, wants): (&[(Policy, usize)], &Unplaced),
    since: usize,
) -> bool {
    let Some(least) = wants.least_quanta else {
        return false;
    };
    if wants.can_give_up {
        return true;
    }
    let is_open = |pool: &usize| {
        let mut nodes = state.derived.node_index.free.with(*pool, least);
        nodes.any(|at| {
            let node_state = &state.nodes[at];
            let untouched = node_state.granted.last().is_none_or(|last| *last < since);
            untouched && node_state.free.quanta >= least
        })
    };
    let tree = fair(queue).next().and_then(|at| state.tree_of(at));
    let mut pools = tree.into_iter().flat_map(|tree| state.forest.subtree(tree));
    if pools.any(is_open) {
        return true;
    }
    let rows = fair(queue).map(|at| &state.work[at]);
    let asking = rows.filter(|it| it.process_quanta >= least && it.missing() + it.placed > 0);
    let mut used = Used::by(asking.map(|it| it.process_quanta));
    (since..state.granted.len()).any(|at| {
        let node_state = &state.nodes[state.granted[at].node];
        let here = || node_state.granted.iter().filter(|other| **other >= since);
        // Each node once.
        if here().next() != Some(&at) {
            return false;
        }
        let orders = || here().map(|at| state.granted[*at].quanta);
        let large = orders().filter(|quanta| *quanta >= least).sum::<u64>();
        used.at_most(node_state.free.quanta + orders().sum::<u64>()) > large
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
        let mut few = BitSet::default();
        // Others fit into no hole for which that is asked.
        let small = orders.filter(|quanta| (1..LARGE).contains(quanta));
        for quanta in small.filter_map(|quanta| usize::try_from(quanta).ok()) {
            few.insert(quanta);
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
            let with = |quanta: &usize| {
                let rest = size.checked_sub(*quanta)?;
                Some(*quanta as u64 + self.most[rest])
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
