//! Placements: processes of services moved and restarted on demand of an outside controller.

use hayward_vocabulary::{AllocationId, NodeName, Role, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/deployments/{deployment}/placements`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementOrder {
    /// Names the order: repeating it with the same words changes nothing. Absent: one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Uuid)]
    pub uuid: Option<String>,
    /// `svc_….N`, `svc_….N-R` for a standby; the part after the dot will do.
    pub processor_id: String,
    /// A host, `ANY_HOST`, `LAST_SEEN`, `FORCE_RESTART_LAST_SEEN` or `STANDBY`.
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub destination_host: String,
    /// Milliseconds that a request for a place may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 86_400_000)]
    pub request_expiry_ms: Option<u64>,
    /// Also to a host that the `machines` of the service leave out. What starts it again on another
    /// day keeps to them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// By the clock of the client; orders are looked at in this order. Absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub timestamp: Option<Timestamp>,
    #[serde(default)]
    pub if_busy: IfBusy,
}

/// What to do while another action of the processor is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    #[default]
    Queue,
    Reject,
}

/// `POST /v1/containers/{container}/moves`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveOrder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Uuid)]
    pub uuid: Option<String>,
    /// As [`PlacementOrder::destination_host`].
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub destination_host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 86_400_000)]
    pub request_expiry_ms: Option<u64>,
    /// Also to a host that the `machines` of the service leave out. What starts it again on another
    /// day keeps to them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PlacementStatus {
    /// Waits in the queue.
    Created,
    Accepted,
    InProgress,
    Succeeded,
    Failed,
    /// It was not valid when its turn came; nothing was touched.
    BadRequest,
    #[serde(other)]
    Unknown,
}

impl PlacementStatus {
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::BadRequest)
    }
}

/// How far the affected process is within its action.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PlacementReason {
    RequestExpired,
    StopFailed,
    LaunchFailed,
    ConstraintAtLaunch,
    DestinationBlocked,
    ManagerRestarted,
    JobEnded,
    UnknownProcessor,
    StaleDeployment,
    StandbyConstraint,
    /// The host is none of the `machines` of the service, and it was not ordered with `force`.
    NotAListedMachine,
    NotRunning,
    NoStandby,
    PoolManaged,
    #[serde(other)]
    Unknown,
}

/// What an order waits for before it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum QueuedBecause {
    SelfInFlight,
    ActiveInFlight,
    StandbyInFlight,
    NotRunningYet,
    #[serde(other)]
    Unknown,
}

/// An order and what has become of it. Once its status is final it never changes again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementView {
    pub uuid: String,
    pub deployment_id: String,
    pub processor_id: WorkId,
    pub destination_host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_expiry_ms: Option<u64>,
    /// The host need not be one of the `machines` of the service.
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
    /// `ANY_HOST`, or the host that was asked for in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_host: Option<NodeName>,
    /// Where it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_host: Option<NodeName>,
    /// Where it would best be started again, when the action failed with the process down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_host: Option<String>,
    /// The order it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_consumed_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    pub requested_by: String,
    /// In the order in which they came.
    pub seq: u64,
    /// Counts its changes; also its `ETag`.
    #[serde(default)]
    pub generation: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementList {
    pub placements: Vec<PlacementView>,
    pub revision: u64,
    /// The `after` of the next page, where there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProcessorState {
    /// It has no room yet.
    Waiting,
    Pending,
    Running,
    /// Its retries are exhausted and the service goes on without it.
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
    /// Where it is, or was last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<AllocationId>,
    /// The action in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorList {
    /// In order of id.
    pub processors: Vec<ProcessorView>,
    /// For the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub revision: u64,
}

/// A second place that is asked for, and what was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceRequestView {
    pub id: String,
    pub processor_id: WorkId,
    pub placement: String,
    /// `ANY_HOST`, or a host.
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
    /// For the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub revision: u64,
}
