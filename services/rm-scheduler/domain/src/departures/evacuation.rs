//! Decides how a process that must leave does so: at once, or after its successor is granted.
//!
//! To grant the successor first, a round is planned as if the process were already leaving. The
//! planner then chooses a node for the successor like for any other process. If the plan grants the
//! successor, the process is ordered to leave in the same commit. Otherwise the process stays.

use hayward_vocabulary::WorkId;

use crate::output::plan::Grant;

/// Facts about a process that could be ordered to leave now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct LeavingProcess {
    /// True if the process is the only one of its work, so that it needs a successor. Processes of
    /// jobs need none.
    pub is_service_process: bool,
    /// True if the grace period or deadline has passed, or there was none.
    pub deadline_passed: bool,
    /// True if a standby of the process runs elsewhere and takes over.
    pub standby_takes_over: bool,
    /// True if the owner of the process has already ordered a successor.
    pub move_ordered: bool,
    /// True if the process is itself a successor whose predecessor has not ended.
    pub awaits_predecessor: bool,
}

/// How a process that must leave does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepartureMode {
    /// The process stays, because it is already being moved in another way.
    Stay,
    /// The process is ordered to leave once its successor is granted.
    AfterSuccessor,
    /// The process is ordered to leave now.
    Now,
}

/// Returns how the process leaves. A passed deadline takes precedence over all other facts.
#[must_use]
pub fn departure_mode(process: &LeavingProcess) -> DepartureMode {
    if process.deadline_passed {
        DepartureMode::Now
    } else if process.move_ordered || process.awaits_predecessor {
        DepartureMode::Stay
    } else if process.is_service_process && !process.standby_takes_over {
        DepartureMode::AfterSuccessor
    } else {
        DepartureMode::Now
    }
}

/// Returns for each process that needs a successor, in order, whether one was granted. `work` is
/// the work of each process. Each grant serves one process.
#[must_use]
pub fn match_grants(work: &[WorkId], grants: &[Grant]) -> Vec<bool> {
    let mut unmatched: Vec<&WorkId> = grants.iter().map(|grant| &grant.work).collect();
    let take_grant = |work: &WorkId| {
        let index = unmatched.iter().position(|granted| *granted == work);
        index.map(|index| unmatched.swap_remove(index)).is_some()
    };
    work.iter().map(take_grant).collect()
}

#[cfg(test)]
mod tests;
