//! States of an application in the core, and the transition table of the current protocol version.
//! Release 1.0 of the protocol also had a state Starting.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    New,
    Accepted,
    Running,
    Completing,
    Completed,
    Failing,
    Failed,
    Rejected,
    Resuming,
    Expired,
}

impl State {
    pub const ALL: [Self; 10] = [
        Self::New,
        Self::Accepted,
        Self::Running,
        Self::Completing,
        Self::Completed,
        Self::Failing,
        Self::Failed,
        Self::Rejected,
        Self::Resuming,
        Self::Expired,
    ];

    /// Returns true if the state accepts no more asks.
    pub fn is_over(self) -> bool {
        use State::{Completed, Expired, Failed, Failing, Rejected};
        matches!(self, Completed | Failing | Failed | Rejected | Expired)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    Reject,
    Run,
    Complete,
    Fail,
    Resume,
    Expire,
}

impl Event {
    pub const ALL: [Self; 6] = [
        Self::Reject,
        Self::Run,
        Self::Complete,
        Self::Fail,
        Self::Resume,
        Self::Expire,
    ];
}

/// Returns the target state of an event. `None` if the event is not legal in this state.
pub fn next(from: State, event: Event) -> Option<State> {
    use State::{
        Accepted, Completed, Completing, Expired, Failed, Failing, New, Rejected, Resuming, Running,
    };
    let to = match (event, from) {
        (Event::Reject, New) => Rejected,
        (Event::Run, New | Resuming) => Accepted,
        (Event::Run, Accepted | Running | Completing) => Running,
        (Event::Complete, Accepted | Running) => Completing,
        (Event::Complete, Completing) => Completed,
        (Event::Fail, New | Accepted | Running) => Failing,
        (Event::Fail, Failing) => Failed,
        (Event::Resume, New | Accepted) => Resuming,
        (Event::Expire, Completed | Failed | Rejected) => Expired,
        _ => return None,
    };
    Some(to)
}
