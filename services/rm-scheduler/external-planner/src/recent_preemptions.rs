//! Recent preemptions by an external planner. This data prevents that two pieces of work
//! preempt each other in turn, and that space is freed twice for one process.
//!
//! The data is carried from round to round, so that a replayed round decides the same.

use hayward_rm_scheduler_domain::{
    Snapshot,
    plan::{Grant, Receipt},
    snapshot::{Allocation, external_planners::RecentPreemptions},
};
use hayward_vocabulary::{Timestamp, WorkId};

/// Milliseconds after a preemption. Meanwhile a new allocation of the preempted work is protected,
/// and the freed space is reserved for its beneficiary.
pub(crate) const PROTECTED_MS: u64 = 300_000;

/// Returns the preemptions in the top-level pool that are still recent.
pub(crate) fn recent_preemptions(snapshot: &Snapshot, top_pool: &str) -> RecentPreemptions {
    let Some(preemptions) = snapshot.carried.recent_preemptions.get(top_pool) else {
        return RecentPreemptions::default();
    };
    let mut preemptions = preemptions.clone();
    let is_recent = |at: &Timestamp| at.plus_ms(PROTECTED_MS) > snapshot.now;
    preemptions.preempted_at.retain(|_, at| is_recent(at));
    for freed_at in preemptions.freed_for.values_mut() {
        freed_at.retain(is_recent);
    }
    preemptions
        .freed_for
        .retain(|_, freed_at| !freed_at.is_empty());
    preemptions
}

/// Returns true if the allocation was granted after a recent preemption of its work.
pub(crate) fn is_protected(preemptions: &RecentPreemptions, allocation: &Allocation) -> bool {
    let preempted_at = preemptions.preempted_at.get(&allocation.work);
    preempted_at.is_some_and(|preempted_at| allocation.granted_at >= *preempted_at)
}

/// Returns the number of processes of the work that have no grant yet, although space was freed
/// for them.
pub(crate) fn pending_grants(preemptions: &RecentPreemptions, work: &WorkId) -> u64 {
    preemptions
        .freed_for
        .get(work)
        .map_or(0, |freed_at| freed_at.len() as u64)
}

/// Forgets the freed space of one process, because the process is granted.
pub(crate) fn record_grant(preemptions: &mut RecentPreemptions, grant: &Grant) {
    if let Some(freed_at) = preemptions.freed_for.get_mut(&grant.work) {
        freed_at.pop();
        if freed_at.is_empty() {
            preemptions.freed_for.remove(&grant.work);
        }
    }
}

/// Records the time of the preemption for the work of the victim.
pub(crate) fn record_preemption(
    preemptions: &mut RecentPreemptions,
    receipt: &Receipt,
    now: Timestamp,
) {
    preemptions.preempted_at.insert(receipt.work.clone(), now);
}

/// Records that space was freed for one process of the work. Several victims for one process count
/// once.
pub(crate) fn record_freed_space(
    preemptions: &mut RecentPreemptions,
    work: &WorkId,
    now: Timestamp,
) {
    preemptions
        .freed_for
        .entry(work.clone())
        .or_default()
        .push(now);
}
