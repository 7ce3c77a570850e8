//! One key in the working set, and how it is shown.

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind, EvacuationPolicy};
use hayward_blocklist_domain::{Action, Item, Slot};
use hayward_vocabulary::Timestamp;

/// What is blocked.
pub type Key = (BlockKind, String);

#[derive(Debug, Clone, Default)]
pub struct Block {
    pub slot: Slot,
    pub updated: Timestamp,
    /// When the queue looks at it without news.
    pub due: Option<Timestamp>,
}

pub fn action(action: BlockAction) -> Action {
    match action {
        BlockAction::Mark => Action::Mark,
        BlockAction::Evacuate => Action::Evacuate,
    }
}

pub fn entry((kind, identifier): &Key, item: &Item, removal_no: u64) -> BlockEntry {
    BlockEntry {
        kind: *kind,
        identifier: identifier.clone(),
        action: match item.action {
            Action::Mark => BlockAction::Mark,
            Action::Evacuate => BlockAction::Evacuate,
        },
        cause: item.cause(),
        start: item.start,
        end: item.end,
        sources: item.sources.clone(),
        removal_no,
        job: None,
        automatic: false,
        canary: false,
        evacuation: EvacuationPolicy::Immediate,
    }
}
