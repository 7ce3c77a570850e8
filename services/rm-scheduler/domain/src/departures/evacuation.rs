//! How something that has to leave does so (blocklist 10; container placement 3.3): with its next
//! place reserved before it is told to, or at once.
//!
//! To reserve first, a round is planned as if it were leaving already, so that its successor's
//! place is found, counted and checked as any other. It is told to leave together with the grant,
//! and stays as it was where there was none. So at every moment it has a place, and counts once.

use hayward_vocabulary::WorkId;

use crate::output::plan::Grant;

/// What is known of something that could be told to leave now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that any of the others may go with"
)]
pub struct Leaver {
    /// The one process of its work; parts of jobs have no successor of their own.
    pub process_of_a_service: bool,
    /// Grace or deadline is over, or there never was any.
    pub time_is_over: bool,
    /// What stands by for it runs elsewhere and takes over (blocklist, scenario 29).
    pub taken_over: bool,
    /// A place is asked for in its stead already, by an order of its owner.
    pub moved_by_order: bool,
    /// It is a successor itself, and what it takes over from has not ended.
    pub awaits_its_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is on its way by another hand.
    Stay,
    /// Told when its next place is reserved.
    PlaceFirst,
    Now,
}

#[must_use]
pub fn way(leaver: &Leaver) -> Way {
    if leaver.time_is_over {
        Way::Now
    } else if leaver.moved_by_order || leaver.awaits_its_start {
        Way::Stay
    } else if leaver.process_of_a_service && !leaver.taken_over {
        Way::PlaceFirst
    } else {
        Way::Now
    }
}

/// For each of those a place was looked for, in the order they were given: was one found? A grant
/// is one place, and serves one of them.
#[must_use]
pub fn found(sought: &[WorkId], grants: &[Grant]) -> Vec<bool> {
    let mut left: Vec<&WorkId> = grants.iter().map(|grant| &grant.work).collect();
    let take = |work: &WorkId| {
        let at = left.iter().position(|granted| *granted == work);
        at.map(|at| left.swap_remove(at)).is_some()
    };
    sought.iter().map(take).collect()
}

#[cfg(test)]
mod tests;
