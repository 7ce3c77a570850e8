//! One key in the working set, and how it is shown.

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind, BlockOutcome, EvacuationPolicy};
use hayward_blocklist_domain::block::MANUAL;
use hayward_blocklist_domain::{Action, Item, Slot, Trial};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};

use crate::config::Settings;

/// What an unchanged answer gives as its reason for a copy from before a removal (8.4).
pub const STALE: &str = "STALE_COPY";

/// What is blocked, and for whom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: BlockKind,
    pub identifier: String,
    /// For this work alone (8.5); absent, for the whole cluster.
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

    /// As it is published and named in answers.
    pub fn published(&self) -> String {
        let key = self.kind.key(&self.identifier);
        match &self.job {
            Some(job) => format!("{key}@{job}"),
            None => key,
        }
    }

    /// A machine, for everybody: what brakes and trials are about.
    pub fn whole_node(&self) -> Option<&str> {
        let whole = self.kind == BlockKind::Node && self.job.is_none();
        whole.then_some(self.identifier.as_str())
    }
}

#[derive(Debug, Clone, Default)]
pub struct Block {
    pub slot: Slot,
    pub updated: Timestamp,
    /// The evacuation that waits for its turn while the item is only a mark (B3).
    pub owed: Option<Action>,
    /// When the queue looks at it without news.
    pub due: Option<Timestamp>,
}

impl Block {
    /// What is published of it.
    pub fn entry(&self, key: &Key) -> Option<BlockEntry> {
        let (item, trial) = (&self.slot.item, &self.slot.trial);
        let number = self.slot.removal_no;
        match (item, trial) {
            (Some(item), _) => Some(entry(key, item, number)),
            (None, Some(trial)) => Some(on_trial(key, trial, number)),
            (None, None) => None,
        }
    }

    pub fn is_blocked(&self, now: Timestamp) -> bool {
        self.slot
            .item
            .as_ref()
            .is_some_and(|item| item.in_force(now))
    }
}

pub fn entry(key: &Key, item: &Item, removal_no: u64) -> BlockEntry {
    let (action, evacuation) = match item.action {
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
        cause: item.cause(),
        start: item.start,
        end: item.end,
        sources: item.sources.clone(),
        removal_no,
        job: key.job.clone(),
        automatic: item.automatic(),
        canary: false,
        evacuation,
    }
}

/// Its end is that of the trial, so whoever follows ends it in time without news.
pub fn on_trial(key: &Key, trial: &Trial, removal_no: u64) -> BlockEntry {
    BlockEntry {
        kind: key.kind,
        identifier: key.identifier.clone(),
        action: BlockAction::Mark,
        cause: format!("on trial after: {}", trial.cause()),
        start: trial.since,
        end: Some(trial.until),
        sources: trial.sources.clone(),
        removal_no,
        job: key.job.clone(),
        automatic: true,
        canary: true,
        evacuation: EvacuationPolicy::Immediate,
    }
}

/// The `ETag` of an entry: the same text for the same entry, on every replica (A5). FNV-1a.
pub fn etag(entry: &BlockEntry) -> String {
    let text = serde_json::to_string(entry).unwrap_or_default();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{}-{hash:016x}\"", entry.removal_no)
}

/// An automatic block that began, for the back-off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    pub at: Timestamp,
    pub duration_ms: u64,
    pub source: String,
}

/// How long somebody wants something blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Default,
    At(Timestamp),
    For(u64),
    Permanent,
}

/// A checked request.
#[derive(Debug, Clone)]
pub struct New {
    pub key: Key,
    pub action: Action,
    pub cause: String,
    pub source: String,
    pub until: Until,
    pub based_on: Option<u64>,
}

/// What became of one item.
#[derive(Debug, Clone)]
pub struct Done {
    pub outcome: BlockOutcome,
    /// Why nothing happened.
    pub reason: Option<&'static str>,
    pub item: Option<BlockEntry>,
    pub warnings: Vec<String>,
}

/// Items that are taken in together, in order.
#[derive(Debug)]
pub struct Orders {
    pub items: Vec<New>,
    pub by: String,
    /// Otherwise an item that is there and says something else is a conflict.
    pub allow_merge: bool,
}

/// Somebody wants an item gone.
#[derive(Debug)]
pub struct Removal {
    pub key: Key,
    pub by: String,
    pub why: Option<String>,
    /// `ETag` of what the caller saw.
    pub seen: Option<String>,
}

impl New {
    pub fn automatic(&self) -> bool {
        !self.source.starts_with(MANUAL)
    }

    pub fn item(&self, now: Timestamp, settings: &Settings) -> Item {
        let end = match self.until {
            Until::Default => Some(now.plus_ms(settings.default_duration_ms)),
            Until::For(ms) => Some(now.plus_ms(ms)),
            Until::At(end) => Some(end),
            Until::Permanent => None,
        };
        // Section 4, rule 2: an end that has passed is the next check, so that the item has its
        // effect once, and is there for whoever reads or writes until then.
        let check = now.plus_ms(settings.check_interval_ms.max(1));
        let end = end.map(|end| if end <= now { check } else { end });
        Item {
            action: self.action,
            causes: [self.cause.clone()].into(),
            start: now,
            end,
            sources: [self.source.clone()].into(),
        }
    }

    /// The request that made the item, repeated: a duration counts from the item's own start.
    pub fn repeats(&self, item: &Item, settings: &Settings) -> bool {
        let again = self.item(item.start, settings);
        again.action == item.action && again.causes == item.causes && again.end == item.end
    }
}

/// What may be blocked, as it is named in paths and rows.
pub fn kind(text: &str) -> Option<BlockKind> {
    match text.to_ascii_uppercase().as_str() {
        "NODE" => Some(BlockKind::Node),
        "WORKER" => Some(BlockKind::Worker),
        _ => None,
    }
}
