//! Why work waits, and what would help.

pub use hayward_vocabulary::{Unblock, WaitReason as Reason};

/// Why work is left out of counting.
#[derive(Debug, Clone)]
pub(crate) struct Deferral {
    pub reason: Reason,
    pub refused: bool,
    pub detail: String,
}
