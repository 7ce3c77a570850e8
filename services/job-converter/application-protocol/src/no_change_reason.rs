//! Refusals: inputs that changed nothing, and the reasons (D12).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The event is not legal in this state.
    NotLegalHere,
    /// The input is a repetition, and the state already matches it.
    AlreadySo,
    UnknownTask,
    /// The core has not accepted the application.
    NotAccepted,
    /// The application accepts nothing new.
    ApplicationEnded,
    /// The application was removed.
    ApplicationGone,
    /// No allocation has this key.
    NotAllocated,
    /// A placeholder is held for the ask. The replacement pass places it.
    HasPlaceholder,
    /// No release was requested.
    NoRelease,
    /// The message has no effect on this machine.
    Ignored,
}

/// An input that changed nothing, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} is refused in state {state}: {reason:?}")]
pub struct Refusal {
    pub reason: Reason,
    pub event: String,
    pub state: String,
}

impl Refusal {
    pub(crate) fn new(
        reason: Reason,
        event: &impl std::fmt::Debug,
        state: &impl std::fmt::Debug,
    ) -> Self {
        Self {
            reason,
            event: format!("{event:?}"),
            state: format!("{state:?}"),
        }
    }
}
