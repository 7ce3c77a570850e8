//! A second attempt at placing what was counted, largest processes first (W-2, W-3).
//!
//! Serving by age is fair and can leave the last hole a quantum too small. Where it left counted
//! processes without a place, the round's own fair-share placements are taken up again and laid out
//! anew; what is held is never moved. The attempt that leaves less waiting stands.

mod upper_bound;

use std::cmp::Reverse;

use super::attempt::place_in_order;
use crate::{
    input::snapshot::Policy,
    state::{RoundState, WorkState},
};
use upper_bound::Unplaced;

/// What was placed `since` then; `in_turn` when that was in the order of `turns`.
pub(crate) fn improve(
    state: &mut RoundState,
    queue: &[(Policy, usize)],
    since: usize,
    in_turn: impl FnOnce() -> bool,
) {
    if state.granted.len() == since {
        return;
    }
    let wants = Unplaced::of(state, queue);
    let before = wants.waiting_quanta;
    if before == 0 {
        return;
    }
    let is_vain = !upper_bound::could_improve(state, (queue, &wants), since, in_turn);
    // Tests see in every other round that it is, and in the others that nobody misses it.
    let is_put_to_the_test = cfg!(test) && state.snapshot.round.is_multiple_of(2);
    if is_vain && !is_put_to_the_test {
        return;
    }
    let first = lift(state, since);
    let mut by_size: Vec<(Policy, usize)> = queue.to_vec();
    by_size.retain(|(policy, _)| *policy == Policy::FairShare);
    by_size.sort_by_key(|(_, at)| size(state, *at));
    let second = state.granted.len();
    place_in_order(state, &by_size);
    let rows = fair(queue).map(|at| &state.work[at]);
    let after = rows.map(|it| waiting(it) * it.process_quanta).sum::<u64>();
    debug_assert!(!is_vain || after >= before, "there was hope");
    if after >= before {
        lift(state, second);
        for (work, node) in first {
            let (quanta, size) = (state.work[work].process_quanta, state.size(work));
            state.grant(work, node, quanta, size);
        }
    }
}

/// Those whose placements may be taken up again.
fn fair(queue: &[(Policy, usize)]) -> impl Iterator<Item = usize> {
    let fair = queue.iter();
    let fair = fair.filter(|(policy, _)| *policy == Policy::FairShare);
    fair.map(|(_, at)| *at)
}

/// Processes that were counted for it and have no place, among those that could have one at all.
fn waiting(work: &WorkState) -> u64 {
    work.missing().min(work.reach)
}

/// The large ones of a priority go first.
fn size(state: &RoundState, at: usize) -> (i64, Reverse<u64>) {
    let work = &state.work[at];
    let class = work.class.map(|class| state.classes[class].class);
    let priority = class.map_or(i64::MAX, |class| class.priority);
    (priority, Reverse(work.process_quanta))
}

/// Takes this round's fair-share placements up again; returns where they were, in their order. Room
/// that was made for somebody is meant for them again.
fn lift(state: &mut RoundState, since: usize) -> Vec<(usize, usize)> {
    let mut lifted = Vec::new();
    for at in since..state.granted.len() {
        let share = &state.granted[at];
        let (work, node, live, meant) =
            (share.work, share.node, share.live, share.in_reserved_space);
        if live && state.policy(work) == Some(Policy::FairShare) {
            lifted.push((work, node));
            state.cancel(at);
            if meant {
                // Given to another now, that room would be made again, and so for ever.
                state.reserve(work, node);
            }
        }
    }
    lifted
}
