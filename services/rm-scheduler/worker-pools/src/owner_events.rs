//! What the owner and other listeners have to hear, numbered.

use hayward_vocabulary::AllocationId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A worker the owner had reported is dead, and the owner had not ordered it (W8).
    ResourceRemoved,
    /// The pool was read again by a new leader: connect once more.
    ReconnectRequested,
    /// Too many failures: it is stopped.
    PoolFailed,
    /// For whoever watches.
    Info,
}

impl Kind {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Only grows, from 1.
    pub seq: u64,
    pub kind: Kind,
    pub worker: Option<AllocationId>,
    pub text: String,
}
