//! Types of the working set, used by the ledger, the commands and the rows.

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind, BlockOutcome, EvacuationPolicy};
use hayward_blocklist_domain::block::MANUAL_PREFIX;
use hayward_blocklist_domain::{Action, Block, Canary, KeyState};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};

use crate::config::Settings;

/// Reason of an unchanged result: the request is a copy from before a removal.
pub const STALE_COPY: &str = "STALE_COPY";

/// Key of a block: a node or worker, and the job for which it is blocked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: BlockKind,
    pub identifier: String,
    /// The job for which the target is blocked. `None` if it is blocked for the whole cluster.
    pub job: Option<WorkId>,
}

impl Key {
    /// Creates the key of a node that is blocked for all work.
    pub fn for_node(node: &NodeName) -> Self {
        Self {
            kind: BlockKind::Node,
            identifier: node.to_string(),
            job: None,
        }
    }

    /// Returns the key as text, as in the publication and in responses.
    pub fn publication_key(&self) -> String {
        let key = self.kind.key(&self.identifier);
        match &self.job {
            Some(job) => format!("{key}@{job}"),
            None => key,
        }
    }

    /// Returns the name of the node if the key blocks a node for all work. Brakes and trials apply
    /// only to such keys.
    pub fn cluster_scoped_node(&self) -> Option<&str> {
        let is_cluster_scoped = self.kind == BlockKind::Node && self.job.is_none();
        is_cluster_scoped.then_some(self.identifier.as_str())
    }
}

/// One key in the working set.
#[derive(Debug, Clone, Default)]
pub struct KeyRecord {
    pub state: KeyState,
    pub updated_at: Timestamp,
    /// Evacuation that waits in the queue while the block is only a mark (B3). `None` if none
    /// waits.
    pub pending_evacuation: Option<Action>,
    /// Time of the next check of the key. `None` if its block is permanent.
    pub next_check_at: Option<Timestamp>,
}

impl KeyRecord {
    /// Returns the published entry. `None` if the key has neither a block nor a trial.
    pub fn entry(&self, key: &Key) -> Option<BlockEntry> {
        let (block, canary) = (&self.state.block, &self.state.canary);
        let removal_no = self.state.removal_no;
        match (block, canary) {
            (Some(block), _) => Some(block_entry(key, block, removal_no)),
            (None, Some(canary)) => Some(canary_entry(key, canary, removal_no)),
            (None, None) => None,
        }
    }

    /// Returns whether the key has a block that has not ended.
    pub fn is_blocked(&self, now: Timestamp) -> bool {
        self.state
            .block
            .as_ref()
            .is_some_and(|block| block.is_in_force(now))
    }
}

/// Creates the published entry of a block.
pub fn block_entry(key: &Key, block: &Block, removal_no: u64) -> BlockEntry {
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

/// Creates the published entry of a node on trial. The entry ends with the trial, so that followers
/// end the trial in time without an update.
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

/// Returns the `ETag` of an entry: an FNV-1a hash of its JSON, which is equal on every replica
/// (A5).
pub fn etag(entry: &BlockEntry) -> String {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let text = serde_json::to_string(entry).unwrap_or_default();
    let hash = text.bytes().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    format!("\"{}-{hash:016x}\"", entry.removal_no)
}

/// Start and duration of an automatic block. They are stored so that the next block of the same key
/// lasts longer (back-off).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoBlock {
    pub at: Timestamp,
    pub duration_ms: u64,
    pub source: String,
}

/// Requested end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEnd {
    /// After the default duration.
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
    /// The `removal_no` of a re-announced copy. `None` for a new block.
    pub copied_removal_no: Option<u64>,
}

/// Result of one request.
#[derive(Debug, Clone)]
pub struct AddResult {
    pub outcome: BlockOutcome,
    /// Reason of an unchanged result, if any.
    pub reason: Option<&'static str>,
    pub item: Option<BlockEntry>,
    pub warnings: Vec<String>,
}

/// Requests that are added in order, all or none.
#[derive(Debug)]
pub struct BlockRequests {
    pub items: Vec<BlockRequest>,
    pub caller_name: String,
    /// False to refuse a request that differs from the existing block.
    pub allow_merge: bool,
}

/// A request to remove a block or end a trial.
#[derive(Debug)]
pub struct RemoveRequest {
    pub key: Key,
    pub caller_name: String,
    pub reason: Option<String>,
    /// `ETag` that the caller requires. `None` accepts any.
    pub if_match: Option<String>,
}

impl BlockRequest {
    /// Returns whether the source is not a person.
    pub fn is_automatic(&self) -> bool {
        !self.source.starts_with(MANUAL_PREFIX)
    }

    /// Creates the requested block.
    pub fn to_block(&self, now: Timestamp, settings: &Settings) -> Block {
        let end = match self.end {
            BlockEnd::Default => Some(now.plus_ms(settings.default_duration_ms)),
            BlockEnd::After(ms) => Some(now.plus_ms(ms)),
            BlockEnd::At(end) => Some(end),
            BlockEnd::Permanent => None,
        };
        // A past end is moved to the next check, so that the block has its effect once and readers
        // see it until then.
        let next_check = now.plus_ms(settings.check_interval_ms.max(1));
        let end = end.map(|end| if end <= now { next_check } else { end });
        Block {
            action: self.action,
            causes: [self.cause.clone()].into(),
            start: now,
            end,
            sources: [self.source.clone()].into(),
        }
    }

    /// Returns whether the request equals the one that created the block. A duration counts from
    /// the start of the block.
    pub fn matches_block(&self, block: &Block, settings: &Settings) -> bool {
        let requested = self.to_block(block.start, settings);
        requested.action == block.action
            && requested.causes == block.causes
            && requested.end == block.end
    }
}

/// Parses the kind of a target, as used in paths and rows.
pub fn parse_kind(text: &str) -> Option<BlockKind> {
    match text.to_ascii_uppercase().as_str() {
        "NODE" => Some(BlockKind::Node),
        "WORKER" => Some(BlockKind::Worker),
        _ => None,
    }
}
