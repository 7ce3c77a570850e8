//! An upper bound on what repacking could place. It usually shows that a second attempt is useless:
//! the waiting processes are the largest ones, and no node could hold another.

use super::{fair, size, waiting};
use crate::{
    collections::bit_set::BitSet, ids::WorkIx, input::snapshot::Policy, state::RoundState,
};

/// Holes of at least this many quanta are assumed to be filled completely.
const LARGE: u64 = 1 << 12;

/// Sums over the work that is to be placed.
#[derive(Default)]
pub(super) struct Unplaced {
    /// Quanta of entitled processes without a node, as far as the fleet could hold them at all.
    pub waiting_quanta: u64,
    /// Quanta of the smallest waiting process; `None` if none waits.
    least_quanta: Option<u64>,
    /// Some work has reservations.
    has_reservations: bool,
    /// Some of it wants GPUs.
    has_gpu_reservations: bool,
    /// Some work misses more than it could ever hold, so it can give up grants without waiting for
    /// more.
    can_give_up: bool,
}

impl Unplaced {
    pub fn new(state: &RoundState, queue: &[(Policy, WorkIx)]) -> Self {
        let mut unplaced = Self::default();
        for work in fair(queue) {
            let work_state = &state.work[work];
            let waiting = waiting(work_state);
            if waiting > 0 {
                unplaced.waiting_quanta += waiting * work_state.process_quanta;
                let least = unplaced.least_quanta.unwrap_or(u64::MAX);
                unplaced.least_quanta = Some(least.min(work_state.process_quanta));
            }
            let placed = work_state.placed;
            unplaced.can_give_up |= placed > 0 && work_state.missing() + placed > work_state.reach;
            if work_state.reserved > 0 {
                unplaced.has_reservations = true;
                unplaced.has_gpu_reservations |= state.size(work).gpu_milli > 0;
            }
        }
        unplaced
    }
}

/// Whether repacking the grants from number `since` on could leave less waiting. `in_turn` says
/// whether they were made in serve order.
pub(super) fn could_improve(
    state: &RoundState,
    queue: &[(Policy, WorkIx)],
    unplaced: &Unplaced,
    since: usize,
    in_turn: impl FnOnce() -> bool,
) -> bool {
    let placed = &state.granted[since..];
    let is_fair = |work: WorkIx| state.policy(work) == Some(Policy::FairShare);
    // Grants of other policies stay, and reserved GPUs are chosen again: no bound is known.
    if unplaced.has_gpu_reservations
        || placed
            .iter()
            .any(|it| !it.live || it.in_reserved_space && !it.gpus.is_empty() || !is_fair(it.work))
    {
        return true;
    }
    let all_fair = || queue.iter().all(|(policy, _)| *policy == Policy::FairShare);
    let by_size = || queue.is_sorted_by_key(|(_, work)| size(state, *work));
    let no_reservations =
        !unplaced.has_reservations && !placed.iter().any(|it| it.in_reserved_space);
    let same_order = no_reservations && in_turn() && all_fair() && by_size();
    !same_order && has_room(state, queue, unplaced, since)
}

/// All processes smaller than the waiting ones have a node. So repacking helps only if some node
/// could hold more of the larger ones than it does now.
fn has_room(
    state: &RoundState,
    queue: &[(Policy, WorkIx)],
    unplaced: &Unplaced,
    since: usize,
) -> bool {
    let Some(least) = unplaced.least_quanta else {
        return false;
    };
    if unplaced.can_give_up {
        return true;
    }
    let is_open = |pool: &usize| {
        let mut nodes = state.derived.node_index.free.with(*pool, least);
        nodes.any(|node| {
            let node_state = &state.nodes[node];
            let untouched = node_state.granted.last().is_none_or(|last| *last < since);
            untouched && node_state.free.quanta >= least
        })
    };
    let tree = fair(queue).next().and_then(|work| state.tree_of(work));
    let mut pools = tree.into_iter().flat_map(|tree| state.forest.subtree(tree));
    if pools.any(is_open) {
        return true;
    }
    let rows = fair(queue).map(|work| &state.work[work]);
    let large_work = rows.filter(|it| it.process_quanta >= least && it.missing() + it.placed > 0);
    let mut used = MostUsed::new(large_work.map(|it| it.process_quanta));
    (since..state.granted.len()).any(|at| {
        let node_state = &state.nodes[state.granted[at].node];
        let here = || node_state.granted.iter().filter(|other| **other >= since);
        // Visits each node once.
        if here().next() != Some(&at) {
            return false;
        }
        let quanta = || here().map(|at| state.granted[*at].quanta);
        let large = quanta().filter(|quanta| *quanta >= least).sum::<u64>();
        used.at_most(node_state.free.quanta + quanta().sum::<u64>()) > large
    })
}

/// The most quanta of a hole that processes of given sizes can use (subset sum).
struct MostUsed {
    /// Quanta of one process, each size once.
    sizes: Vec<usize>,
    /// By quanta of the hole.
    most: Vec<u64>,
}

impl MostUsed {
    fn new(sizes: impl Iterator<Item = u64>) -> Self {
        let mut few = BitSet::default();
        // Larger processes fit into no hole below LARGE.
        let small = sizes.filter(|quanta| (1..LARGE).contains(quanta));
        for quanta in small.filter_map(|quanta| usize::try_from(quanta).ok()) {
            few.insert(quanta);
        }
        Self {
            sizes: few.iter().collect(),
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
            let most = self.sizes.iter().filter_map(with).max();
            self.most.push(most.unwrap_or(0));
        }
        self.most[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_used_up_to_the_best_sum_of_process_sizes() {
        let mut used = MostUsed::new([8, 3, 3].into_iter());
        let most = [0, 2, 3, 5, 6, 8, 10, 11].map(|hole| used.at_most(hole));
        assert_eq!(most, [0, 0, 3, 3, 6, 8, 9, 11]);
        assert_eq!(used.at_most(LARGE + 1), LARGE + 1);
    }
}
