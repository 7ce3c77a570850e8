//! Numbered events for the owner and other readers.

use hayward_vocabulary::AllocationId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A reported worker died or left without an order of the owner (WP-8).
    ResourceRemoved,
    /// A new leader loaded the pool; the owner must connect again.
    ReconnectRequested,
    /// The pool stopped because of too many failures.
    PoolFailed,
    /// Information only.
    Info,
}

impl EventKind {
    pub const ALL: [Self; 4] = [
        Self::ResourceRemoved,
        Self::ReconnectRequested,
        Self::PoolFailed,
        Self::Info,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ResourceRemoved => "RESOURCE_REMOVED",
            Self::ReconnectRequested => "RECONNECT_REQUESTED",
            Self::PoolFailed => "POOL_FAILED",
            Self::Info => "INFO",
        }
    }
}

/// An event for the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerEvent {
    /// Sequence number, from 1.
    pub seq: u64,
    pub kind: EventKind,
    pub worker: Option<AllocationId>,
    pub text: String,
}
