//! Invariant: a gang has its minimum, or holds nothing (I13).
//!
//! The check covers only gangs that were never complete. The owner of the applications checks the
//! others, because it knows how long their repair may take.

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;
use hayward_vocabulary::invariant::{Evidence, Finding, Inquiry, Rule};

use super::Memory;
use crate::input::snapshot::Snapshot;

pub const GANGS: Rule = Rule {
    id: "I13",
    title: "a gang has its minimum, or holds nothing",
};
/// Milliseconds within which all allocations of one grant arrive, or a torn gang is released.
const GRACE_MS: u64 = 120_000;

#[derive(Default)]
struct GangState {
    has: u64,
    lacks: u64,
    /// True if a part of the gang is leaving, so the gang is being released.
    leaves: bool,
    /// True if the gang had more processes before, so it was complete.
    was_complete: bool,
}

/// Reports gangs that stay torn for longer than the grace time. `now_ms` is a monotonic clock.
///
/// `granted` returns the number of all grants that a piece of work ever got.
pub fn check_gangs(
    snapshot: &Snapshot,
    granted: impl Fn(&WorkId) -> u64,
    memory: &mut Memory,
    now_ms: u64,
) -> Finding {
    let mut held: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    for allocation in snapshot.allocations.values() {
        let (has, leaves) = held.entry(allocation.work.as_str()).or_default();
        *has += u64::from(!allocation.leaving);
        *leaves |= allocation.leaving;
    }
    let mut gangs: BTreeMap<(String, String), GangState> = BTreeMap::new();
    for (work, demand) in &snapshot.demand {
        let queued = demand.queued.as_deref();
        let Some((queued, gang)) = queued.and_then(|it| Some((it, it.gang.as_ref()?))) else {
            continue;
        };
        let application = queued.application.as_deref().unwrap_or(work.as_str());
        let key = (application.to_owned(), gang.name.clone());
        let state = gangs.entry(key).or_default();
        let (has, leaves) = held.get(work.as_str()).copied().unwrap_or_default();
        state.has += has;
        state.lacks += gang.min.min(demand.max_processes).saturating_sub(has);
        state.leaves |= leaves;
        state.was_complete |= granted(work) > has;
    }
    let torn = gangs.iter().filter(|(_, state)| {
        let torn = state.has > 0 && state.lacks > 0;
        torn && !state.leaves && !state.was_complete
    });
    let torn = torn.map(|(key, state)| (key.clone(), state.lacks));
    memory.torn_gangs.record(now_ms, torn);
    let mut inquiry = Inquiry::new(GANGS);
    let overdue: BTreeMap<_, _> = memory
        .torn_gangs
        .ages(now_ms)
        .filter(|(_, _, age)| *age >= GRACE_MS)
        .map(|(key, lacks, age)| (key.clone(), (*lacks, age)))
        .collect();
    for (key, state) in gangs {
        let fault = overdue.get(&key).map(|(lacks, age)| {
            let detail = format!(
                "gang {:?} has {} processes and lacks {lacks}, and is neither repaired nor \
                 released",
                key.1, state.has
            );
            Evidence::new(&key.0, detail)
                .with_number("has_processes", state.has)
                .with_number("lacks_processes", *lacks)
                .with_number("torn_ms", *age)
        });
        inquiry.examine(fault);
    }
    inquiry.finish()
}
