//! What answers took back lately: nobody's place goes to and fro, and nobody is served twice.
//!
//! It is carried from round to round, so that a round planned again decides the same.

use hayward_rm_scheduler_domain::{
    Snapshot,
    plan::{Grant, Receipt},
    snapshot::{Allocation, outside::Moved},
};
use hayward_vocabulary::{Timestamp, WorkId};

/// So long a new place of work that gave one up is safe from answers; and so long room that was
/// made for work counts as made, if it is not granted any.
pub(crate) const QUIET_MS: u64 = 300_000;

/// What is left of it now.
pub(crate) fn lately(snapshot: &Snapshot, top: &str) -> Moved {
    let Some(moved) = snapshot.carried.moved.get(top) else {
        return Moved::default();
    };
    let mut moved = moved.clone();
    let fresh = |at: &Timestamp| at.plus_ms(QUIET_MS) > snapshot.now;
    moved.hit.retain(|_, at| fresh(at));
    for made in moved.served.values_mut() {
        made.retain(fresh);
    }
    moved.served.retain(|_, made| !made.is_empty());
    moved
}

/// It was granted after its work had given something up.
pub(crate) fn is_safe(moved: &Moved, held: &Allocation) -> bool {
    let hit = moved.hit.get(&held.work);
    hit.is_some_and(|hit| held.granted_at >= *hit)
}

/// Processes for which room was made that they have not got yet.
pub(crate) fn served(moved: &Moved, work: &WorkId) -> u64 {
    moved.served.get(work).map_or(0, |made| made.len() as u64)
}

pub(crate) fn note_grant(moved: &mut Moved, grant: &Grant) {
    if let Some(made) = moved.served.get_mut(&grant.work) {
        made.pop();
        if made.is_empty() {
            moved.served.remove(&grant.work);
        }
    }
}

/// Several places may be given up for one process, which is one.
pub(crate) fn note_order(moved: &mut Moved, receipt: &Receipt, now: Timestamp) {
    moved.hit.insert(receipt.work.clone(), now);
}

pub(crate) fn note_served(moved: &mut Moved, work: &WorkId, now: Timestamp) {
    moved.served.entry(work.clone()).or_default().push(now);
}
