//! Failure reports of owners, and the evidence against one node.

use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BlockEntry, BlockView};

/// Body of `POST /v1/blocklist/failures`. A repeated report adds no second fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureReport {
    #[schema(value_type = WorkId)]
    pub job_id: String,
    #[schema(min_items = 1, max_items = 1000)]
    pub locations: Vec<FailureLocation>,
    /// Description of the failure, for operators.
    #[schema(max_length = 1024, pattern = "\\S")]
    pub cause: String,
    /// Class of the cause, such as `disk_full`. Also `slow_task`, or the cause of an exit, such as
    /// `user_error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NodeName>)]
    pub cause_code: Option<String>,
    /// True if the exit was ordered by a placement, release, evacuation, preemption or
    /// cancellation. Such an exit is not a failure.
    #[serde(default)]
    pub intended: bool,
    pub timestamp: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureLocation {
    #[schema(value_type = NodeName)]
    pub node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// The items that the strategy added because of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureAnswer {
    pub items: Vec<BlockEntry>,
    pub revision: u64,
}

/// Response of `GET /v1/blocklist/nodes/{id}/evidence`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    pub node: String,
    pub strategy: String,
    /// Score of the node under each rule of the strategy.
    pub scores: Vec<RuleScore>,
    pub cost: Cost,
    /// The block or the trial of the node. Absent if it has neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<BlockView>,
    /// The brake that prevents a block although a rule has reached its threshold. Absent if no
    /// brake does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// Automatic blocks within the back-off memory, newest first. The next block is twice as long
    /// as the last one.
    pub past: Vec<PastBlock>,
    /// The newest facts, at most 100, newest first.
    pub facts: Vec<EvidenceFact>,
}

/// Score of a node under one rule. The node is blocked if `score` reaches `threshold` and the
/// failures come from at least `jobs_needed` distinct jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleScore {
    pub rule: String,
    pub score: u64,
    pub threshold: u64,
    pub jobs: u64,
    pub jobs_needed: u64,
    pub window_ms: u64,
    pub reached: bool,
}

/// Cost of the node over the stored facts, and the cost of its block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// Number of attempts that failed on the node, for any cause.
    pub attempts_lost: u64,
    /// Milliseconds for which these attempts occupied the node.
    pub lost_ms: u64,
    /// Quanta of the node that cannot be used while it is blocked.
    pub quanta_withheld: u64,
    /// Milliseconds since the start of the block.
    pub withheld_ms: u64,
}

/// One earlier automatic block of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastBlock {
    pub at: Timestamp,
    pub duration_ms: u64,
    pub source: String,
}

/// Kind of an event on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    /// An attempt failed on the node.
    Failed,
    /// An attempt succeeded on the node, or ran long enough.
    Worked,
    /// Heartbeats of the node stopped.
    Silenced,
    /// Heartbeats of the node resumed.
    Heard,
    /// A task on the node was slow.
    Slow,
    #[serde(other)]
    Unknown,
}

/// One event on the node that the strategy evaluates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvidenceFact {
    pub at: Timestamp,
    pub what: FactKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// Class of the failure, or the cause of the exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// True if the fact counts towards a score, because it is recent, is not spent, and is blamed
    /// on the node.
    pub counted: bool,
}
