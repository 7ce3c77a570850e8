//! Decides how a process that must leave does so: at once, or after its successor has a place.
//!
//! To reserve the place first, a round is planned as if the process were leaving. The place for its
//! successor is then found and checked like any other. The process is ordered to leave together
//! with the grant. Without a grant, the process stays.

use hayward_vocabulary::WorkId;

use crate::output::plan::Grant;

/// Facts about a process that could be ordered to leave now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that any of the others may go with"
)]
pub struct Leaver {
    /// True if it is the only process of its work. Processes of jobs have no successor.
    pub process_of_a_service: bool,
    /// True if the grace period or deadline is over, or there was none.
    pub time_is_over: bool,
    /// True if its standby runs elsewhere and takes over.
    pub taken_over: bool,
    /// True if its owner has already ordered a successor.
    pub moved_by_order: bool,
    /// True if it is itself a successor whose predecessor has not ended.
    pub awaits_its_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The process stays, because it is already being moved in another way.
    Stay,
    /// The process is ordered to leave once its successor has a place.
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

/// Returns for each process that needs a place, in order, whether one was found. Each grant serves
/// one process.
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
