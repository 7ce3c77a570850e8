//! What is asked of placements, and the answers.

use hayward_vocabulary::{Timestamp, UserName, WorkId};

use crate::placement::Placement;
use crate::status::{Destination, Status};

#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How long a request waits where it does not say (17).
    pub request_timeout_ms: u64,
    /// How long a process is given to end before its stop counts as failed.
    pub stop_timeout_ms: u64,
}

/// What a controller asks for (3.1).
#[derive(Debug, Clone)]
pub struct PlacementRequest {
    pub uuid: String,
    pub deployment_id: String,
    pub processor_id: WorkId,
    pub destination_host: Destination,
    pub request_expiry_ms: Option<u64>,
    /// Also to a host outside the machines of the service.
    pub force: bool,
    pub timestamp: Timestamp,
    pub user: UserName,
    pub requested_by: String,
    /// Refuse rather than queue behind an action in flight.
    pub reject_if_busy: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    New(Placement),
    /// The same was asked before.
    Repeated(Placement),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The uuid stands for something else (5.2).
    UuidReused,
    /// This one is in flight, or waits before it.
    Busy(String),
    NotFound,
    /// Too late to withdraw.
    AlreadyStarted(Status),
}
