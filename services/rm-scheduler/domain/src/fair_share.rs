//! The round of the fair-share planner, as a table of contents.

use crate::{
    Planner, books::Books, cap, how_much, overage, plan::Plan, reach, shares, snapshot::Snapshot,
    vacate, verdict, what_of,
};

/// Weighted shares by class, user and job; fixed shares and reservations beside them.
#[derive(Debug, Clone, Copy, Default)]
pub struct FairShare;

impl Planner for FairShare {
    fn schedule(&self, snapshot: &Snapshot) -> Plan {
        // 1. Who asks, what is held where, which class serves whom.
        let mut books = Books::open(snapshot);
        // 2. What has to leave whatever anybody is due.
        vacate::faults(&mut books);
        // 3. What each piece of work could hold, and how much of it it may use now.
        reach::measure(&mut books);
        cap::set_caps(&mut books);
        let trees: Vec<usize> = books.forest.roots().collect();
        for tree in trees {
            // 4. How many processes each is due.
            how_much::count(&mut books, tree);
            // 5. On which nodes.
            what_of::place_counted(&mut books, tree);
            // 6. Who has to make room.
            overage::evict(&mut books, tree);
            // 7. What nobody is due is lent.
            what_of::lend_idle(&mut books, tree);
        }
        // 8. Why each has what it has.
        Plan {
            round: snapshot.round,
            at: snapshot.now,
            verdicts: verdict::all(&books),
            shares: shares::of(&books),
            vacates: books.vacates.into_values().collect(),
            grants: books.grants,
        }
    }
}
