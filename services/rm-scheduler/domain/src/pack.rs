//! A second attempt at placing what was counted, largest processes first (W-2, W-3).
//!
//! Serving by age is fair and can leave the last hole a quantum too small. Where it left counted
//! processes without a place, the round's own fair-share placements are taken up again and laid out
//! anew; what is held is never moved. The attempt that leaves less waiting stands.

use std::cmp::Reverse;

use crate::{books::Books, snapshot::Policy, what_of::place_in_order};

pub(crate) fn improve(books: &mut Books, (tree, turns): (usize, &[(Policy, usize)]), since: usize) {
    let fair: Vec<usize> = turns
        .iter()
        .filter(|(policy, _)| *policy == Policy::FairShare)
        .map(|(_, at)| *at)
        .collect();
    let before = waiting(books, &fair);
    if before == 0 || books.pending.len() == since || is_in_vain(books, tree, &fair) {
        return;
    }
    let first = lift(books, since);
    let mut by_size: Vec<(i64, Reverse<u64>, usize)> = fair
        .iter()
        .enumerate()
        .map(|(turn, at)| {
            (
                priority(books, *at),
                Reverse(books.requests[*at].order),
                turn,
            )
        })
        .collect();
    by_size.sort_unstable();
    let order: Vec<(Policy, usize)> = by_size
        .into_iter()
        .map(|(_, _, turn)| (Policy::FairShare, fair[turn]))
        .collect();
    let second = books.pending.len();
    place_in_order(books, &order);
    if waiting(books, &fair) >= before {
        lift(books, second);
        for (request, machine) in first {
            let (order, size) = (books.requests[request].order, books.size(request));
            books.grant(request, machine, order, size);
        }
    }
}

/// Laid out anew, it can only do better by using room that is left: where there is none, each
/// quantum that somebody gains another one loses.
fn is_in_vain(books: &Books, tree: usize, fair: &[usize]) -> bool {
    // Of work that has more to come than it reaches, not all quanta count.
    let counts_in_full = |at: &usize| {
        let request = &books.requests[*at];
        request.missing().saturating_add(request.placed) <= request.reach
    };
    let pools = books.forest.subtree(tree).iter();
    let mut with_room = pools.flat_map(|pool| books.sets.free_nodes.of_pool(*pool));
    fair.iter().all(counts_in_full) && !with_room.any(|machine| has_room_left(books, machine))
}

/// Where nothing was placed in this round, room that is meant for somebody stays meant for him, and
/// it did not suffice.
fn has_room_left(books: &Books, machine: usize) -> bool {
    let place = &books.machines[machine];
    let is_kept = !place.spoken.is_empty() && place.pending.is_empty();
    !is_kept || books.coming_order(machine) > 0
}

fn priority(books: &Books, at: usize) -> i64 {
    let class = books.requests[at].class;
    class.map_or(i64::MAX, |class| books.classes[class].class.priority)
}

/// Quanta that were counted and have no place, among what could have one at all.
fn waiting(books: &Books, requests: &[usize]) -> u64 {
    requests
        .iter()
        .map(|at| &books.requests[*at])
        .map(|request| request.missing().min(request.reach) * request.order)
        .sum()
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
