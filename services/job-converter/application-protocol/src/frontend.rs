//! The frontend: the submitter's state machine of an application. It decides whether work may be
//! sent yet.
//!
//! The transition table is that of the current protocol version. Comments note differences from
//! release 1.0 of the protocol.

pub mod application;
mod core_messages;
mod task_transitions;

use serde::{Deserialize, Serialize};

pub use crate::failure::{Failure, FailureCode};
pub use application::{Application, Effect, Head, Input, Step, Transition};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    New,
    Submitted,
    Recovering,
    Accepted,
    Reserving,
    Resuming,
    Running,
    Completed,
    Failing,
    Failed,
    Rejected,
    Killing,
    Killed,
}

impl State {
    pub const ALL: [Self; 13] = [
        Self::New,
        Self::Submitted,
        Self::Recovering,
        Self::Accepted,
        Self::Reserving,
        Self::Resuming,
        Self::Running,
        Self::Completed,
        Self::Failing,
        Self::Failed,
        Self::Rejected,
        Self::Killing,
        Self::Killed,
    ];

    /// Returns true if the state accepts no more tasks.
    pub fn is_dead(self) -> bool {
        use State::{Completed, Failed, Failing, Killed, Killing, Rejected};
        matches!(
            self,
            Completed | Failing | Failed | Rejected | Killing | Killed
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    Submit,
    Recover,
    Accept,
    Reject,
    TryReserve,
    Run,
    UpdateReservation,
    Resume,
    TaskCompleted,
    Complete,
    Fail,
    Kill,
    Killed,
    ReleaseAllocation,
    ReleaseAsk,
}

impl Event {
    pub const ALL: [Self; 15] = [
        Self::Submit,
        Self::Recover,
        Self::Accept,
        Self::Reject,
        Self::TryReserve,
        Self::Run,
        Self::UpdateReservation,
        Self::Resume,
        Self::TaskCompleted,
        Self::Complete,
        Self::Fail,
        Self::Kill,
        Self::Killed,
        Self::ReleaseAllocation,
        Self::ReleaseAsk,
    ];
}

/// Returns the target state of an event. `None` if the event is not legal in this state.
pub fn next(from: State, event: Event) -> Option<State> {
    use State::{
        Accepted, Completed, Failed, Failing, Killed, Killing, New, Recovering, Rejected,
        Reserving, Resuming, Running, Submitted,
    };
    let to = match (event, from) {
        (Event::Submit, New) => Submitted,
        (Event::Recover, New) => Recovering,
        (Event::Accept, Submitted | Recovering) => Accepted,
        (Event::Reject, Submitted) => Rejected,
        (Event::TryReserve, Accepted) | (Event::UpdateReservation, Reserving) => Reserving,
        (Event::Run, Accepted | Reserving | Resuming | Running) => Running,
        (Event::Resume, Reserving) | (Event::TaskCompleted, Resuming) => Resuming,
        (Event::Complete, Running) => Completed,
        (Event::Fail, Submitted | Accepted | Reserving | Running) => Failing,
        (Event::Fail, Failing | Rejected) => Failed,
        (Event::Kill, Accepted | Reserving | Running) => Killing,
        (Event::Killed, Killing) => Killed,
        (Event::ReleaseAllocation | Event::ReleaseAsk, _) => return after_release(from),
        _ => return None,
    };
    Some(to)
}

/// Returns the state after a release. Release 1.0 refused it for an application that did not run
/// yet.
fn after_release(from: State) -> Option<State> {
    match from {
        State::Accepted | State::Reserving | State::Running => Some(State::Running),
        State::Failing | State::Resuming => Some(from),
        _ => None,
    }
}
