//! Requests and responses of `/v1/pools`, the worker pools.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

/// Header with the epoch of the owner. The epoch grows with every change of the leader of the
/// owner.
pub const OWNER_EPOCH: &str = "x-owner-epoch";
/// Header with the number of the connection, which the owner gets when it connects.
pub const CONNECTION: &str = "x-connection";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolMode {
    /// The scheduler requests, launches and gives back workers.
    #[default]
    Managed,
    /// The owner brings its own workers. Sizes are stored and have no effect.
    Standalone,
    #[serde(other)]
    Unknown,
}

/// Modes that a request may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AskedMode)]
pub enum RequestedMode {
    Managed,
    Standalone,
}

/// Request of `POST /v1/pools`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolOrder {
    /// The name of the job at its owner.
    #[schema(max_length = 256, pattern = "\\S")]
    pub job_id: String,
    #[serde(default)]
    #[schema(value_type = RequestedMode)]
    pub mode: PoolMode,
    /// Workers wanted from the start. Always 0 in standalone mode.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000)]
    pub initial_size: i64,
    /// Failures tolerated; -1 for any number. Default: the initial size.
    #[serde(default)]
    #[schema(minimum = -1)]
    pub max_failed: Option<i64>,
    /// The program and size of a worker. Required in managed mode.
    #[serde(default)]
    pub worker_spec: Option<WorkerSpec>,
    /// The user that is charged. Default: the caller.
    #[serde(default)]
    pub user: Option<UserName>,
    /// Default: the class for services in the policy.
    #[serde(default)]
    pub class: Option<String>,
    /// Reserved. No worker on the list of the owner is ever rejected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(schema_with = reserved_field_schema)]
    pub reject_foreign: bool,
}

/// Returns the schema of the reserved field, which allows only false.
fn reserved_field_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Boolean)
        .enum_values(Some([false]))
        .description(Some(
            "Reserved. No worker on the list of the owner is ever rejected.",
        ))
        .build()
}

/// The program of a worker. Variables: `HAYWARD_WORKER` has its id, `HAYWARD_POOL` its pool and
/// `HAYWARD_OWNER` the address of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerSpec {
    /// Argument vector.
    #[schema(min_items = 1, max_items = 4096)]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Absolute path on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096, pattern = "^/[^\\x00]*$")]
    pub working_directory: Option<String>,
    /// Size of one worker. Default: 1 GiB of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Nodes it may use; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
    /// Milliseconds from the order to end to the forced end. Default 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3_600_000)]
    pub stop_grace_ms: Option<u64>,
}

/// Response of `POST /v1/pools` and of `PUT /v1/pools/{pool}/credentials`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolCreated {
    pub pool: PoolView,
    /// Token for the owner, with the scope `owner:<pool>`, valid for seven days. The next token is
    /// at `PUT /v1/pools/{pool}/credentials`. No token is stored, so a repeated request with the
    /// same Idempotency-Key gets another token.
    pub token: String,
}

/// A pool with all its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    pub id: WorkId,
    pub job_id: String,
    pub mode: PoolMode,
    pub user: UserName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_spec: Option<WorkerSpec>,
    /// Number of wanted workers.
    pub designated: u64,
    /// Version of the size, for `If-Match`.
    pub version: u64,
    /// Number of workers that are requested and not granted.
    pub requested: u64,
    /// Number of workers that are granted and not reported by the owner.
    pub launching: u64,
    /// Number of workers that the owner has reported.
    pub started: u64,
    /// Number of workers that are given back and have not ended.
    pub returning: u64,
    /// Number of workers that the owner started itself. They count in no other number.
    pub foreign: u64,
    /// Number of started workers that are idle on a blocked node. They do not count towards the
    /// size.
    #[serde(default)]
    pub idle_blocked: u64,
    /// `designated` less `started`, `launching` and `requested`, at least 0.
    pub deficit: u64,
    pub failed_so_far: u64,
    /// Maximum number of failures; absent for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failed: Option<u64>,
    /// Granted part of the size, in thousandths.
    pub progress_milli: u64,
    /// True while requests pause after too many failed starts.
    pub cooling_down: bool,
    /// Why the oldest request waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    pub owner: OwnerView,
    /// Grows with every restart of the scheduler. The owner must connect again after one.
    pub manager_epoch: u64,
    /// True once all workers from before the restart have registered, or are no longer awaited.
    pub ready: bool,
    pub status: PoolStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_status: Option<FinalStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_message: Option<String>,
    /// Number of the newest event.
    pub event_seq: u64,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PoolStatus {
    Running,
    Stopped,
    #[serde(other)]
    Unknown,
}

/// Final status as reported to the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FinalStatus {
    Succeeded,
    Failed,
    Killed,
    Undefined,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnerView {
    /// True if the owner is connected.
    pub bound: bool,
    /// The highest epoch so far.
    pub epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub connection: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    /// In order of id.
    pub pools: Vec<PoolView>,
    /// Start of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(default)]
    pub revision: u64,
}

/// Request of `PUT /v1/pools/{pool}/owner`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnerOrder {
    #[schema(maximum = 9_223_372_036_854_775_807_u64)]
    pub epoch: u64,
    /// Address at which workers register, passed as `HAYWARD_OWNER`.
    #[serde(default)]
    #[schema(max_length = 4096, pattern = "^[^\\x00]*$")]
    pub address: String,
    /// All workers that are registered with the owner.
    #[serde(default)]
    pub workers: Vec<AllocationId>,
}

/// Response of `PUT /v1/pools/{pool}/owner`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnerConnected {
    /// Number that the owner sends in `X-Connection` from now on.
    pub connection: u64,
    /// Workers of the list that exist and were counted.
    pub accepted: Vec<AllocationId>,
    /// Workers of the list that are foreign and were not counted.
    pub foreign: Vec<AllocationId>,
    /// Workers of the list that are being given back.
    pub returning: Vec<AllocationId>,
    /// Events with a higher number are newer than the list.
    pub event_seq: u64,
    pub pool: PoolView,
}

/// Request of `PUT /v1/pools/{pool}/size`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeOrder {
    #[schema(minimum = 0, maximum = 10_000)]
    pub size: i64,
    /// Give up surplus: first the unwanted workers, then requests, then workers that have not
    /// registered, then registered ones. Without it all workers stay.
    #[serde(default)]
    pub release: bool,
    /// Workers to give up first, if there is a surplus.
    #[serde(default)]
    pub unwanted: Vec<AllocationId>,
}

/// Response of `PUT /v1/pools/{pool}/size`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SizeAnswer {
    pub size: u64,
    pub requested_now: u64,
    pub withdrawn_now: u64,
    pub released: Vec<AllocationId>,
    pub version: u64,
}

/// Response of `POST /v1/pools/{pool}/workers/{worker}/started`, for information only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartedAnswer {
    pub known: bool,
}

/// Request of `PUT /v1/pools/{pool}/idle`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleOrder {
    /// All idle workers; every other one is busy.
    pub workers: Vec<AllocationId>,
}

/// Response of `PUT /v1/pools/{pool}/idle`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdleAnswer {
    /// Workers that are idle on a blocked node. They do not count towards the size, and only the
    /// owner releases them.
    pub idle_blocked: Vec<AllocationId>,
    pub requested_now: u64,
}

/// Response of `POST /v1/pools/{pool}/check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckAnswer {
    pub missing: u64,
    pub requested_now: u64,
}

/// Result of the job of the owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobStatus {
    Succeeded,
    Failed,
    Canceled,
    #[default]
    #[serde(other)]
    Unknown,
}

/// Request of `POST /v1/pools/{pool}/stop`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopOrder {
    #[serde(default)]
    pub status: JobStatus,
    #[serde(default)]
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WorkerState {
    Launching,
    Started,
    Returning,
    Foreign,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// Id of the worker, its container and its allocation.
    pub id: AllocationId,
    pub state: WorkerState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_at: Option<Timestamp>,
    /// Epoch of the owner that reported it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_by_epoch: Option<u64>,
    /// The owner reported it as idle.
    #[serde(default)]
    pub idle: bool,
    /// True if the node of the worker is blocked without evacuation.
    #[serde(default)]
    pub marked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerList {
    /// In order of id.
    pub workers: Vec<WorkerView>,
    /// Start of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(default)]
    pub revision: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventKind {
    /// A worker that the owner had reported ended without an order of the owner.
    ResourceRemoved,
    /// The scheduler has restarted, so the owner must connect again.
    ReconnectRequested,
    /// Too many workers failed: the pool is stopped.
    PoolFailed,
    Info,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolEvent {
    /// Numbers without gaps, from 1.
    pub seq: u64,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AllocationId>,
    pub text: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// Oldest first.
    pub events: Vec<PoolEvent>,
    /// The value of `after` for the next request.
    pub after: u64,
}
