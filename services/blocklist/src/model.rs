//! Types of the working set, shared by the ledger, the commands and the rows.

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind, BlockOutcome, EvacuationPolicy};
use hayward_blocklist_domain::block::MANUAL;
use hayward_blocklist_domain::{Action, Block, Canary, KeyState};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};

use crate::config::Settings;

/// Reason of an unchanged result: the request is a copy from before a removal.
pub const STALE: &str = "STALE_COPY";

/// The target of a block: a node or worker, and the job it applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: BlockKind,
    pub identifier: String,
    /// The one job for which the target is blocked; absent means the whole cluster.
    pub job: Option<WorkId>,
}

impl Key {
    pub fn node(node: &NodeName) -> Self {
        Self {
            kind: BlockKind::Node,
            identifier: node.to_string(),
            job: None,
        }
    }

    /// The key as it appears in the publication and in answers.
    pub fn published(&self) -> String {
        let key = self.kind.key(&self.identifier);
        match &self.job {
            Some(job) => format!("{key}@{job}"),
            None => key,
        }
    }

    /// Name of the node, if the key blocks a whole node for all work. Only such keys concern brakes
    /// and trials.
    pub fn whole_node(&self) -> Option<&str> {
        let whole = self.kind == BlockKind::Node && self.job.is_none();
        whole.then_some(self.identifier.as_str())
    }
}

/// One key in the working set.
#[derive(Debug, Clone, Default)]
pub struct KeyRecord {
    pub state: KeyState,
    pub updated: Timestamp,
    /// Evacuation that waits in the queue while the block is only a mark (B3); absent otherwise.
    pub pending_evacuation: Option<Action>,
    /// When the key is due for the next check; absent when nothing ends by itself.
    pub due: Option<Timestamp>,
}

impl KeyRecord {
    /// The published entry; none when the key has neither block nor trial.
    pub fn entry(&self, key: &Key) -> Option<BlockEntry> {
        let (block, canary) = (&self.state.block, &self.state.canary);
        let number = self.state.removal_no;
        match (block, canary) {
            (Some(block), _) => Some(entry(key, block, number)),
            (None, Some(canary)) => Some(canary_entry(key, canary, number)),
            (None, None) => None,
        }
    }

    pub fn is_blocked(&self, now: Timestamp) -> bool {
        self.state
            .block
            .as_ref()
            .is_some_and(|block| block.in_force(now))
    }
}

/// The published entry of a block.
pub fn entry(key: &Key, block: &Block, removal_no: u64) -> BlockEntry {
    let (action, evacuation) = match block.action {
        Action::Mark => (BlockAction::Mark, EvacuationPolicy::Immediate),
        Action::Evacuate(grace) if grace.0 == 0 => {
            (BlockAction::Evacuate, EvacuationPolicy::Immediate)
        }
        Action::Evacuate(grace) => {
            let grace_ms = grace.0;
            (
                BlockAction::Evacuate,
                EvacuationPolicy::Graceful { grace_ms },
            )
        }
    };
    BlockEntry {
        kind: key.kind,
        identifier: key.identifier.clone(),
        action,
        cause: block.cause(),
        start: block.start,
        end: block.end,
        sources: block.sources.clone(),
        removal_no,
        job: key.job.clone(),
        automatic: block.is_automatic(),
        canary: false,
        evacuation,
    }
}

/// The published entry of a node on trial. Its end is the end of the trial, so followers end it in
/// time without an update.
pub fn canary_entry(key: &Key, canary: &Canary, removal_no: u64) -> BlockEntry {
    BlockEntry {
        kind: key.kind,
        identifier: key.identifier.clone(),
        action: BlockAction::Mark,
        cause: format!("on trial after: {}", canary.cause()),
        start: canary.since,
        end: Some(canary.until),
        sources: canary.sources.clone(),
        removal_no,
        job: key.job.clone(),
        automatic: true,
        canary: true,
        evacuation: EvacuationPolicy::Immediate,
    }
}

/// `ETag` of an entry: an FNV-1a hash, equal for equal entries on every replica (A5).
pub fn etag(entry: &BlockEntry) -> String {
    let text = serde_json::to_string(entry).unwrap_or_default();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{}-{hash:016x}\"", entry.removal_no)
}

/// The start of an automatic block, stored for the back-off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoBlock {
    pub at: Timestamp,
    pub duration_ms: u64,
    pub source: String,
}

/// Requested end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEnd {
    Default,
    At(Timestamp),
    /// After this many milliseconds.
    After(u64),
    Permanent,
}

/// A validated request for one block.
#[derive(Debug, Clone)]
pub struct BlockRequest {
    pub key: Key,
    pub action: Action,
    pub cause: String,
    pub source: String,
    pub end: BlockEnd,
    /// The `removal_no` of a re-announced copy; absent for a new block.
    pub based_on: Option<u64>,
}

/// Result of one request.
#[derive(Debug, Clone)]
pub struct AddResult {
    pub outcome: BlockOutcome,
    /// Reason of an unchanged result.
    pub reason: Option<&'static str>,
    pub item: Option<BlockEntry>,
    pub warnings: Vec<String>,
}

/// Requests that are added as one unit, in order.
#[derive(Debug)]
pub struct BlockRequests {
    pub items: Vec<BlockRequest>,
    pub by: String,
    /// False refuses a request that differs from the existing block.
    pub allow_merge: bool,
}

/// A request to remove a block or end a trial.
#[derive(Debug)]
pub struct RemoveRequest {
    pub key: Key,
    pub by: String,
    pub why: Option<String>,
    /// `ETag` that the caller requires; absent means any.
    pub if_match: Option<String>,
}

impl BlockRequest {
    pub fn is_automatic(&self) -> bool {
        !self.source.starts_with(MANUAL)
    }

    pub fn block(&self, now: Timestamp, settings: &Settings) -> Block {
        let end = match self.end {
            BlockEnd::Default => Some(now.plus_ms(settings.default_duration_ms)),
            BlockEnd::After(ms) => Some(now.plus_ms(ms)),
            BlockEnd::At(end) => Some(end),
            BlockEnd::Permanent => None,
        };
        // A past end becomes the next check, so that the block has its effect once and readers see
        // it until then.
        let check = now.plus_ms(settings.check_interval_ms.max(1));
        let end = end.map(|end| if end <= now { check } else { end });
        Block {
            action: self.action,
            causes: [self.cause.clone()].into(),
            start: now,
            end,
            sources: [self.source.clone()].into(),
        }
    }

    /// True when the request repeats the one that made the block. A duration counts from the start
    /// of the block.
    pub fn repeats(&self, block: &Block, settings: &Settings) -> bool {
        let again = self.block(block.start, settings);
        again.action == block.action && again.causes == block.causes && again.end == block.end
    }
}

/// Parses the kind of a target, as paths and rows name it.
pub fn parse_kind(text: &str) -> Option<BlockKind> {
    match text.to_ascii_uppercase().as_str() {
        "NODE" => Some(BlockKind::Node),
        "WORKER" => Some(BlockKind::Worker),
        _ => None,
    }
}
