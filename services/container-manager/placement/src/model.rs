//! Requests to move or restart a processor, their limits and their results.

use hayward_vocabulary::{Timestamp, UserName, WorkId};

use crate::placement_request::Placement;
use crate::status::{Destination, Status};

/// Time limits of placement actions.
#[derive(Debug, Clone, Copy)]
pub struct TimeLimits {
    /// Default time that a request for an allocation may wait.
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
    /// Allows a host outside the `machines` of the service.
    pub force: bool,
    pub timestamp: Timestamp,
    pub user: UserName,
    pub requested_by: String,
    /// The request is refused instead of queued while another action of the processor is in flight.
    pub reject_if_busy: bool,
}

/// Result of an accepted submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    New(Placement),
    /// The same request was submitted before.
    Repeated(Placement),
}

/// Reason why a submission or a withdrawal was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The uuid belongs to another request.
    UuidReused,
    /// The processor has another action, which is in flight or was queued earlier. The value is the
    /// uuid of that action.
    Busy(String),
    NotFound,
    /// The request has started, so it cannot be withdrawn.
    AlreadyStarted(Status),
}
