//! One placement: what was asked, what has become of it, and what it has in hand.

use hayward_vocabulary::{AllocationId, NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};

use crate::status::{Destination, Phase, QueueReason, Reason, Status};

/// Its field names are those of the wire: a row is what is shown of it, and what it has in hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub uuid: String,
    pub deployment_id: String,
    pub processor_id: WorkId,
    pub destination_host: Destination,
    #[serde(default)]
    pub request_expiry_ms: Option<u64>,
    /// A named host need not be one of the machines of the service.
    #[serde(default)]
    pub force: bool,
    /// By the clock of the client: requests are looked at in this order, and nothing expires by it.
    pub timestamp: Timestamp,
    /// In the order in which they came.
    pub seq: u64,
    /// Whose service it is.
    pub user: UserName,
    pub requested_by: String,

    pub status_code: Status,
    pub response_message: String,
    #[serde(default)]
    pub reason_code: Option<Reason>,
    #[serde(default)]
    pub queued_because: Option<QueueReason>,
    #[serde(default)]
    pub phase: Option<Phase>,
    /// `ANY_HOST`, or a host.
    #[serde(default)]
    pub resolved_host: Option<String>,
    #[serde(default)]
    pub source_host: Option<NodeName>,
    #[serde(default)]
    pub final_host: Option<NodeName>,
    /// Where its everyday restart would best be, when it failed with the processor down (P1).
    #[serde(default)]
    pub recovery_host: Option<String>,
    #[serde(default)]
    pub parent_uuid: Option<String>,
    #[serde(default)]
    pub request_consumed_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    /// Counts its changes.
    #[serde(default)]
    pub generation: u64,

    #[serde(default, rename = "hands")]
    pub progress: Progress,
}

/// What an action has to remember.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Term in which it was accepted.
    pub epoch: u64,
    /// What it replaces; absent for a processor that had failed.
    pub predecessor: Option<AllocationId>,
    /// Absent: any host.
    pub host: Option<NodeName>,
    pub exclude: Vec<NodeName>,
    /// Counts its requests; 0 before the first and for a parent.
    pub requests: u32,
    pub asked_at: Timestamp,
    /// What was granted.
    pub reserved: Option<AllocationId>,
    pub stop_at: Option<Timestamp>,
    /// Of a parent: the standby that gives up its host, and that host.
    pub standby: Option<(WorkId, NodeName)>,
    /// Second child: its parent holds the place in flight already.
    pub under_parent: bool,
}

/// A second place for a processor, asked of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest {
    pub id: String,
    pub work: WorkId,
    pub predecessor: Option<AllocationId>,
    pub host: Option<NodeName>,
    pub exclude: Vec<NodeName>,
    /// The host need not be one of its machines.
    pub force: bool,
}

impl Placement {
    /// The request that is open now.
    pub fn request(&self) -> Option<ResourceRequest> {
        let open = self.status_code.is_active() && self.progress.requests > 0;
        open.then(|| ResourceRequest {
            id: self.request_id(),
            work: self.processor_id.clone(),
            predecessor: self.progress.predecessor.clone(),
            host: self.progress.host.clone(),
            exclude: self.progress.exclude.clone(),
            force: self.force,
        })
    }

    /// Never used twice: a second request of one action has another number.
    pub(crate) fn request_id(&self) -> String {
        format!("req_{}-{}", self.uuid, self.progress.requests)
    }

    pub fn is_parent(&self) -> bool {
        self.progress.standby.is_some()
    }

    /// A forced restart whose process may not have ended yet (6.7).
    pub(crate) fn is_forced_stop(&self) -> bool {
        let told = self.phase == Some(Phase::StopInProgress) && self.progress.stop_at.is_some();
        told && self.status_code == Status::Succeeded
    }

    /// Holds the one place in flight of its processor.
    pub fn is_in_flight(&self) -> bool {
        self.status_code.is_active() && !self.progress.under_parent
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
