//! Reasons why work waits, and changes that would unblock it.

pub use hayward_vocabulary::{Unblock, WaitReason as Reason};

/// Reason why work is left out of the entitlement.
#[derive(Debug, Clone)]
pub(crate) struct Deferral {
    pub reason: Reason,
    pub refused: bool,
    pub detail: String,
}
