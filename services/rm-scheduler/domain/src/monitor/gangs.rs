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
/// Milliseconds within which all parts of one grant arrive, or a torn gang is released.
const GRACE_MS: u64 = 120_000;

#[derive(Default)]
struct Parts {
    has: u64,
    lacks: u64,
    /// True if a part of the gang is leaving, so the gang is being released.
    goes: bool,
    /// True if the gang had more processes before, so it was complete.
    formed: bool,
}

/// Reports gangs that stay torn for longer than the grace time. `now_ms` is a monotonic clock.
///
/// `granted` returns the number of all grants that a piece of work ever got.
pub fn gangs_are_whole(
    snapshot: &Snapshot,
    granted: impl Fn(&WorkId) -> u64,
    memory: &mut Memory,
    now_ms: u64,
) -> Finding {
    let mut held: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    for allocation in snapshot.allocations.values() {
        let (has, goes) = held.entry(allocation.work.as_str()).or_default();
        *has += u64::from(!allocation.leaving);
        *goes |= allocation.leaving;
    }
    let mut gangs: BTreeMap<(String, String), Parts> = BTreeMap::new();
    for (work, demand) in &snapshot.demand {
        let queued = demand.queued.as_deref();
        let Some((queued, gang)) = queued.and_then(|it| Some((it, it.gang.as_ref()?))) else {
            continue;
        };
        let application = queued.application.as_deref().unwrap_or(work.as_str());
        let key = (application.to_owned(), gang.name.clone());
        let parts = gangs.entry(key).or_default();
        let (has, goes) = held.get(work.as_str()).copied().unwrap_or_default();
        parts.has += has;
        parts.lacks += gang.min.min(demand.max_processes).saturating_sub(has);
        parts.goes |= goes;
        parts.formed |= granted(work) > has;
    }
    let torn = gangs.iter().filter(|(_, parts)| {
        let torn = parts.has > 0 && parts.lacks > 0;
        torn && !parts.goes && !parts.formed
    });
    let torn = torn.map(|(key, parts)| (key.clone(), parts.lacks));
    memory.torn.record(now_ms, torn);
    let mut inquiry = Inquiry::new(GANGS);
    let late: BTreeMap<_, _> = memory
        .torn
        .ages(now_ms)
        .filter(|(_, _, age)| *age >= GRACE_MS)
        .map(|(key, lacks, age)| (key.clone(), (*lacks, age)))
        .collect();
    for (key, parts) in gangs {
        let fault = late.get(&key).map(|(lacks, age)| {
            let detail = format!(
                "gang {:?} has {} processes and lacks {lacks}, and is neither repaired nor \
                 released",
                key.1, parts.has
            );
            Evidence::new(&key.0, detail)
                .with_number("has_processes", parts.has)
                .with_number("lacks_processes", *lacks)
                .with_number("torn_ms", *age)
        });
        inquiry.examine(fault);
    }
    inquiry.finish()
}
