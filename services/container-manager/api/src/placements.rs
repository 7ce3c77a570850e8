//! Placements: requests of external controllers to move and restart processes of services.
//!
//! A processor is one process of a service with a stable identity. A host is a node. A resource
//! request asks for the second allocation that a process needs for a move.

use hayward_vocabulary::{AllocationId, NodeName, Role, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `POST /v1/deployments/{deployment}/placements`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementOrder {
    /// Id of the request. A repeated request with the same id changes nothing. Generated if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Uuid)]
    pub uuid: Option<String>,
    /// Id of the process: `svc_….N`, or `svc_….N-R` for a standby. The part after the dot is
    /// enough.
    pub processor_id: String,
    /// Name of a host, `ANY_HOST`, `LAST_SEEN`, `FORCE_RESTART_LAST_SEEN` or `STANDBY`.
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub destination_host: String,
    /// Milliseconds that the request may wait for an allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 86_400_000)]
    pub request_expiry_ms: Option<u64>,
    /// Allows a host outside the `machines` of the service. Later restarts use only these machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Time by the clock of the client. Requests are served in the order of these times. Default:
    /// now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub timestamp: Option<Timestamp>,
    #[serde(default)]
    pub if_busy: IfBusy,
}

/// Handling of a request while another action of the process is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    #[default]
    Queue,
    Reject,
}

/// Body of `POST /v1/containers/{container}/moves`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveOrder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Uuid)]
    pub uuid: Option<String>,
    /// Same values as [`PlacementOrder::destination_host`].
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub destination_host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 86_400_000)]
    pub request_expiry_ms: Option<u64>,
    /// Allows a host outside the `machines` of the service. Later restarts use only these machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PlacementStatus {
    /// Queued.
    Created,
    Accepted,
    InProgress,
    Succeeded,
    Failed,
    /// The request was invalid when it was served, and changed nothing.
    BadRequest,
    #[serde(other)]
    Unknown,
}

impl PlacementStatus {
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::BadRequest)
    }
}

/// Progress of the affected process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PlacementPhase {
    Running,
    StopInProgress,
    Stopped,
    StopFailed,
    #[serde(other)]
    Unknown,
}

/// Reason why a request failed or was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PlacementReason {
    /// No allocation was granted in time.
    RequestExpired,
    /// The process did not end in time.
    StopFailed,
    /// The successor ended before it was running.
    LaunchFailed,
    /// The granted host could not be used when the successor was to start.
    ConstraintAtLaunch,
    /// The requested host accepts no new processes.
    DestinationBlocked,
    /// container-manager was restarted before the process was stopped.
    ManagerRestarted,
    /// The processor is no longer part of the service.
    JobEnded,
    UnknownProcessor,
    /// The deployment has ended.
    StaleDeployment,
    /// An active and its standbys must not share a host.
    StandbyConstraint,
    /// The host is outside the `machines` of the service, and `force` was not set.
    NotAListedMachine,
    NotRunning,
    /// The processor has no running standby whose host it could take over.
    NoStandby,
    /// The processor is a worker of a worker pool, which only the owner of the pool may move.
    PoolManaged,
    #[serde(other)]
    Unknown,
}

/// Reason why a request is still queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum QueuedBecause {
    /// Another action of the processor is in flight.
    SelfInFlight,
    /// An action of its active is in flight.
    ActiveInFlight,
    /// An action of one of its standbys is in flight.
    StandbyInFlight,
    /// The processor has not started yet.
    NotRunningYet,
    #[serde(other)]
    Unknown,
}

/// A request and its status. It never changes after a final status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementView {
    pub uuid: String,
    pub deployment_id: String,
    pub processor_id: WorkId,
    pub destination_host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_expiry_ms: Option<u64>,
    /// True if the host may be outside the `machines` of the service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    pub timestamp: Timestamp,
    pub status_code: PlacementStatus,
    pub response_message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<PlacementReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_because: Option<QueuedBecause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PlacementPhase>,
    /// Requested host, or `ANY_HOST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_host: Option<NodeName>,
    /// Host on which the process was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_host: Option<NodeName>,
    /// Preferred host for a restart. Present if the action failed and the process is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_host: Option<String>,
    /// The request that this request is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_consumed_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    pub requested_by: String,
    /// Sequence number in order of arrival.
    pub seq: u64,
    /// Number of changes since it was submitted. It is also the `ETag`.
    #[serde(default)]
    pub generation: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementList {
    pub placements: Vec<PlacementView>,
    pub revision: u64,
    /// The `after` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProcessorState {
    /// It has no allocation yet.
    Waiting,
    /// Its container was ordered to start, and does not run yet.
    Pending,
    Running,
    /// Its retries are exhausted, and the service continues without it.
    Failed,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorView {
    pub id: WorkId,
    pub deployment_id: String,
    pub user: UserName,
    pub role: Role,
    pub host_affinity: bool,
    pub state: ProcessorState,
    /// Host on which it runs or last ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<AllocationId>,
    /// The uuid of the action in flight, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorList {
    /// In order of id.
    pub processors: Vec<ProcessorView>,
    /// The `cursor` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub revision: u64,
}

/// A request for a second allocation of a process, and its grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceRequestView {
    pub id: String,
    pub processor_id: WorkId,
    pub placement: String,
    /// Requested host, or `ANY_HOST`.
    pub host: String,
    pub exclude: Vec<NodeName>,
    pub asked_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<AllocationId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceRequestList {
    /// In order of id.
    pub requests: Vec<ResourceRequestView>,
    /// The `cursor` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub revision: u64,
}
