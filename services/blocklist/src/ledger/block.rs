//! One key in the working set, and how it is shown.

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind, EvacuationPolicy};
use hayward_blocklist_domain::{Action, Item, Slot, Trial};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};

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
