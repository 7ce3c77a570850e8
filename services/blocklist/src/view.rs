//! Items as readers see them: the entry, and what the scheduler has made of it so far.

use std::collections::BTreeMap;

use hayward_blocklist_api::{
    BlockAction, BlockEntry, BlockView, EvacuationBlocker, EvacuationProgress, InForce,
};
use hayward_rm_scheduler_api::evidence::{Blocker, ClearingEntry};
use hayward_vocabulary::Timestamp;

pub type Clearings = BTreeMap<String, ClearingEntry>;

/// What the scheduler says about an item, and not about an earlier one of the same key.
pub fn clearing<'a>(entry: &BlockEntry, clearings: &'a Clearings) -> Option<&'a ClearingEntry> {
    let clearing = clearings.get(&entry.key())?;
    (clearing.number == entry.removal_no).then_some(clearing)
}

pub fn view(entry: BlockEntry, clearings: &Clearings, now: Timestamp) -> BlockView {
    let found = clearing(&entry, clearings);
    let evacuates = entry.action == BlockAction::Evacuate && !entry.canary;
    BlockView {
        left_ms: entry.end.map(|end| end.ms_since(now)),
        in_force: found.map(in_force),
        progress: evacuates.then(|| progress(found)),
        workers: None,
        item: entry,
    }
}

fn in_force(clearing: &ClearingEntry) -> InForce {
    InForce {
        revision: clearing.revision,
        since: clearing.since,
    }
}

pub fn progress(clearing: Option<&ClearingEntry>) -> EvacuationProgress {
    clearing.map_or_else(EvacuationProgress::default, |clearing| EvacuationProgress {
        total: clearing.total,
        moved: clearing.moved,
        failed: clearing.failed,
        remaining: clearing.remaining,
        blockers: clearing.blockers.iter().map(blocker).collect(),
        in_force: Some(in_force(clearing)),
    })
}

fn blocker(blocker: &Blocker) -> EvacuationBlocker {
    EvacuationBlocker {
        worker: blocker.allocation.to_string(),
        work: blocker.work.clone(),
        user: blocker.user.clone(),
        detail: blocker.detail.clone(),
    }
}
