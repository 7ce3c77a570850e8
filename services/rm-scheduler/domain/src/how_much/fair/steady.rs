//! Growth caps move with what work holds, so counting under them alone could hand a remainder back
//! and forth for ever. Therefore everyone is first counted as if growth were free, and only work
//! whose count exceeds its cap is held to it, until nobody exceeds. Where no cap binds, counts do
//! not depend on what is held, and so they stand still.

use super::{Course, Row, Tables, count_under};
use crate::books::Books;

/// Recounts before all work is held to its cap at once.
const RECOUNTS: usize = 8;

pub(super) fn count(books: &mut Books, tables: &Tables, course: &mut Course) {
    course.limit_all(true, |row| row.allowance(row.steady));
    for recount in 0..=RECOUNTS {
        count_under(books, tables, course);
        if !hold_to_caps(course, recount + 1 == RECOUNTS) {
            break;
        }
    }
}

/// Holds whoever exceeds its cap to it, or everybody; true when that changes anything.
fn hold_to_caps(course: &mut Course, everybody: bool) -> bool {
    let mut exceeds = false;
    let parties = course.classes.iter_mut().flat_map(|(_, parties)| parties);
    for party in parties.filter(|party| party.recounted || everybody) {
        for row in &mut course.rows[party.rows.clone()] {
            let cap = row.allowance(row.now);
            let bind = everybody && row.limit > cap;
            if row.counted > cap || bind {
                row.limit = cap;
                (exceeds, party.moved) = (true, true);
            }
        }
    }
    exceeds
}

impl Row {
    /// What is left of a cap after the shares that rest outside the tables.
    fn allowance(&self, cap: u64) -> u64 {
        cap.saturating_sub(self.resting)
    }
}
