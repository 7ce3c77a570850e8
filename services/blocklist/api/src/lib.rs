//! The words of blocklist: items as people write and read them, and the entries of its publication
//! `blocks`, which rm-scheduler alone follows (D15).

mod change;
mod evidence;
mod strategy;
mod view;

use std::collections::BTreeSet;

use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use change::{ChangeKind, ChangeReason, FeedChange, FeedChanges};
pub use evidence::{
    Cost, Evidence, EvidenceFact, FactKind, FailureAnswer, FailureLocation, FailureReport,
    PastBlock, RuleScore,
};
pub use strategy::{StrategyOrder, StrategyView};
pub use view::{
    BlockOrder, BlockOverview, BlockView, EffectiveBlock, EvacuationBlocker, EvacuationProgress,
    InForce, Via, WorkerBlock,
};

/// Name of the publication; its keys are `node/NAME` and `worker/ID`.
pub const BLOCKS: &str = "blocks";

/// What is blocked: a machine, or one worker (an allocation's container).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BlockKind {
    Node,
    Worker,
}

impl BlockKind {
    pub fn key(self, identifier: &str) -> String {
        match self {
            Self::Node => format!("node/{identifier}"),
            Self::Worker => format!("worker/{identifier}"),
        }
    }
}

/// Order matters: the stronger action wins a merge (blocklist 5.2).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum BlockAction {
    /// Nothing new goes there; what runs there stays.
    #[serde(rename = "MARK_BLOCKLISTED", alias = "MARK_BLOCKED", alias = "mark")]
    Mark,
    /// Nothing new goes there, and what runs there is taken off and restarted elsewhere.
    #[serde(
        rename = "MARK_BLOCKLISTED_AND_EVACUATE_TASKS",
        alias = "MARK_BLOCKED_AND_EVACUATE_TASKS",
        alias = "evacuate"
    )]
    Evacuate,
}

/// One entry of `blocks`, and one item of `GET /v1/blocklist/items`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockEntry {
    #[serde(rename = "type")]
    pub kind: BlockKind,
    pub identifier: String,
    pub action: BlockAction,
    /// Distinct causes, sorted and joined.
    pub cause: String,
    pub start: Timestamp,
    /// From this moment on the item is over; absent means permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// Who asked: `manual:<user>`, `strategy:<name>`.
    pub sources: BTreeSet<String>,
    /// How often this key has been removed (8.4).
    pub removal_no: u64,
    /// Blocked for this work alone (8.5); absent: for the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<WorkId>,
    /// No person asked for it: every source is a strategy or a detector.
    #[serde(default)]
    pub automatic: bool,
    /// The block itself is over, and the node is on trial: one allocation at a time until one has
    /// shown that it works (W6).
    #[serde(default)]
    pub canary: bool,
    /// How what runs there is taken off, where the action says that it is (section 10).
    #[serde(default)]
    pub evacuation: EvacuationPolicy,
}

/// How a block takes off what runs there (section 10).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", tag = "policy")]
pub enum EvacuationPolicy {
    /// Everything at once; successors start as room is found.
    #[default]
    Immediate,
    /// As the disruption limits of the work allow, processes of services when their next places are
    /// reserved, and everything that is left after the grace.
    Graceful { grace_ms: u64 },
}

impl BlockEntry {
    /// Its key in `blocks`: `node/NAME`, `worker/ID`, and for one job `node/NAME@JOB`.
    pub fn key(&self) -> String {
        let key = self.kind.key(&self.identifier);
        match &self.job {
            Some(job) => format!("{key}@{job}"),
            None => key,
        }
    }
    /// Over when `now` has reached the end (section 4, rule 1).
    pub fn in_force(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| now < end)
    }
}

/// One item to add. Give one of `end`, `duration_ms`, `permanent`; with none, the default duration.
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
    /// `end_timestamp` is the same.
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
    /// `CLUSTER`, the default, or `JOB:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(CLUSTER|JOB:[A-Za-z0-9][A-Za-z0-9._-]{0,127})$")]
    pub scope: Option<String>,
    /// How what runs there is taken off; as the service is set where this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evacuation: Option<EvacuationPolicy>,
    /// The number a re-announced copy is based on; new facts leave it out (8.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal_no: Option<u64>,
}

/// What became of an add (5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BlockOutcome {
    Added,
    Upgraded,
    Merged,
    None,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockAnswer {
    pub outcome: BlockOutcome,
    /// Why nothing happened, as `STALE_COPY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<BlockEntry>,
    pub revision: u64,
    /// What the caller should know, with the numbers: how much of a pool is blocked by now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockList {
    pub items: Vec<BlockEntry>,
    pub revision: u64,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `POST /v1/blocklist/items`: up to 1,000 items, taken in together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockBatch {
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Vec<BlockRequest>,
    /// Who found it out: `strategy:<name>`, `slow-task:<job>`, `detector:<name>`. Left out, the
    /// items are the caller's own, `manual:<name>`, and exempt from the fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(manual|strategy|slow-task|detector):[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    pub source: Option<String>,
}

/// One result per key, in the order in which they were named first, and how many there were of
/// each kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockBatchAnswer {
    pub results: Vec<BlockAnswer>,
    pub added: u64,
    pub upgraded: u64,
    pub merged: u64,
    pub unchanged: u64,
    /// Re-announced copies of items that were removed meanwhile.
    pub stale: u64,
    pub revision: u64,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BlockEvent {
    Added,
    Upgraded,
    Merged,
    /// Somebody took the item away.
    Removed,
    /// Its end was reached.
    Expired,
    /// Something worked on the machine on trial: it is trusted again.
    TrialPassed,
    /// Nobody used the machine on trial until the trial was over.
    TrialUnused,
    #[serde(other)]
    Unknown,
}

/// One line of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockChange {
    pub at: Timestamp,
    pub event: BlockEvent,
    /// Who caused it; absent where an end was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why it was removed, where somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The item after it was added to, or as it was before it went.
    pub item: BlockEntry,
}

/// `GET /v1/blocklist/history`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockHistory {
    pub changes: Vec<BlockChange>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// What is listed is at least as new.
    #[serde(default)]
    pub revision: u64,
}
