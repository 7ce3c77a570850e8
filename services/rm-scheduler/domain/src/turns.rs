//! Whose turn it is: groups by priority; within a group children before their parents' pools;
//! within a pool the oldest first.

use std::cmp::Reverse;

use crate::{books::Books, how_much::groups, snapshot::Policy};

/// All admitted work of one tree in the order in which it is served.
pub(crate) fn in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    let mut order = Vec::new();
    for (policy, classes) in groups(books, tree) {
        let mut work: Vec<usize> = classes
            .iter()
            .flat_map(|class| books.classes[*class].requests.iter().copied())
            .collect();
        let depth = |at: usize| books.home(at).map_or(0, |pool| books.forest.depth(pool));
        work.sort_by_cached_key(|at| {
            (
                Reverse(depth(*at)),
                books.home(*at),
                books.requests[*at].age(),
            )
        });
        order.extend(work.into_iter().map(|at| (policy, at)));
    }
    order
}
