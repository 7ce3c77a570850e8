//! Invariants of waiting work: every reason is true, and no work waits for space that is free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hayward_vocabulary::invariant_finding::{Evidence, Finding, Inquiry, Rule};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};

use super::{Memory, Sequence};
use crate::{
    check::{Holdings, NodeSearch},
    input::{delta::SnapshotDelta, snapshot::Snapshot},
    output::plan::{Reason, Verdict, Verdicts},
};

pub const EXPLAINED: Rule = Rule {
    id: "I20",
    title: "each piece of work has a true reason of the last round",
};
pub const CONSERVING: Rule = Rule {
    id: "I21",
    title: "nothing that fits waits more than 3 rounds without a named hold",
};
/// Number of rounds after which a wait is a violation, although the work fits.
const MAX_ROUNDS: u64 = 3;
/// The same limit in milliseconds while no round is due, because rounds run only after changes.
const MAX_IDLE_MS: u64 = 10_000;
/// Maximum number of pieces of work for which one check searches for a node.
const MAX_TRIED: usize = 200;
/// Maximum number of pieces of work that are suspected at the same time.
const MAX_SUSPICIONS: usize = 50;

/// The report of the last round, and the changes since then.
#[derive(Debug, Clone, Copy)]
pub struct WaitCheckInput<'a> {
    pub snapshot: &'a Snapshot,
    pub verdicts: &'a Verdicts,
    /// Changes that no round has read, so no verdict can reflect them.
    pub unplanned: &'a SnapshotDelta,
    /// True if no round is due, because the last plan was committed in full.
    pub settled: bool,
    /// Shows which nodes are unchanged since the last round.
    pub sequence: &'a Sequence,
    pub round: u64,
    pub now_ms: u64,
}

impl WaitCheckInput<'_> {
    /// Returns whether the work is unchanged since the last round.
    fn is_work_unchanged(
        &self,
        work: &WorkId,
        held: &BTreeMap<&WorkId, Vec<&AllocationId>>,
    ) -> bool {
        let delta = self.unplanned;
        let mut allocations = held.get(work).into_iter().flatten();
        !delta.everything
            && !delta.work.contains_key(work)
            && !allocations.any(|id| delta.allocations.contains_key(*id))
    }

    /// Returns all allocations by work, including leaving ones.
    fn allocations_by_work(&self) -> BTreeMap<&WorkId, Vec<&AllocationId>> {
        let mut held: BTreeMap<&WorkId, Vec<&AllocationId>> = BTreeMap::new();
        for (id, allocation) in &self.snapshot.allocations {
            held.entry(&allocation.work).or_default().push(id);
        }
        held
    }
}

/// Returns whether a verdict calls work satisfied that waits and has no process.
fn is_wrongly_satisfied(verdict: &Verdict) -> bool {
    let numbers = &verdict.numbers;
    let lacks_all = numbers.current_processes == 0 && numbers.wanted_processes > 0;
    lacks_all && verdict.waits && verdict.reason == Reason::Satisfied
}

/// Checks that each piece of work has a true reason from the last round (I20).
pub fn check_explanations(input: &WaitCheckInput<'_>) -> Finding {
    if input.unplanned.everything {
        return Finding::not_checked(EXPLAINED, "a round that reads everything anew is due");
    }
    let held = input.allocations_by_work();
    // The round may have counted an allocation that has ended since.
    let has_ended = |id: &&AllocationId| !input.snapshot.allocations.contains_key(*id);
    let some_ended = input.unplanned.allocations.keys().any(|id| has_ended(&id));
    let mut inquiry = Inquiry::new(EXPLAINED);
    for work in input.snapshot.demand.keys() {
        if !input.is_work_unchanged(work, &held) {
            continue;
        }
        let staying = held.get(work).map_or(0, |ids| {
            let is_staying = |id: &&&AllocationId| !input.snapshot.allocations[**id].leaving;
            ids.iter().filter(is_staying).count() as u64
        });
        let fault = match input.verdicts.get(work) {
            None => Some(Evidence::new(work, "no reason was given for it")),
            Some(verdict) if is_wrongly_satisfied(verdict) => Some(Evidence::new(
                work,
                "wants processes and has none, and is said to have what it wants",
            )),
            Some(verdict) => {
                let stated = verdict.numbers.current_processes;
                // Refused work and work without a class have no counts.
                let has_counts = !verdict.refused && verdict.class.is_some();
                let is_wrong = stated != staying && input.settled && !some_ended && has_counts;
                is_wrong.then(|| {
                    let detail = format!("is said to have {stated} processes, and has {staying}");
                    Evidence::new(work, detail)
                        .with_number("said_processes", stated)
                        .with_number("has_processes", staying)
                })
            }
        };
        inquiry.examine(fault);
    }
    inquiry.finish()
}

/// Returns whether the work waits only for space. `no_host_of_size` does not count: a larger node
/// would do, but the policy forbids it.
fn waits_for_space(verdict: &Verdict) -> bool {
    let numbers = &verdict.numbers;
    let lacks_processes = numbers.counted_processes.max(1) > numbers.current_processes;
    let lacks_space = matches!(
        verdict.reason,
        Reason::InsufficientResources
            | Reason::NoHostLargeEnough
            | Reason::ResourcesExhausted
            | Reason::NoListedMachine
            | Reason::AllBlocked
            | Reason::WaitingForDefragmentation
    );
    verdict.waits && !verdict.refused && lacks_space && lacks_processes
}

/// State of a suspicion: an unchanged node could take waiting work since this round and time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suspicion {
    /// Number of the last change of the node.
    tick: u64,
    round: u64,
    since_ms: u64,
}

/// Checks that no work waits more than 3 rounds although it fits (I21). The check itself decides
/// whether work fits, so it shares no code with planners.
///
/// The check considers only nodes that are unchanged since the last round, because no round could
/// have granted newer free space. A change of the node restarts the count of rounds. One check
/// tries a limited number of pieces of work, and the next check continues after the last of them.
pub fn check_work_conserving(input: &WaitCheckInput<'_>, memory: &mut Memory) -> Finding {
    if input.unplanned.everything {
        return Finding::not_checked(CONSERVING, "a round that reads everything anew is due");
    }
    let held = input.allocations_by_work();
    let verdicts = input.verdicts.iter();
    let waiting: BTreeMap<&WorkId, &Verdict> = verdicts
        .map(|(work, verdict)| (work, &**verdict))
        .filter(|(work, verdict)| waits_for_space(verdict) && input.is_work_unchanged(work, &held))
        .collect();
    let last_change = |node: &NodeName| input.sequence.change_before_round(node);
    let holdings = Holdings::new(input.snapshot);
    let is_unchanged = |node: &NodeName| last_change(node).is_some();
    let mut search = NodeSearch::new(input.snapshot, &holdings, is_unchanged);
    let mut inquiry = Inquiry::new(CONSERVING);
    let mut suspicions = std::mem::take(&mut memory.suspicions);
    suspicions.retain(|(work, node), suspicion| {
        let class = waiting.get(work).map(|verdict| class_of(verdict));
        let node_unchanged = last_change(node) == Some(suspicion.tick);
        node_unchanged && class.is_some_and(|class| search.could_take(work, class, node))
    });
    let suspected: BTreeSet<WorkId> = suspicions.keys().map(|(work, _)| work.clone()).collect();
    let after = memory.last_tried.take();
    for (work, verdict) in waiting_after(&waiting, after.as_ref()).take(MAX_TRIED) {
        if search.is_exhausted() || suspicions.len() >= MAX_SUSPICIONS {
            break;
        }
        memory.last_tried = Some(work.clone());
        if suspected.contains(work) {
            continue;
        }
        let Some(node) = search.find_node(work, class_of(verdict)) else {
            inquiry.examine(None);
            continue;
        };
        let suspicion = Suspicion {
            tick: last_change(&node).unwrap_or_default(),
            round: input.round,
            since_ms: input.now_ms,
        };
        suspicions.insert((work.clone(), node), suspicion);
    }
    for ((work, node), suspicion) in &suspicions {
        let rounds = input.round.saturating_sub(suspicion.round);
        let age = input.now_ms.saturating_sub(suspicion.since_ms);
        let is_late = rounds >= MAX_ROUNDS || (input.settled && age >= MAX_IDLE_MS);
        inquiry.examine(is_late.then(|| {
            let reason = waiting.get(work).map(|verdict| verdict.reason);
            let detail =
                format!("waits ({reason:?}), and {node} would take one more process of it");
            Evidence::new(work, detail)
                .with_number("rounds", rounds)
                .with_number("seen_ms", age)
        }));
    }
    memory.suspicions = suspicions;
    inquiry.finish()
}

fn class_of(verdict: &Verdict) -> &str {
    verdict.class.as_deref().unwrap_or_default()
}

/// Returns all waiting work: first the work after `after`, then the rest from the beginning.
fn waiting_after<'a>(
    all: &'a BTreeMap<&'a WorkId, &'a Verdict>,
    after: Option<&'a WorkId>,
) -> impl Iterator<Item = (&'a WorkId, &'a Verdict)> {
    let start = after
        .as_ref()
        .map_or(Bound::Unbounded, |work| Bound::Excluded(*work));
    let before =
        after.map(|after| all.range::<&WorkId, _>((Bound::Unbounded, Bound::Included(after))));
    let following = all.range::<&WorkId, _>((start, Bound::Unbounded));
    following
        .chain(before.into_iter().flatten())
        .map(|(work, verdict)| (*work, *verdict))
}
