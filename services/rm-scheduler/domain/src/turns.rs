//! Whose turn it is: groups by priority; within a group children before their parents' pools;
//! within a pool the oldest first.

use crate::{books::Books, how_much::groups, snapshot::Policy};

/// All admitted work of one tree in the order in which it is served.
pub(crate) fn in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    // The register keeps work by age, so it is only dealt out: to each group and pool its own.
    let mut rows: Vec<(Policy, Vec<usize>)> = Vec::new();
    let mut row_of = vec![None; books.classes.len()];
    for (policy, mut classes) in groups(books, tree) {
        let turn = |class: &usize| {
            let pool = books.classes[*class].pool;
            pool.map_or(usize::MAX, |pool| books.forest.turn(pool))
        };
        classes.sort_by_key(turn);
        for alike in classes.chunk_by(|a, b| turn(a) == turn(b)) {
            for class in alike {
                row_of[*class] = Some(rows.len());
            }
            let users = alike
                .iter()
                .flat_map(|class| books.classes[*class].users.values());
            let work = users.map(Vec::len).sum();
            rows.push((policy, Vec::with_capacity(work)));
        }
    }
    for at in books.register.by_age.iter().copied() {
        if let Some(row) = books.requests[at].class.and_then(|class| row_of[class]) {
            rows[row].1.push(at);
        }
    }
    for (policy, row) in &mut rows {
        if *policy == Policy::Reserve {
            // Its orders may be those of nodes that were promised.
            row.sort_by(|a, b| books.requests[*a].age().cmp(&books.requests[*b].age()));
        }
    }
    let mut turns = Vec::with_capacity(rows.iter().map(|(_, row)| row.len()).sum());
    for (policy, row) in rows {
        turns.extend(row.into_iter().map(|at| (policy, at)));
    }
    turns
}
