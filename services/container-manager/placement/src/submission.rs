//! Submission and withdrawal of requests to move or restart a processor.

use hayward_vocabulary::{Timestamp, UserName, WorkId};

use crate::container_access::Environment;
use crate::destination::Destination;
use crate::placement::{Placement, Progress};
use crate::placements::Placements;
use crate::start_queued_request;
use crate::status::Status;

/// A request to move or restart a processor.
#[derive(Debug, Clone)]
pub struct PlacementRequest {
    pub uuid: String,
    pub deployment_id: String,
    pub processor_id: WorkId,
    pub destination_host: Destination,
    /// Milliseconds that the request may wait for an allocation. `None` for the default limit.
    pub request_expiry_ms: Option<u64>,
    /// Allows a host outside the `machines` of the service.
    pub force: bool,
    /// Time by the clock of the client. Requests are served in the order of these times.
    pub timestamp: Timestamp,
    /// Owner of the service.
    pub user: UserName,
    /// Name of the caller.
    pub requested_by: String,
    /// True to refuse the request instead of queueing it while another action of the processor is
    /// in flight.
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

impl Placements {
    /// Adds a request, unless it was submitted before.
    ///
    /// # Errors
    /// Returns an error if the uuid belongs to another request, or if the processor is busy and
    /// `reject_if_busy` is set.
    pub fn submit(
        &mut self,
        request: PlacementRequest,
        env: &impl Environment,
    ) -> Result<Submitted, Refusal> {
        if let Some(existing) = self.by_uuid.get(&request.uuid) {
            let is_same = existing.deployment_id == request.deployment_id
                && existing.processor_id == request.processor_id
                && existing.destination_host == request.destination_host
                && existing.request_expiry_ms == request.request_expiry_ms
                && existing.force == request.force;
            return if is_same {
                Ok(Submitted::Repeated(existing.clone()))
            } else {
                Err(Refusal::UuidReused)
            };
        }
        if request.reject_if_busy
            && let Some(other) = self.find_blocking_request(&request.processor_id, env)
        {
            return Err(Refusal::Busy(other));
        }
        let placement = Placement {
            uuid: request.uuid,
            deployment_id: request.deployment_id,
            processor_id: request.processor_id,
            destination_host: request.destination_host,
            request_expiry_ms: request.request_expiry_ms,
            force: request.force,
            timestamp: request.timestamp,
            seq: self.next_sequence(),
            user: request.user,
            requested_by: request.requested_by,
            status_code: Status::Created,
            response_message: "queued".to_owned(),
            reason_code: None,
            queued_because: None,
            phase: None,
            resolved_host: None,
            source_host: None,
            final_host: None,
            recovery_host: None,
            parent_uuid: None,
            request_consumed_at: None,
            updated_at: env.now(),
            generation: 0,
            progress: Progress::default(),
        };
        self.insert(placement.clone());
        Ok(Submitted::New(placement))
    }

    /// Returns the action that a new request of this processor would wait for.
    fn find_blocking_request(&self, work: &WorkId, env: &impl Environment) -> Option<String> {
        let (_, action) = start_queued_request::blocking_action(self, work, None, env)?;
        Some(action)
    }

    /// Withdraws a queued request.
    ///
    /// # Errors
    /// Returns an error if the request does not exist or has started.
    pub fn withdraw(&mut self, uuid: &str) -> Result<(), Refusal> {
        let placement = self.by_uuid.get(uuid).ok_or(Refusal::NotFound)?;
        match placement.status_code {
            Status::Created if placement.parent_uuid.is_none() => {
                self.remove(uuid);
                Ok(())
            }
            status => Err(Refusal::AlreadyStarted(status)),
        }
    }
}
