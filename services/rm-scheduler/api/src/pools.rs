//! Worker pools: what operators and owners write and read at `/v1/pools`.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

/// Header: the epoch of the owner, which grows with every change of its leader.
pub const OWNER_EPOCH: &str = "x-owner-epoch";
/// Header: the number of the connection, as answered when it was made.
pub const CONNECTION: &str = "x-connection";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolMode {
    /// Workers are asked for, launched and given back.
    #[default]
    Managed,
    /// The owner brings its own workers; sizes are kept and nothing is done about them.
    Standalone,
    #[serde(other)]
    Unknown,
}

/// What can be asked for, of [`PoolMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AskedMode {
    Managed,
    Standalone,
}

/// `POST /v1/pools`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolOrder {
    /// What the owner calls its job.
    #[schema(max_length = 256, pattern = "\\S")]
    pub job_id: String,
    #[serde(default)]
    #[schema(value_type = AskedMode)]
    pub mode: PoolMode,
    /// Workers wished from the start. Always 0 in standalone.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000)]
    pub initial_size: i64,
    /// Failures that are tolerated; -1 for any number. Default: the initial size.
    #[serde(default)]
    #[schema(minimum = -1)]
    pub max_failed: Option<i64>,
    /// What a worker is. Required in managed mode.
    #[serde(default)]
    pub worker_spec: Option<WorkerSpec>,
    /// Whose share is charged. Default: the caller.
    #[serde(default)]
    pub user: Option<UserName>,
    /// Default: the policy's class for services.
    #[serde(default)]
    pub class: Option<String>,
    /// Reserved: the owner's list of workers is the truth, so none of it is ever rejected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(schema_with = never)]
    pub reject_foreign: bool,
}

/// What is reserved is not asked for.
fn never() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Boolean)
        .enum_values(Some([false]))
        .description(Some(
            "Reserved: the owner's list of workers is the truth, so none of it is ever rejected.",
        ))
        .build()
}

/// The program of a worker. It finds its id in `HAYWARD_WORKER`, its pool in `HAYWARD_POOL` and the
/// address of the owner in `HAYWARD_OWNER`.
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
    /// What one worker needs. Default: 1 GiB of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Nodes it may use; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
    /// Milliseconds between the request to end and the forced end. Default 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3_600_000)]
    pub stop_grace_ms: Option<u64>,
}

/// Answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolCreated {
    pub pool: PoolView,
    /// For the owner, with the scope `owner:<pool>`, good for seven days; its next one is at
    /// `PUT /v1/pools/{pool}/credentials`. It is not kept: a repeat with the same
    /// Idempotency-Key signs another.
    pub token: String,
}

/// A pool and all its numbers.
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
    /// Workers wished.
    pub designated: u64,
    /// Of the size, for `If-Match`.
    pub version: u64,
    /// Asked for and not granted.
    pub requested: u64,
    /// Granted and not reported by the owner.
    pub launching: u64,
    /// Reported by the owner.
    pub started: u64,
    /// Given back, the end awaited.
    pub returning: u64,
    /// The owner's own, outside the arithmetic.
    pub foreign: u64,
    /// Of those started, the idle ones on a blocked node: there, and not counted.
    #[serde(default)]
    pub idle_blocked: u64,
    /// `designated` less `started`, `launching` and `requested`, or 0.
    pub deficit: u64,
    pub failed_so_far: u64,
    /// Absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failed: Option<u64>,
    /// Thousandths of the size that are granted.
    pub progress_milli: u64,
    /// Requests wait for a moment, because too many starts failed.
    pub cooling_down: bool,
    /// Why the oldest request waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    pub owner: OwnerView,
    /// Grows with every restart of the scheduler, after which the owner has to connect again.
    pub manager_epoch: u64,
    /// All workers of before the restart have registered, or nobody waits for them.
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

/// What a final status is to the platform.
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
    /// Whether it is connected.
    pub bound: bool,
    /// The highest that was ever seen.
    pub epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub connection: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    /// In order of id.
    pub pools: Vec<PoolView>,
    /// For the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(default)]
    pub revision: u64,
}

/// `PUT /v1/pools/{pool}/owner`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnerOrder {
    #[schema(maximum = 9_223_372_036_854_775_807_u64)]
    pub epoch: u64,
    /// Where workers register; handed to them as `HAYWARD_OWNER`.
    #[serde(default)]
    #[schema(max_length = 4096, pattern = "^[^\\x00]*$")]
    pub address: String,
    /// All workers that are registered with the owner.
    #[serde(default)]
    pub workers: Vec<AllocationId>,
}

/// Answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnerConnected {
    /// For `X-Connection` from now on.
    pub connection: u64,
    /// Of the list, what is known and counted.
    pub accepted: Vec<AllocationId>,
    /// Of the list, what is left alone and not counted.
    pub foreign: Vec<AllocationId>,
    /// Of the list, what is being given back already.
    pub returning: Vec<AllocationId>,
    /// The list is older than events with a higher number.
    pub event_seq: u64,
    pub pool: PoolView,
}

/// `PUT /v1/pools/{pool}/size`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeOrder {
    #[schema(minimum = 0, maximum = 10_000)]
    pub size: i64,
    /// Give up what is over: the unwanted, then requests, then workers that have not registered,
    /// then registered ones. Without it no worker is given up.
    #[serde(default)]
    pub release: bool,
    /// To be given up first, as far as something is over.
    #[serde(default)]
    pub unwanted: Vec<AllocationId>,
}

/// Answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SizeAnswer {
    pub size: u64,
    pub requested_now: u64,
    pub withdrawn_now: u64,
    pub released: Vec<AllocationId>,
    pub version: u64,
}

/// Answer to `POST /v1/pools/{pool}/workers/{worker}/started`. It vetoes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartedAnswer {
    pub known: bool,
}

/// `PUT /v1/pools/{pool}/idle`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleOrder {
    /// All workers the owner has nothing to do for; every other one is busy.
    pub workers: Vec<AllocationId>,
}

/// Answer to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdleAnswer {
    /// Idle on a blocked node: not counted, and never released unless the owner says so.
    pub idle_blocked: Vec<AllocationId>,
    pub requested_now: u64,
}

/// Answer to `POST /v1/pools/{pool}/check`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckAnswer {
    pub missing: u64,
    pub requested_now: u64,
}

/// How the job of the owner ended.
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

/// `POST /v1/pools/{pool}/stop`
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
    /// Of the worker, its container and its allocation.
    pub id: AllocationId,
    pub state: WorkerState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_at: Option<Timestamp>,
    /// Epoch of the owner that reported it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_by_epoch: Option<u64>,
    /// The owner has nothing for it to do.
    #[serde(default)]
    pub idle: bool,
    /// Its node is blocked without being emptied.
    #[serde(default)]
    pub marked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerList {
    /// In order of id.
    pub workers: Vec<WorkerView>,
    /// For the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(default)]
    pub revision: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventKind {
    /// A worker the owner had reported is dead, and the owner had not ordered it.
    ResourceRemoved,
    /// The scheduler has restarted: connect again.
    ReconnectRequested,
    /// Too many workers failed: the pool is stopped.
    PoolFailed,
    Info,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolEvent {
    /// Without gaps, from 1.
    pub seq: u64,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<AllocationId>,
    pub text: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// In order, the oldest first.
    pub events: Vec<PoolEvent>,
    /// What to ask after next.
    pub after: u64,
}
