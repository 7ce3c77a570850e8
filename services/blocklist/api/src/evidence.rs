//! Failures told by owners, and the record of one machine.

use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BlockEntry, BlockView};

/// `POST /v1/blocklist/failures`. The same report told again is the same fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureReport {
    #[schema(value_type = WorkId)]
    pub job_id: String,
    #[schema(min_items = 1, max_items = 1000)]
    pub locations: Vec<FailureLocation>,
    /// For people.
    #[schema(max_length = 1024, pattern = "\\S")]
    pub cause: String,
    /// `disk_full` and the like, `slow_task`, or a cause of an exit as `user_error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NodeName>)]
    pub cause_code: Option<String>,
    /// Placement, release, evacuation, preemption, cancellation: then it is no failure.
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

/// The items the strategy made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureAnswer {
    pub items: Vec<BlockEntry>,
    pub revision: u64,
}

/// `GET /v1/blocklist/nodes/{id}/evidence`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    pub node: String,
    pub strategy: String,
    /// Where the node stands by each rule of the strategy.
    pub scores: Vec<RuleScore>,
    pub cost: Cost,
    /// The block or the trial, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<BlockView>,
    /// Why it should be blocked and is not: the brake, with its numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// Automatic blocks that are remembered; the next one lasts twice as long as the last.
    pub past: Vec<PastBlock>,
    /// The newest facts, newest first; up to 100.
    pub facts: Vec<EvidenceFact>,
}

/// Blocked when `score` reaches `threshold`, from at least `jobs_needed` distinct jobs.
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

/// What the machine has cost, over the facts that are kept, and what its block costs now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// Attempts that failed there, whoever is to blame.
    pub attempts_lost: u64,
    /// Milliseconds those attempts held their room.
    pub lost_ms: u64,
    /// Quanta that are withheld while it is blocked.
    pub quanta_withheld: u64,
    /// Since when they have been, in milliseconds.
    pub withheld_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastBlock {
    pub at: Timestamp,
    pub duration_ms: u64,
    pub source: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    Failed,
    Worked,
    Silenced,
    Heard,
    Slow,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvidenceFact {
    pub at: Timestamp,
    pub what: FactKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// Its class, or the cause of the exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// It counts towards a score now: it is recent, not spent, and lies with the machine.
    pub counted: bool,
}
