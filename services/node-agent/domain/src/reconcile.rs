//! Compares desired and actual containers, and returns the actions to take.
//!
//! Invariants:
//! - An incarnation starts at most once: a started container stays in `actual` until its desired
//!   entry is removed (I3).
//! - An order older than one already obeyed changes nothing.
//! - A container missing from the desired set is stopped only after the full set was received.
//! - An unknown goal changes nothing.
//! - Exclusive work never starts without a lease, nor after a lease that has expired.
//! - After all actions were executed, [`reconcile`] returns none of them again.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, ExitCause};

/// Desired state of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DesiredContainer {
    pub incarnation: u64,
    /// Epoch of container-manager when it ordered the container.
    pub epoch: u64,
    pub goal: Goal,
    /// Whether the container may run only under the lease of the node (I4).
    pub exclusive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Run,
    Stop,
    /// A goal of a later version that this agent does not know.
    Unknown,
}

/// Actual state of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActualContainer {
    pub incarnation: u64,
    /// Newest epoch of which an order was obeyed for this container.
    pub epoch: u64,
    pub phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The intent is in the journal. The program may or may not run.
    Launching,
    Running,
    Stopping,
    /// The container has ended. Its exit stays until the entry is removed.
    Ended,
}

impl Phase {
    pub fn is_live(self) -> bool {
        self != Self::Ended
    }
}

/// Input of [`reconcile`].
#[derive(Debug, Clone, Default)]
pub struct State {
    pub desired: BTreeMap<AllocationId, DesiredContainer>,
    /// Whether the full desired set was received since the agent started.
    pub full_set_received: bool,
    pub actual: BTreeMap<AllocationId, ActualContainer>,
    /// Entries that a previous agent may have started, because the journal does not prove the
    /// contrary.
    pub doubtful: BTreeSet<AllocationId>,
    /// Whether the node has a lease under which exclusive work may start.
    pub has_lease: bool,
    /// Exclusive entries that had not started when a lease expired. Another node may run their work
    /// by the time of the next lease.
    pub lease_missed: BTreeSet<AllocationId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Writes the intent to the journal, then launches the container.
    Start { id: AllocationId, incarnation: u64 },
    /// Asks the container to end.
    Stop { id: AllocationId },
    /// Removes the container and all its data.
    Forget { id: AllocationId },
    /// Reports this end for a container that did not run under this agent and never will.
    Conclude {
        id: AllocationId,
        incarnation: u64,
        cause: ExitCause,
    },
}

/// Returns the actions to take, ordered by id.
pub fn reconcile(state: &State) -> Vec<Action> {
    let mut actions: Vec<Action> = state
        .desired
        .iter()
        .filter_map(|(id, desired)| match state.actual.get(id) {
            None => action_for_new(id, *desired, state),
            Some(actual) => action_for_existing(id, *desired, *actual),
        })
        .collect();
    if state.full_set_received {
        let undesired = state
            .actual
            .iter()
            .filter(|(id, _)| !state.desired.contains_key(*id));
        actions.extend(undesired.filter_map(|(id, actual)| action_to_remove(id, actual.phase)));
    }
    actions
}

/// Returns the action for a container that is not in `actual`.
fn action_for_new(id: &AllocationId, desired: DesiredContainer, state: &State) -> Option<Action> {
    let doubtful = state.doubtful.contains(id);
    let lease_missed = state.lease_missed.contains(id);
    let id = id.clone();
    let incarnation = desired.incarnation;
    match desired.goal {
        Goal::Unknown => None,
        // The container may have been started before (I3).
        _ if doubtful => Some(Action::Conclude {
            id,
            incarnation,
            cause: ExitCause::LaunchUnknown,
        }),
        Goal::Run if lease_missed => Some(Action::Conclude {
            id,
            incarnation,
            cause: ExitCause::Node,
        }),
        // The container waits for a lease (I4).
        Goal::Run if desired.exclusive && !state.has_lease => None,
        Goal::Run => Some(Action::Start { id, incarnation }),
        Goal::Stop => Some(Action::Conclude {
            id,
            incarnation,
            cause: ExitCause::Intended,
        }),
    }
}

fn action_for_existing(
    id: &AllocationId,
    desired: DesiredContainer,
    actual: ActualContainer,
) -> Option<Action> {
    // The order is from a container-manager that is not the leader any more (I7).
    if desired.epoch < actual.epoch || desired.incarnation < actual.incarnation {
        return None;
    }
    if desired.incarnation > actual.incarnation && desired.goal != Goal::Unknown {
        return action_to_remove(id, actual.phase);
    }
    match desired.goal {
        Goal::Stop if matches!(actual.phase, Phase::Launching | Phase::Running) => {
            Some(Action::Stop { id: id.clone() })
        }
        Goal::Run | Goal::Stop | Goal::Unknown => None,
    }
}

/// Returns the next step towards the removal of a container.
fn action_to_remove(id: &AllocationId, phase: Phase) -> Option<Action> {
    match phase {
        Phase::Launching | Phase::Running => Some(Action::Stop { id: id.clone() }),
        Phase::Stopping => None,
        Phase::Ended => Some(Action::Forget { id: id.clone() }),
    }
}

#[cfg(test)]
mod tests;
