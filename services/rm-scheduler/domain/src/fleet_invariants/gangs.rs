//! Invariant: a gang has its minimum, or holds nothing (I13). A gang in between is called torn.
//!
//! The check covers only gangs that were never complete. Gangs that lost processes later are
//! checked by the owner of their applications, who knows how long the repair may take.

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;
use hayward_vocabulary::invariant_finding::{Evidence, Finding, Inquiry, Rule};

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
    /// Number of processes that the gang has, without leaving ones.
    process_count: u64,
    /// Number of processes that the gang lacks to its minimum.
    missing: u64,
    /// True if an allocation of the gang is leaving, so that the gang is being released.
    is_leaving: bool,
    /// True if the gang once had more processes than now, which shows that it was complete.
    was_complete: bool,
}

/// Gangs by application and name.
type Gangs = BTreeMap<(String, String), GangState>;

/// Returns the state of each gang. `granted` returns the number of grants that a piece of work ever
/// got.
fn gang_states(snapshot: &Snapshot, granted: impl Fn(&WorkId) -> u64) -> Gangs {
    // Number of staying processes, and whether any process is leaving.
    let mut held: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    for allocation in snapshot.allocations.values() {
        let (process_count, is_leaving) = held.entry(allocation.work.as_str()).or_default();
        *process_count += u64::from(!allocation.leaving);
        *is_leaving |= allocation.leaving;
    }
    let mut gangs = Gangs::new();
    for (work, demand) in &snapshot.demand {
        let queued = demand.queued.as_deref();
        let Some((queued, gang)) = queued.and_then(|queued| Some((queued, queued.gang.as_ref()?)))
        else {
            continue;
        };
        let application = queued.application.as_deref().unwrap_or(work.as_str());
        let key = (application.to_owned(), gang.name.clone());
        let state = gangs.entry(key).or_default();
        let (process_count, is_leaving) = held.get(work.as_str()).copied().unwrap_or_default();
        state.process_count += process_count;
        state.missing += gang
            .min
            .min(demand.max_processes)
            .saturating_sub(process_count);
        state.is_leaving |= is_leaving;
        state.was_complete |= granted(work) > process_count;
    }
    gangs
}

/// Reports gangs that stay torn for longer than the grace time. `now_ms` is a monotonic clock.
///
/// `granted` returns the number of grants that a piece of work ever got.
pub fn check_gangs(
    snapshot: &Snapshot,
    granted: impl Fn(&WorkId) -> u64,
    memory: &mut Memory,
    now_ms: u64,
) -> Finding {
    let gangs = gang_states(snapshot, granted);
    let torn = gangs.iter().filter(|(_, state)| {
        let is_torn = state.process_count > 0 && state.missing > 0;
        is_torn && !state.is_leaving && !state.was_complete
    });
    let torn = torn.map(|(key, state)| (key.clone(), state.missing));
    memory.torn_gangs.record(now_ms, torn);
    let mut inquiry = Inquiry::new(GANGS);
    let overdue: BTreeMap<_, _> = memory
        .torn_gangs
        .ages(now_ms)
        .filter(|(_, _, age)| *age >= GRACE_MS)
        .map(|(key, missing, age)| (key.clone(), (*missing, age)))
        .collect();
    for (key, state) in gangs {
        let fault = overdue.get(&key).map(|(missing, age)| {
            let (application, gang) = &key;
            let detail = format!(
                "gang {gang:?} has {} processes and lacks {missing}, and is neither repaired nor \
                 released",
                state.process_count
            );
            Evidence::new(application, detail)
                .with_number("has_processes", state.process_count)
                .with_number("lacks_processes", *missing)
                .with_number("torn_ms", *age)
        });
        inquiry.examine(fault);
    }
    inquiry.finish()
}
