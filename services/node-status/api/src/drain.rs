//! Emptying a machine (W5): the order, and how far it is.

use hayward_vocabulary::{NodeName, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DrainOrder, Next};

/// `PUT /v1/nodes/{node}/drain`: begins a drain, or changes the one that lasts. What is not named
/// stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DrainRequest {
    /// Why; shown to everyone who asks about the node. Needed to begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub reason: Option<String>,
    /// Milliseconds from now after which work is moved without regard to its disruption limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2_592_000_000_i64)]
    pub deadline_ms: Option<i64>,
    /// The same as an instant. One of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// True: nothing more is taken off for now. The node takes no new work either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Begins even where too little of the pool would be left (B4).
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
    /// When it came to this state.
    pub state_since: Timestamp,
    /// Why it is in this state, for people.
    pub why: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// What rm-scheduler says of it; absent until it took the order up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<DrainMoves>,
    /// What the agent said since the drain began; absent until it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<u64>,
}

/// I17: asked to stop, and stopped, are two states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrainState {
    /// Work is being taken off, or is awaited to end.
    Draining,
    /// The operator stopped it half-way; the node takes no new work.
    Paused,
    /// The agent said that nothing is alive, and rm-scheduler that nothing is left.
    Drained,
    /// The deadline has passed, and something stays. The order holds on.
    Failed,
    /// Over; the node takes work again as far as the drain is concerned.
    Cancelled,
    #[serde(other)]
    Unknown,
}

/// Allocations, as rm-scheduler counts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainMoves {
    /// There when it began, and came since.
    pub total: u64,
    /// Ended, and going on elsewhere or not wanted any more.
    pub moved: u64,
    /// Ended, with no successor yet.
    pub failed: u64,
    /// Still there.
    pub remaining: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<DrainBlocker>,
}

/// Something that stays where it is for now.
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
