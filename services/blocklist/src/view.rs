//! Items as readers see them: the entry, and its progress in the scheduler.

use std::collections::BTreeMap;

use hayward_blocklist_api::{
    BlockAction, BlockEntry, BlockView, EvacuationBlocker, EvacuationProgress, InForce,
};
use hayward_rm_scheduler_api::evidence::{Blocker, ClearingEntry};
use hayward_vocabulary::Timestamp;

pub type Evacuations = BTreeMap<String, ClearingEntry>;

/// Progress of the item in the scheduler; none when the scheduler reports about an earlier item of
/// the key.
pub fn evacuation<'a>(
    entry: &BlockEntry,
    evacuations: &'a Evacuations,
) -> Option<&'a ClearingEntry> {
    let evacuation = evacuations.get(&entry.key())?;
    (evacuation.number == entry.removal_no).then_some(evacuation)
}

pub fn view(entry: BlockEntry, evacuations: &Evacuations, now: Timestamp) -> BlockView {
    let found = evacuation(&entry, evacuations);
    let evacuates = entry.action == BlockAction::Evacuate && !entry.canary;
    BlockView {
        left_ms: entry.end.map(|end| end.ms_since(now)),
        in_force: found.map(in_force),
        progress: evacuates.then(|| progress(found)),
        workers: None,
        item: entry,
    }
}

fn in_force(evacuation: &ClearingEntry) -> InForce {
    InForce {
        revision: evacuation.revision,
        since: evacuation.since,
    }
}

pub fn progress(evacuation: Option<&ClearingEntry>) -> EvacuationProgress {
    evacuation.map_or_else(EvacuationProgress::default, |evacuation| {
        EvacuationProgress {
            total: evacuation.total,
            moved: evacuation.moved,
            failed: evacuation.failed,
            remaining: evacuation.remaining,
            blockers: evacuation.blockers.iter().map(blocker).collect(),
            in_force: Some(in_force(evacuation)),
        }
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
