//! One placement: the stored request of a user to move or restart one processor, with its status.
//!
//! The *action* is the work on the request. It gets a second allocation for the processor, stops
//! the old container and starts a new one. A forced restart only stops the container, and the
//! demand of the service starts the next one.
//!
//! In a *takeover*, an active moves to the host of one of its standbys. A takeover is a parent
//! placement with two children in sequence: the standby moves away, then the active moves in.

use hayward_vocabulary::{AllocationId, NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::status::{Phase, QueueReason, Reason, Status};

/// A placement as stored in its row. Field names are those of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub uuid: String,
    pub deployment_id: String,
    pub processor_id: WorkId,
    /// Requested host or kind of host.
    pub destination_host: Destination,
    /// Maximum wait for an allocation in milliseconds. `None` means the default limit.
    #[serde(default)]
    pub request_expiry_ms: Option<u64>,
    /// True if the host may be outside the `machines` of the service.
    #[serde(default)]
    pub force: bool,
    /// Time by the clock of the client. Requests are served in this order. No deadline depends on
    /// this time.
    pub timestamp: Timestamp,
    /// Sequence number in order of arrival.
    pub seq: u64,
    /// Owner of the service.
    pub user: UserName,
    /// Caller who made the request.
    pub requested_by: String,

    pub status_code: Status,
    pub response_message: String,
    #[serde(default)]
    pub reason_code: Option<Reason>,
    /// Why the placement waits. `None` if it does not wait.
    #[serde(default)]
    pub queued_because: Option<QueueReason>,
    /// Step of the action. `None` before its start.
    #[serde(default)]
    pub phase: Option<Phase>,
    /// Host on which the processor is to run, or `ANY_HOST`. `None` before the action starts.
    #[serde(default)]
    pub resolved_host: Option<String>,
    /// Host of the processor before the action.
    #[serde(default)]
    pub source_host: Option<NodeName>,
    /// Host on which the processor was started. `None` before the start and after a failure.
    #[serde(default)]
    pub final_host: Option<NodeName>,
    /// Preferred host for the restart. Set if the action failed and the processor is down (P1).
    #[serde(default)]
    pub recovery_host: Option<String>,
    /// Parent of a child of a takeover. `None` for all other placements.
    #[serde(default)]
    pub parent_uuid: Option<String>,
    /// Time at which the action started, or the request was refused.
    #[serde(default)]
    pub request_consumed_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    /// Number of changes since the request was submitted.
    #[serde(default)]
    pub generation: u64,

    /// Internal state of the action, which the API does not show.
    #[serde(default, rename = "hands")]
    pub progress: Progress,
}

/// Progress of an action.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Term of leadership in which the action started.
    pub epoch: u64,
    /// The container that the action replaces. `None` if the processor had failed.
    pub predecessor: Option<AllocationId>,
    /// Requested host. `None` if every host is allowed.
    pub host: Option<NodeName>,
    /// Hosts on which the allocation must not be granted.
    pub exclude: Vec<NodeName>,
    /// Number of requests for an allocation so far. 0 for the parent of a takeover.
    #[serde(rename = "requests")]
    pub request_count: u32,
    /// Time of the last request for an allocation.
    #[serde(rename = "asked_at")]
    pub requested_at: Timestamp,
    /// The container granted for the request. `None` until it is granted.
    pub reserved: Option<AllocationId>,
    /// Time at which the stop was ordered. `None` before.
    #[serde(rename = "stop_at")]
    pub stop_ordered_at: Option<Timestamp>,
    /// The standby that gives up its host, and that host. Set for the parent of a takeover only.
    pub standby: Option<(WorkId, NodeName)>,
    /// True for the second child of a takeover. This child does not count as in flight, because its
    /// parent already counts.
    #[serde(rename = "under_parent")]
    pub is_second_takeover_child: bool,
}

/// Request to rm-scheduler for a second allocation of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest {
    pub id: String,
    pub work: WorkId,
    pub predecessor: Option<AllocationId>,
    pub host: Option<NodeName>,
    pub exclude: Vec<NodeName>,
    /// True if the host may be outside the `machines` of the service.
    pub force: bool,
}

impl Placement {
    /// Returns the open request for an allocation, if any.
    pub fn request(&self) -> Option<ResourceRequest> {
        let is_open = self.status_code.is_active() && self.progress.request_count > 0;
        is_open.then(|| ResourceRequest {
            id: self.request_id(),
            work: self.processor_id.clone(),
            predecessor: self.progress.predecessor.clone(),
            host: self.progress.host.clone(),
            exclude: self.progress.exclude.clone(),
            force: self.force,
        })
    }

    /// Returns the id of the current request. Each request of an action has its own number.
    pub(crate) fn request_id(&self) -> String {
        format!("req_{}-{}", self.uuid, self.progress.request_count)
    }

    /// Returns whether the placement is the parent of a takeover.
    pub fn is_parent(&self) -> bool {
        self.progress.standby.is_some()
    }

    /// Returns whether the placement is a forced restart whose process may not have ended yet.
    pub(crate) fn is_forced_stop(&self) -> bool {
        let is_stopping =
            self.phase == Some(Phase::StopInProgress) && self.progress.stop_ordered_at.is_some();
        is_stopping && self.status_code == Status::Succeeded
    }

    /// Returns whether the placement is the action in flight of its processor.
    pub fn is_in_flight(&self) -> bool {
        self.status_code.is_active() && !self.progress.is_second_takeover_child
    }

    pub(crate) fn refuse(&mut self, reason: Reason, message: String, now: Timestamp) {
        self.request_consumed_at = Some(now);
        self.finish(Status::BadRequest, Some(reason), message, now);
    }

    pub(crate) fn finish(
        &mut self,
        status: Status,
        reason: Option<Reason>,
        message: String,
        now: Timestamp,
    ) {
        self.status_code = status;
        self.reason_code = reason;
        self.response_message = message;
        self.queued_because = None;
        self.updated_at = now;
    }

    pub(crate) fn set_phase(&mut self, phase: Phase, message: String, now: Timestamp) {
        self.status_code = Status::InProgress;
        self.phase = Some(phase);
        self.response_message = message;
        self.updated_at = now;
    }
}
