//! Whose turn it is: groups by priority; within a group children before their parents' pools;
//! within a pool the oldest first.

use crate::{books::Books, how_much::groups, snapshot::Policy};

/// All admitted work of one tree in the order in which it is served.
pub(crate) fn in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    let mut order = Vec::new();
    for (policy, classes) in groups(books, tree) {
        let of = |class: &usize| {
            let pool = books.classes[*class].pool;
            let turn = pool.map_or(usize::MAX, |pool| books.forest.turn(pool));
            let requests = books.classes[*class].requests.iter();
            requests.map(move |at| (turn, *at))
        };
        let mut work: Vec<(usize, usize)> = classes.iter().flat_map(of).collect();
        work.sort_by_cached_key(|(turn, at)| (*turn, books.requests[*at].age()));
        order.extend(work.into_iter().map(|(_, at)| (policy, at)));
    }
    order
}
