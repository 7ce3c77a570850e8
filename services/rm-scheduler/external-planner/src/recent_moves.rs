//! Recent preemptions by responses. They keep work from moving back and forth, and no process is
//! served twice.
//!
//! The data is carried from round to round, so that a replayed round decides the same.

use hayward_rm_scheduler_domain::{
    Snapshot,
    plan::{Grant, Receipt},
    snapshot::{Allocation, outside::Moved},
};
use hayward_vocabulary::{Timestamp, WorkId};

/// Milliseconds for which a new allocation of preempted work is protected, and for which freed
/// space counts for its beneficiary until it is granted.
pub(crate) const PROTECTED_MS: u64 = 300_000;

/// Returns the moves of the pool that are still recent.
pub(crate) fn recent(snapshot: &Snapshot, top: &str) -> Moved {
    let Some(moved) = snapshot.carried.moved.get(top) else {
        return Moved::default();
    };
    let mut moved = moved.clone();
    let fresh = |at: &Timestamp| at.plus_ms(PROTECTED_MS) > snapshot.now;
    moved.hit.retain(|_, at| fresh(at));
    for made in moved.served.values_mut() {
        made.retain(fresh);
    }
    moved.served.retain(|_, made| !made.is_empty());
    moved
}

/// Returns true for an allocation granted after its work was preempted.
pub(crate) fn is_safe(moved: &Moved, held: &Allocation) -> bool {
    let hit = moved.hit.get(&held.work);
    hit.is_some_and(|hit| held.granted_at >= *hit)
}

/// Returns the number of processes with freed space that are not granted yet.
pub(crate) fn served(moved: &Moved, work: &WorkId) -> u64 {
    moved.served.get(work).map_or(0, |made| made.len() as u64)
}

pub(crate) fn record_grant(moved: &mut Moved, grant: &Grant) {
    if let Some(made) = moved.served.get_mut(&grant.work) {
        made.pop();
        if made.is_empty() {
            moved.served.remove(&grant.work);
        }
    }
}

/// Records a preemption of the work. Several victims for one process count once.
pub(crate) fn record_vacate(moved: &mut Moved, receipt: &Receipt, now: Timestamp) {
    moved.hit.insert(receipt.work.clone(), now);
}

pub(crate) fn record_served(moved: &mut Moved, work: &WorkId, now: Timestamp) {
    moved.served.entry(work.clone()).or_default().push(now);
}
