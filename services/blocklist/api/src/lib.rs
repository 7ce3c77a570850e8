//! Types of the blocklist API: items, and the entries of the publication `blocks`, which only
//! rm-scheduler follows (D15).

mod change_feed;
mod evidence;
mod strategy;
mod view;

use std::collections::BTreeSet;

use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use change_feed::{ChangeKind, ChangeReason, FeedChange, FeedChanges};
pub use evidence::{
    Cost, Evidence, EvidenceFact, FactKind, FailureAnswer, FailureLocation, FailureReport,
    PastBlock, RuleScore,
};
pub use strategy::{StrategyOrder, StrategyView};
pub use view::{
    BlockOrder, BlockOverview, BlockView, BlockedBy, EffectiveBlock, EvacuationBlocker,
    EvacuationProgress, InForce, WorkerBlock,
};

/// Name of the publication; its keys are `node/NAME` and `worker/ID`.
pub const BLOCKS: &str = "blocks";

/// Kind of a blocked target: a node, or one worker (the container of an allocation).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BlockKind {
    Node,
    Worker,
}

impl BlockKind {
    /// Returns the key of a target in `blocks`.
    pub fn key(self, identifier: &str) -> String {
        match self {
            Self::Node => format!("node/{identifier}"),
            Self::Worker => format!("worker/{identifier}"),
        }
    }
}

/// Effect of an item. A merge takes the stronger action, which is the later variant.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum BlockAction {
    /// No new work starts on the target. Running work stays.
    #[serde(rename = "MARK_BLOCKLISTED", alias = "MARK_BLOCKED", alias = "mark")]
    Mark,
    /// No new work starts on the target. Running work is evacuated and restarted on other nodes.
    #[serde(
        rename = "MARK_BLOCKLISTED_AND_EVACUATE_TASKS",
        alias = "MARK_BLOCKED_AND_EVACUATE_TASKS",
        alias = "evacuate"
    )]
    Evacuate,
}

/// One block or trial: an entry of `blocks`, and an item of `GET /v1/blocklist/items`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockEntry {
    #[serde(rename = "type")]
    pub kind: BlockKind,
    pub identifier: String,
    pub action: BlockAction,
    /// Distinct causes, sorted and joined.
    pub cause: String,
    pub start: Timestamp,
    /// Instant at which the item ends. Absent if it is permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// Origins of the item, such as `manual:<user>` or `strategy:<name>`.
    pub sources: BTreeSet<String>,
    /// Number of blocks of this key that were removed or have ended.
    pub removal_no: u64,
    /// The job for which the target is blocked. Absent if it is blocked for the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<WorkId>,
    /// True if all sources are strategies or detectors, and none is a person.
    #[serde(default)]
    pub automatic: bool,
    /// True for a node on trial. Its block has ended, and it gets one allocation at a time until
    /// one succeeds (W6).
    #[serde(default)]
    pub canary: bool,
    /// How running work is evacuated. Used only if the action evacuates.
    #[serde(default)]
    pub evacuation: EvacuationPolicy,
}

/// How a block evacuates running work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", tag = "policy")]
pub enum EvacuationPolicy {
    /// All work stops at once. Successors start when space is free.
    #[default]
    Immediate,
    /// Work stops within its disruption limits. Processes of services stop only after their
    /// successors have a reserved allocation. All remaining work stops after the grace period.
    Graceful { grace_ms: u64 },
}

impl BlockEntry {
    /// Returns the key in `blocks`: `node/NAME` or `worker/ID`, with `@JOB` if it is for one job.
    pub fn key(&self) -> String {
        let key = self.kind.key(&self.identifier);
        match &self.job {
            Some(job) => format!("{key}@{job}"),
            None => key,
        }
    }

    /// Returns whether the item has not ended. It ends at the instant `end`.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| now < end)
    }
}

/// One item to add. At most one of `end`, `duration_ms` and `permanent` may be set. Without them
/// the item has the default duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockRequest {
    #[serde(rename = "type")]
    pub kind: BlockKind,
    #[schema(value_type = NodeName)]
    pub identifier: String,
    pub action: BlockAction,
    #[schema(max_length = 1024, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub cause: String,
    /// Instant at which the item ends. Alias: `end_timestamp`.
    #[serde(
        default,
        alias = "end_timestamp",
        skip_serializing_if = "Option::is_none"
    )]
    pub end: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub duration_ms: Option<i64>,
    #[serde(default)]
    pub permanent: bool,
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

/// Result of adding an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BlockOutcome {
    /// The target was not blocked before.
    Added,
    /// The action of the existing item became stronger.
    Upgraded,
    /// Another field of the existing item changed.
    Merged,
    /// The item is unchanged.
    None,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockAnswer {
    pub outcome: BlockOutcome,
    /// Reason why nothing changed, such as `STALE_COPY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<BlockEntry>,
    pub revision: u64,
    /// Warnings with their numbers, such as the part of a pool that is blocked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockList {
    pub items: Vec<BlockEntry>,
    pub revision: u64,
    /// Cursor of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Body of `POST /v1/blocklist/items`: up to 1,000 items, which are added together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockBatch {
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Vec<BlockRequest>,
    /// Source of all items: `strategy:<name>`, `slow-task:<job>` or `detector:<name>`. Absent if
    /// the source is the caller, `manual:<name>`. Items of a caller are exempt from the brakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(manual|strategy|slow-task|detector):[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    pub source: Option<String>,
}

/// One result per key, in order of the first item of the key, and a count per outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockBatchAnswer {
    pub results: Vec<BlockAnswer>,
    pub added: u64,
    pub upgraded: u64,
    pub merged: u64,
    pub unchanged: u64,
    /// Number of ignored copies of items that were removed later.
    pub stale: u64,
    pub revision: u64,
}

/// Event in the history of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BlockEvent {
    Added,
    Upgraded,
    Merged,
    /// A caller removed the item.
    Removed,
    /// The end of the item was reached.
    Expired,
    /// The trial ended, because work succeeded on the node.
    TrialPassed,
    /// The trial ended, because no work ran on the node in time.
    TrialUnused,
    #[serde(other)]
    Unknown,
}

/// One entry of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockChange {
    pub at: Timestamp,
    pub event: BlockEvent,
    /// Caller that caused the event. Absent if the item ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Reason for the removal. Absent if the caller gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The item after the event. If the item has ended, its last state.
    pub item: BlockEntry,
}

/// Response of `GET /v1/blocklist/history`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockHistory {
    pub changes: Vec<BlockChange>,
    /// Cursor of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The page contains all changes up to this revision.
    #[serde(default)]
    pub revision: u64,
}
