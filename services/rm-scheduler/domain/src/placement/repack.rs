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
    state::{Books, Request},
};
use upper_bound::Wants;

/// What was placed `since` then; `in_turn` when that was in the order of `turns`.
pub(crate) fn improve(
    books: &mut Books,
    turns: &[(Policy, usize)],
    since: usize,
    in_turn: impl FnOnce() -> bool,
) {
    if books.pending.len() == since {
        return;
    }
    let wants = Wants::of(books, turns);
    let before = wants.waiting;
    if before == 0 {
        return;
    }
    let is_vain = !upper_bound::is_left(books, (turns, &wants), since, in_turn);
    // Tests see in every other round that it is, and in the others that nobody misses it.
    let is_put_to_the_test = cfg!(test) && books.snapshot.round.is_multiple_of(2);
    if is_vain && !is_put_to_the_test {
        return;
    }
    let first = lift(books, since);
    let mut by_size: Vec<(Policy, usize)> = turns.to_vec();
    by_size.retain(|(policy, _)| *policy == Policy::FairShare);
    by_size.sort_by_key(|(_, at)| size(books, *at));
    let second = books.pending.len();
    place_in_order(books, &by_size);
    let rows = fair(turns).map(|at| &books.requests[at]);
    let after = rows.map(|it| waiting(it) * it.order).sum::<u64>();
    debug_assert!(!is_vain || after >= before, "there was hope");
    if after >= before {
        lift(books, second);
        for (request, machine) in first {
            let (order, size) = (books.requests[request].order, books.size(request));
            books.grant(request, machine, order, size);
        }
    }
}

/// Those whose placements may be taken up again.
fn fair(turns: &[(Policy, usize)]) -> impl Iterator<Item = usize> {
    let fair = turns.iter();
    let fair = fair.filter(|(policy, _)| *policy == Policy::FairShare);
    fair.map(|(_, at)| *at)
}

/// Processes that were counted for it and have no place, among those that could have one at all.
fn waiting(request: &Request) -> u64 {
    request.missing().min(request.reach)
}

/// The large ones of a priority go first.
fn size(books: &Books, at: usize) -> (i64, Reverse<u64>) {
    let request = &books.requests[at];
    let class = request.class.map(|class| books.classes[class].class);
    let priority = class.map_or(i64::MAX, |class| class.priority);
    (priority, Reverse(request.order))
}

/// Takes this round's fair-share placements up again; returns where they were, in their order. Room
/// that was made for somebody is meant for them again.
fn lift(books: &mut Books, since: usize) -> Vec<(usize, usize)> {
    let mut lifted = Vec::new();
    for at in since..books.pending.len() {
        let share = &books.pending[at];
        let (request, machine, live, meant) =
            (share.request, share.machine, share.live, share.meant);
        if live && books.policy(request) == Some(Policy::FairShare) {
            lifted.push((request, machine));
            books.cancel(at);
            if meant {
                // Given to another now, that room would be made again, and so for ever.
                books.speak_for(request, machine);
            }
        }
    }
    lifted
}
