//! Live checks: invariants of the fleet, checked in the working set of a running scheduler.
//!
//! Input: the snapshot, the verdicts of the last round, and the receipts. Output: a finding for
//! each invariant, with evidence if it is violated.
//!
//! [`Sequence`] orders changes by numbers, without clocks (R4). [`Memory`] retains from check to
//! check how long a condition has lasted.
//!
//! The checks never change the working set, and share no code with a planner. A fault that the
//! scheduler could not have prevented is no violation.

mod allocated_quanta;
mod change_order;
mod gangs;
mod justified_preemptions;
mod nodes;
mod waits;

use std::collections::BTreeMap;

use hayward_vocabulary::invariant_finding::Ages;
use hayward_vocabulary::{NodeName, WorkId};

pub use allocated_quanta::{Account, check_accounts};
pub use change_order::Sequence;
pub use gangs::check_gangs;
pub use justified_preemptions::check_preemptions;
pub use nodes::{BLOCKED, OVER_COMMIT, check_blocked_nodes, check_over_commit};
pub use waits::{CONSERVING, EXPLAINED, WaitCheckInput, check_explanations, check_work_conserving};

/// State that is retained from one check to the next.
#[derive(Debug, Default)]
pub struct Memory {
    /// Gangs that hold only a part of their minimum, with the number of processes that they lack.
    ///
    /// The key is the application and the name of the gang.
    torn_gangs: Ages<(String, String), u64>,
    /// Waiting work, each with a node that could take it.
    suspicions: BTreeMap<(WorkId, NodeName), waits::Suspicion>,
    /// Last work for which a check searched for a node. The next check continues after this work.
    last_tried: Option<WorkId>,
}

#[cfg(test)]
mod tests;
