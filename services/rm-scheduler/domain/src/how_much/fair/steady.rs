//! Growth caps move with what work holds, so counting under them alone could hand a remainder back
//! and forth for ever. Therefore everyone is first counted as if growth were free, and only work
//! whose count exceeds its cap is held to it, until nobody exceeds. Where no cap binds, counts do
//! not depend on what is held, and so they stand still.

use super::{Limits, Tables, count_under};
use crate::books::Books;

/// Recounts before all work is held to its cap at once.
const RECOUNTS: usize = 8;

pub(super) fn count(
    books: &mut Books,
    tables: &Tables,
    classes: &[usize],
    work: &[usize],
    limits: &mut Limits,
) {
    for at in work {
        limits.set(*at, allowance(books, *at, books.requests[*at].cap.steady));
    }
    for recount in 0..=RECOUNTS {
        count_under(books, tables, classes, limits);
        let mut exceeds = false;
        for at in work {
            let cap = allowance(books, *at, books.requests[*at].cap.now);
            let bind = recount + 1 == RECOUNTS && limits.of(*at) > cap;
            if books.requests[*at].counted > cap || bind {
                limits.set(*at, cap);
                exceeds = true;
            }
        }
        if !exceeds {
            break;
        }
    }
}

/// What is left of a cap after the shares that rest outside the tables.
fn allowance(books: &Books, request: usize, cap: u64) -> u64 {
    if books.settings.rest_on_closed {
        cap.saturating_sub(books.requests[request].resting)
    } else {
        cap
    }
}
