//! Requests and responses of `/v1/blocklist`, `/v1/blocklist/nodes/{id}` and
//! `/v1/blocklist/workers/{id}`.

use hayward_vocabulary::{Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BlockAction, BlockEntry, EvacuationPolicy};

/// Body of `PUT /v1/blocklist/nodes/{id}` and `/workers/{id}`. At most one of `duration_ms`,
/// `end_timestamp` and `permanent` may be set. Without them the item has the default duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockOrder {
    pub action: BlockAction,
    #[schema(max_length = 1024, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub duration_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Timestamp>,
    #[serde(default)]
    pub permanent: bool,
    /// True to merge into an existing item. Otherwise a different item is refused with 409.
    #[serde(default)]
    pub allow_merge: bool,
    /// Scope of the block: `CLUSTER`, which is the default, or `JOB:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$")]
    pub scope: Option<String>,
    /// How running work is evacuated. Absent for the default of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evacuation: Option<EvacuationPolicy>,
    /// The `removal_no` of a re-announced copy. Absent for a new item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal_no: Option<u64>,
}

/// Start of the effect of an item in the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InForce {
    /// First revision of rm-scheduler that applies it.
    pub revision: u64,
    pub since: Timestamp,
}

/// Progress of an evacuation. All numbers count allocations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvacuationProgress {
    pub total: u64,
    pub moved: u64,
    pub failed: u64,
    pub remaining: u64,
    /// Allocations that stay for now, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<EvacuationBlocker>,
    /// Absent until the scheduler applies the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
}

/// An allocation that cannot leave yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvacuationBlocker {
    pub worker: String,
    pub work: WorkId,
    pub user: UserName,
    pub detail: String,
}

/// An item and the progress of its evacuation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    #[serde(flatten)]
    pub item: BlockEntry,
    /// Milliseconds until the item or the trial ends. Absent if it is permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
    /// Present if running work is evacuated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<EvacuationProgress>,
    /// Workers on the node. Present if the request has `include=workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Vec<String>>,
}

/// Response of `GET /v1/blocklist`: all blocked targets and all nodes on trial (`canary`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockOverview {
    /// Value of `after` for the first `/changes` request.
    pub version: u64,
    pub nodes: Vec<BlockView>,
    /// Workers with their own item. A worker is not listed because its node is blocked.
    pub workers: Vec<BlockView>,
}

/// Target whose item blocks a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Via)]
pub enum BlockedBy {
    Worker,
    Node,
    #[serde(other)]
    Unknown,
}

/// Response of `GET /v1/blocklist/workers/{id}`: the item of the worker, or with `effective` the
/// combined state of the worker and its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum WorkerBlock {
    Item(Box<BlockView>),
    Effective(Box<EffectiveBlock>),
}

/// Response of `GET /v1/blocklist/workers/{id}?effective=true`: whether the worker is blocked, by
/// its own item or by that of its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EffectiveBlock {
    pub blocked: bool,
    pub via: Option<BlockedBy>,
    pub item: Option<BlockView>,
    /// Reasons why the worker may be blocked although `blocked` is false.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
