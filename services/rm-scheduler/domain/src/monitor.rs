//! The invariants as they can be seen in the working set of a scheduler that runs (section 1 of the
//! reliability rules): each is a pure question to the snapshot and to what is kept beside it, and
//! shares no code with those who plan.
//!
//! A rule that needs to know what came first is told by [`Sequence`], which counts changes instead
//! of reading clocks (R4). A rule that needs to know how long something has lasted remembers it
//! from look to look in [`Memory`].

mod accounts;
mod gangs;
mod node_space;
mod receipts;
mod sequence;
mod waits;

use std::collections::BTreeMap;

use hayward_vocabulary::invariant::Ages;
use hayward_vocabulary::{NodeName, WorkId};

pub use accounts::{Book, accounts_balance};
pub use gangs::gangs_are_whole;
pub use node_space::{BLOCKED, OVER_COMMIT, blocked_means_blocked, no_over_commit};
pub use receipts::preemption_is_justified;
pub use sequence::Sequence;
pub use waits::{Asked, CONSERVING, EXPLAINED, explanations_are_true, work_conserving};

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub struct Memory {
    /// Gangs that have some of what they need, and how much they lack.
    torn: Ages<(String, String), u64>,
    /// Work that waits although a node would take it.
    overlooked: BTreeMap<(WorkId, NodeName), waits::Suspicion>,
    /// The last of those that were tried: the next look goes on behind it.
    tried: Option<WorkId>,
}

#[cfg(test)]
mod tests;
