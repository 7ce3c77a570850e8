//! Drain of a node: the request and its progress.

use hayward_vocabulary::{NodeName, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DrainOrder, Next};

/// `PUT /v1/nodes/{node}/drain`: begins a drain, or changes the active one. Absent fields stay
/// unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DrainRequest {
    /// Reason, shown with the node. Required to begin a drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub reason: Option<String>,
    /// Milliseconds from now after which work is moved regardless of its disruption limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2_592_000_000_i64)]
    pub deadline_ms: Option<i64>,
    /// The deadline as an instant; give this or `deadline_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// True pauses the drain: no further work is moved, and the node takes no new work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// True begins the drain even if too few nodes of the pool would be left (B4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// `GET /v1/nodes/{node}/drain`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    pub node: NodeName,
    #[serde(flatten)]
    pub order: DrainOrder,
    pub by: String,
    pub state: DrainState,
    /// Instant at which this state began.
    pub state_since: Timestamp,
    /// Reason of this state, as text.
    pub why: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// Progress reported by rm-scheduler; absent until it applies the drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<DrainMoves>,
    /// Running containers reported by the agent since the drain began; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<u64>,
}

/// State of a drain. `drained` requires proof that the node is empty (I17).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrainState {
    /// Work is being moved, or is about to end.
    Draining,
    /// An operator paused the drain; the node takes no new work.
    Paused,
    /// The agent reported no running container, and rm-scheduler no remaining allocation.
    Drained,
    /// The deadline passed and work remains. The drain stays active.
    Failed,
    /// The drain ended; it no longer prevents new work.
    Cancelled,
    #[serde(other)]
    Unknown,
}

/// Numbers of allocations, counted by rm-scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainMoves {
    /// Allocations on the node when the drain began, and allocations that started later.
    pub total: u64,
    /// Ended allocations that restarted on another node or that are no longer needed.
    pub moved: u64,
    /// Ended allocations without a successor so far.
    pub failed: u64,
    /// Allocations that are still on the node.
    pub remaining: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<DrainBlocker>,
}

/// Allocation that cannot move now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainBlocker {
    pub allocation: String,
    pub work: String,
    pub user: String,
    /// `reservation`, `disruption_limit`, `stopping`, `unreachable`, `paused`, `no_place` or
    /// `moving`.
    pub why: String,
    pub detail: String,
}
