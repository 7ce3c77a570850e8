//! Requests to place a processor, and their answers.

use hayward_vocabulary::{Timestamp, UserName, WorkId};

use crate::placement::Placement;
use crate::status::{Destination, Status};

#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Default time that a request for a place may wait.
    pub request_timeout_ms: u64,
    /// Time after which a stop counts as failed.
    pub stop_timeout_ms: u64,
}

/// A request to move or restart a processor.
#[derive(Debug, Clone)]
pub struct PlacementRequest {
    pub uuid: String,
    pub deployment_id: String,
    pub processor_id: WorkId,
    pub destination_host: Destination,
    pub request_expiry_ms: Option<u64>,
    /// Allow a host outside the `machines` of the service.
    pub force: bool,
    pub timestamp: Timestamp,
    pub user: UserName,
    pub requested_by: String,
    /// Refuse instead of queueing behind another action.
    pub reject_if_busy: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    New(Placement),
    /// The same request was submitted before.
    Repeated(Placement),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The uuid belongs to another request.
    UuidReused,
    /// Another action, with this uuid, is in flight or queued before it.
    Busy(String),
    NotFound,
    /// Too late to withdraw: it has started.
    AlreadyStarted(Status),
}
