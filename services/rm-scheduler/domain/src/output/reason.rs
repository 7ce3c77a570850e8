//! Reasons why work waits, and changes that would unblock it.

pub use hayward_vocabulary::{Unblock, WaitReason as Reason};

/// Reason why work is left out of the entitlement in this round.
#[derive(Debug, Clone)]
pub(crate) struct Deferral {
    pub reason: Reason,
    /// True if the work can never be served as it is.
    pub refused: bool,
    /// Explanation for users, as one sentence.
    pub detail: String,
}
