//! Compares desired and actual containers, and returns the actions to take.
//!
//! Invariants:
//! - An incarnation starts at most once: a started container stays in `actual` until its entry is
//!   removed (I3).
//! - An order older than one already obeyed changes nothing.
//! - A container missing from the desired set is stopped only after the full set was received.
//! - An unknown goal changes nothing.
//! - Exclusive work never starts without a lease, nor after a lease that has expired.
//! - After the actions were taken, the same decision returns none of them again.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, ExitCause};

/// Desired state of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub incarnation: u64,
    /// Term of the manager that ordered it.
    pub epoch: u64,
    pub goal: Goal,
    /// It may run only under the lease of the node (I4).
    pub exclusive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Run,
    Stop,
    /// An unknown goal, of a later version.
    Hold,
}

/// Actual state of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actual {
    pub incarnation: u64,
    /// Newest term obeyed for this container.
    pub epoch: u64,
    pub phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The intent is in the journal; the program may or may not run.
    Launching,
    Running,
    Stopping,
    /// Ended; the exit is kept until the entry is removed.
    Ended,
}

impl Phase {
    pub fn is_live(self) -> bool {
        self != Self::Ended
    }
}

/// Input of the decision.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub desired: BTreeMap<AllocationId, Wanted>,
    /// Whether the full desired set was received since the agent started.
    pub seen_in_full: bool,
    pub actual: BTreeMap<AllocationId, Actual>,
    /// Entries of the first full set after a damaged journal. A previous agent may have started
    /// them.
    pub doubtful: BTreeSet<AllocationId>,
    /// Whether the node has a lease under which exclusive work may start.
    pub leased: bool,
    /// Exclusive entries that had not started when a lease expired. A successor may run elsewhere
    /// by the time of the next lease.
    pub overtaken: BTreeSet<AllocationId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write the intent to the journal, then launch.
    Start { id: AllocationId, incarnation: u64 },
    /// Ask it to end.
    Stop { id: AllocationId },
    /// Remove it and all its data.
    Forget { id: AllocationId },
    /// It did not run under this agent and never will: report this end.
    Conclude {
        id: AllocationId,
        incarnation: u64,
        cause: ExitCause,
    },
}

/// The actions, in order of id.
pub fn reconcile(state: &State) -> Vec<Action> {
    let mut actions: Vec<Action> = state
        .desired
        .iter()
        .filter_map(|(id, wanted)| match state.actual.get(id) {
            None => first(id, *wanted, state),
            Some(actual) => next(id, *wanted, *actual),
        })
        .collect();
    if state.seen_in_full {
        let undesired = state
            .actual
            .iter()
            .filter(|(id, _)| !state.desired.contains_key(*id));
        actions.extend(undesired.filter_map(|(id, actual)| end(id, actual.phase)));
    }
    actions
}

/// A container that is not in `actual`.
fn first(id: &AllocationId, wanted: Wanted, state: &State) -> Option<Action> {
    let doubtful = state.doubtful.contains(id);
    let overtaken = state.overtaken.contains(id);
    let id = id.clone();
    let incarnation = wanted.incarnation;
    match wanted.goal {
        Goal::Hold => None,
        // It may have been started before (I3).
        _ if doubtful => Some(Action::Conclude {
            id,
            incarnation,
            cause: ExitCause::LaunchUnknown,
        }),
        Goal::Run if overtaken => Some(Action::Conclude {
            id,
            incarnation,
            cause: ExitCause::Node,
        }),
        // It waits for a lease (I4).
        Goal::Run if wanted.exclusive && !state.leased => None,
        Goal::Run => Some(Action::Start { id, incarnation }),
        Goal::Stop => Some(Action::Conclude {
            id,
            incarnation,
            cause: ExitCause::Intended,
        }),
    }
}

fn next(id: &AllocationId, wanted: Wanted, actual: Actual) -> Option<Action> {
    // The order is from a manager that has lost its term (I7).
    if wanted.epoch < actual.epoch || wanted.incarnation < actual.incarnation {
        return None;
    }
    if wanted.incarnation > actual.incarnation && wanted.goal != Goal::Hold {
        return end(id, actual.phase);
    }
    match wanted.goal {
        Goal::Stop if matches!(actual.phase, Phase::Launching | Phase::Running) => {
            Some(Action::Stop { id: id.clone() })
        }
        Goal::Run | Goal::Stop | Goal::Hold => None,
    }
}

/// The next step towards its removal.
fn end(id: &AllocationId, phase: Phase) -> Option<Action> {
    match phase {
        Phase::Launching | Phase::Running => Some(Action::Stop { id: id.clone() }),
        Phase::Stopping => None,
        Phase::Ended => Some(Action::Forget { id: id.clone() }),
    }
}

#[cfg(test)]
mod tests;
