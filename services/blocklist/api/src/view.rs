//! Items as `/v1/blocklist`, `/nodes/{id}` and `/workers/{id}` show them.

use hayward_vocabulary::{Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BlockAction, BlockEntry, EvacuationPolicy};

/// `PUT /v1/blocklist/nodes/{id}` and `/workers/{id}`. Give one of `duration_ms`, `end_timestamp`
/// and `permanent`; with none, the default duration.
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
    /// Merge into an item that is there; otherwise a different one is refused with 409.
    #[serde(default)]
    pub allow_merge: bool,
    /// `CLUSTER`, the default, or `JOB:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$")]
    pub scope: Option<String>,
    /// How what runs there is taken off; as the service is set where this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evacuation: Option<EvacuationPolicy>,
    /// The number a re-announced copy is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal_no: Option<u64>,
}

/// The scheduler goes by the item (D15).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InForce {
    /// Revision of rm-scheduler from which it does.
    pub revision: u64,
    pub since: Timestamp,
}

/// How far the taking off is (section 10).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvacuationProgress {
    pub total: u64,
    pub moved: u64,
    pub failed: u64,
    pub remaining: u64,
    /// Those that stay for now, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<EvacuationBlocker>,
    /// Absent until the scheduler has taken the item up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvacuationBlocker {
    pub worker: String,
    pub work: WorkId,
    pub user: UserName,
    pub detail: String,
}

/// An item and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    #[serde(flatten)]
    pub item: BlockEntry,
    /// Milliseconds until its end, or that of its trial; absent where it is permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
    /// Present where what runs there is taken off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<EvacuationProgress>,
    /// Workers known to be on the node, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Vec<String>>,
}

/// `GET /v1/blocklist`: what is blocked or on trial (`canary`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockOverview {
    /// Where to begin with `/changes`.
    pub version: u64,
    pub nodes: Vec<BlockView>,
    /// Workers blocked themselves; those on blocked nodes are with their nodes.
    pub workers: Vec<BlockView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    Worker,
    Node,
    #[serde(other)]
    Unknown,
}

/// `GET /v1/blocklist/workers/{id}`: what is said of a worker depends on `effective`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum WorkerBlock {
    Item(Box<BlockView>),
    Effective(Box<EffectiveBlock>),
}

/// `GET /v1/blocklist/workers/{id}?effective=true`: an item on the worker, or one on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EffectiveBlock {
    pub blocked: bool,
    pub via: Option<Via>,
    pub item: Option<BlockView>,
    /// Why this answer may be too hopeful.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
