//! Why something was not done (D12): what other systems drop in silence is answered here (17.3).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The state has no such event.
    NotLegalHere,
    /// It is so already, or was told before.
    AlreadySo,
    UnknownTask,
    /// The core never accepted it.
    NotAccepted,
    /// The application takes nothing new.
    ApplicationEnded,
    /// The application was removed.
    ApplicationGone,
    /// Nothing was allocated under this key.
    NotAllocated,
    /// A placeholder is held for it, and gives way in the replacement pass.
    HasPlaceholder,
    /// Nobody is asked to release this.
    NoRelease,
    /// News that means nothing to this side (3.5).
    Ignored,
}

/// An event that was answered, and changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} is not done in state {state}: {reason:?}")]
pub struct Refused {
    pub reason: Reason,
    pub event: String,
    pub state: String,
}

impl Refused {
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
