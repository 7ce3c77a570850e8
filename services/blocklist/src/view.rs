//! Views of items for readers: the entry, and its progress in the scheduler.

use std::collections::BTreeMap;

use hayward_blocklist_api::{
    BlockAction, BlockEntry, BlockView, EvacuationBlocker, EvacuationProgress, InForce,
};
use hayward_rm_scheduler_api::node_publications::{Blocker, ClearingEntry};
use hayward_vocabulary::Timestamp;

pub type Evacuations = BTreeMap<String, ClearingEntry>;

/// Returns the progress of an item in the scheduler. `None` if the scheduler has reported nothing
/// for the key, or only the progress of an earlier item.
pub fn find_evacuation<'a>(
    entry: &BlockEntry,
    evacuations: &'a Evacuations,
) -> Option<&'a ClearingEntry> {
    let evacuation = evacuations.get(&entry.key())?;
    (evacuation.number == entry.removal_no).then_some(evacuation)
}

/// Creates the view of an item.
pub fn to_view(entry: BlockEntry, evacuations: &Evacuations, now: Timestamp) -> BlockView {
    let evacuation = find_evacuation(&entry, evacuations);
    let is_evacuation = entry.action == BlockAction::Evacuate && !entry.canary;
    BlockView {
        left_ms: entry.end.map(|end| end.ms_since(now)),
        in_force: evacuation.map(to_in_force),
        progress: is_evacuation.then(|| to_progress(evacuation)),
        workers: None,
        item: entry,
    }
}

fn to_in_force(evacuation: &ClearingEntry) -> InForce {
    InForce {
        revision: evacuation.revision,
        since: evacuation.since,
    }
}

/// Converts the progress of an evacuation to that of the API.
pub fn to_progress(evacuation: Option<&ClearingEntry>) -> EvacuationProgress {
    evacuation.map_or_else(EvacuationProgress::default, |evacuation| {
        EvacuationProgress {
            total: evacuation.total,
            moved: evacuation.moved,
            failed: evacuation.failed,
            remaining: evacuation.remaining,
            blockers: evacuation.blockers.iter().map(to_blocker).collect(),
            in_force: Some(to_in_force(evacuation)),
        }
    })
}

fn to_blocker(blocker: &Blocker) -> EvacuationBlocker {
    EvacuationBlocker {
        worker: blocker.allocation.to_string(),
        work: blocker.work.clone(),
        user: blocker.user.clone(),
        detail: blocker.detail.clone(),
    }
}
