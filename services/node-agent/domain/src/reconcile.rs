//! From what is wanted and what is there to what must be done.
//!
//! Invariants: an incarnation is started at most once (I3), because whatever was ever started stays
//! in `actual` until its entry is gone; an order older than one already obeyed changes nothing
//! (I7); nothing is ended or forgotten for being absent until the desired set has been seen in
//! full: no news of an entry is not news of no entry; a word not understood holds everything as it
//! is; nothing exclusive is started without a lease, nor after a lease that ran out (I4).
//! Doing the actions and deciding again gives no action twice.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, ExitCause};

/// What is wanted of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub incarnation: u64,
    /// Epoch of the writer that ordered it.
    pub epoch: u64,
    pub goal: Goal,
    /// It runs under the lease of the node, or not at all (I4).
    pub exclusive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Run,
    Stop,
    /// A word of a later version.
    Hold,
}

/// What the agent knows of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actual {
    pub incarnation: u64,
    /// Newest epoch obeyed for this container.
    pub epoch: u64,
    pub phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The intent is on disk; the program may or may not run.
    Launching,
    Running,
    Stopping,
    /// Over; the exit is kept until the entry is gone.
    Ended,
}

impl Phase {
    pub fn is_live(self) -> bool {
        self != Self::Ended
    }
}

/// Everything there is to decide on.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    pub desired: BTreeMap<AllocationId, Wanted>,
    /// True once a full answer was absorbed since the agent started.
    pub seen_in_full: bool,
    pub actual: BTreeMap<AllocationId, Actual>,
    /// Entries of the first full set after a damaged journal: they may have been started by a run
    /// of the agent that the journal forgot.
    pub doubtful: BTreeSet<AllocationId>,
    /// The node has a lease under which exclusive work may be started.
    pub leased: bool,
    /// Exclusive entries that were not started when a lease of the node ran out: by the time there
    /// is another one, a successor may run elsewhere.
    pub overtaken: BTreeSet<AllocationId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Journal the intent, then launch.
    Start { id: AllocationId, incarnation: u64 },
    /// Ask it to end.
    Stop { id: AllocationId },
    /// Drop it and everything kept of it.
    Forget { id: AllocationId },
    /// It never ran under this agent's eyes and never will: report this end.
    Conclude {
        id: AllocationId,
        incarnation: u64,
        cause: ExitCause,
    },
}

/// The actions in order of id. What needs nothing has none.
pub fn reconcile(picture: &Picture) -> Vec<Action> {
    let mut actions: Vec<Action> = picture
        .desired
        .iter()
        .filter_map(|(id, wanted)| match picture.actual.get(id) {
            None => first(id, *wanted, picture),
            Some(actual) => next(id, *wanted, *actual),
        })
        .collect();
    if picture.seen_in_full {
        let undesired = picture
            .actual
            .iter()
            .filter(|(id, _)| !picture.desired.contains_key(*id));
        actions.extend(undesired.filter_map(|(id, actual)| end(id, actual.phase)));
    }
    actions
}

/// A container nothing is known of.
fn first(id: &AllocationId, wanted: Wanted, picture: &Picture) -> Option<Action> {
    let doubtful = picture.doubtful.contains(id);
    let overtaken = picture.overtaken.contains(id);
    let id = id.clone();
    let incarnation = wanted.incarnation;
    match wanted.goal {
        Goal::Hold => None,
        // I3: it cannot be proven that it was not started before.
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
        // I4: it waits for a lease.
        Goal::Run if wanted.exclusive && !picture.leased => None,
        Goal::Run => Some(Action::Start { id, incarnation }),
        Goal::Stop => Some(Action::Conclude {
            id,
            incarnation,
            cause: ExitCause::Intended,
        }),
    }
}

fn next(id: &AllocationId, wanted: Wanted, actual: Actual) -> Option<Action> {
    // I7: a writer that lost its lease has nothing to say any more.
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

/// Steps towards having nothing of it left.
fn end(id: &AllocationId, phase: Phase) -> Option<Action> {
    match phase {
        Phase::Launching | Phase::Running => Some(Action::Stop { id: id.clone() }),
        Phase::Stopping => None,
        Phase::Ended => Some(Action::Forget { id: id.clone() }),
    }
}

#[cfg(test)]
mod tests;
