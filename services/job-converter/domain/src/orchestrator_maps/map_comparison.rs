//! Compares a map with the last accepted one: new, removed and changed work, and the state of
//! processes.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::AllocationId;

use super::{EndReason, KnownWork, Map, MapEntry};

/// Steps that follow from a map, in this order: vacated allocations, completed work, current
/// requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The process of this allocation is complete, or the map no longer names it.
    Vacated {
        work: String,
        allocation: AllocationId,
    },
    /// The work requests no processes any more. If `gone`, the map has no entry for it, and it is
    /// forgotten.
    Completed { work: String, gone: bool },
    /// The work is new, or requests processes again.
    Arrived { work: String },
    /// The work continues with changed fields.
    Updated { work: String },
}

/// Number of entries by result. `vacated` counts allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub new: usize,
    pub changed: usize,
    pub unchanged: usize,
    pub completed: usize,
    pub gone: usize,
    pub refused: usize,
    pub vacated: usize,
}

impl Counts {
    pub(super) fn unchanged(unchanged: usize, refused: usize) -> Self {
        Self {
            unchanged,
            refused,
            ..Self::default()
        }
    }
}

type Works<E> = BTreeMap<String, KnownWork<E>>;

/// Returns the new state of all work, the steps that lead to it, and the counts.
pub(super) fn compare<E: MapEntry>(
    last: &Works<E>,
    map: Map<E>,
    takeover: bool,
) -> (Works<E>, Vec<Step>, Counts) {
    let (new, refused_ids) = (map.works, map.refused_ids);
    let mut comparison = Comparison {
        counts: Counts {
            refused: refused_ids.len(),
            ..Counts::default()
        },
        leaving: map.leaving,
        ..Comparison::default()
    };
    let mut works = Works::new();
    for (id, known) in last {
        if refused_ids.contains(id) {
            works.insert(id.clone(), known.clone());
        } else if !new.contains_key(id) {
            comparison.counts.gone += 1;
            comparison.complete(id, true);
        }
    }
    for (id, entry) in new {
        let known = match last.get(&id) {
            None => comparison.add_new(&id, entry),
            Some(known) if known.entry == entry => {
                comparison.counts.unchanged += 1;
                known.clone()
            }
            Some(known) => comparison.update(&id, known, entry, takeover),
        };
        works.insert(id, known);
    }
    let Comparison {
        vacated,
        completed,
        requests,
        counts,
        ..
    } = comparison;
    let steps = vacated.into_iter().chain(completed).chain(requests);
    (works, steps.collect(), counts)
}

#[derive(Default)]
struct Comparison {
    vacated: Vec<Step>,
    completed: Vec<Step>,
    requests: Vec<Step>,
    counts: Counts,
    leaving: BTreeSet<AllocationId>,
}

impl Comparison {
    fn complete(&mut self, work: &str, gone: bool) {
        let work = work.to_owned();
        self.completed.push(Step::Completed { work, gone });
    }

    fn arrive(&mut self, work: &str) {
        let work = work.to_owned();
        self.requests.push(Step::Arrived { work });
    }

    fn vacate(&mut self, work: &str, allocation: &AllocationId) {
        self.counts.vacated += 1;
        self.vacated.push(Step::Vacated {
            work: work.to_owned(),
            allocation: allocation.clone(),
        });
    }

    fn add_new<E: MapEntry>(&mut self, id: &str, entry: E) -> KnownWork<E> {
        self.counts.new += 1;
        // These allocations belong to an earlier life of the work, and their process has ended.
        let completed: Vec<AllocationId> = completed_allocations(&entry).cloned().collect();
        for allocation in &completed {
            self.vacate(id, allocation);
        }
        let has_ended = !entry.is_job() && self.ends_work(&completed);
        let end_reason = find_end_reason(&entry, has_ended);
        if end_reason.is_none() {
            self.arrive(id);
        }
        KnownWork { entry, end_reason }
    }

    fn update<E: MapEntry>(
        &mut self,
        id: &str,
        known: &KnownWork<E>,
        entry: E,
        takeover: bool,
    ) -> KnownWork<E> {
        self.counts.changed += 1;
        let has_ended = self.reconcile(id, known, &entry, takeover) && !entry.is_job();
        let end_reason = match known.end_reason {
            // Work that ended with its process does not start again while its entry stays.
            Some(EndReason::ProcessEnded) => find_end_reason(&entry, true),
            _ => find_end_reason(&entry, has_ended),
        };
        match (known.end_reason.is_some(), end_reason.is_some()) {
            (false, true) => {
                self.counts.completed += 1;
                self.complete(id, false);
            }
            (true, false) => self.arrive(id),
            _ => self.requests.push(Step::Updated {
                work: id.to_owned(),
            }),
        }
        KnownWork { entry, end_reason }
    }

    /// Compares processes. Returns true if a process ended and thereby ends its work. After a
    /// takeover, the orchestrator has not observed its allocations yet. Allocations that the map
    /// does not name are then retained.
    fn reconcile<E: MapEntry>(
        &mut self,
        id: &str,
        known: &KnownWork<E>,
        entry: &E,
        takeover: bool,
    ) -> bool {
        let before: BTreeMap<&AllocationId, bool> = known.entry.processes().collect();
        let after: BTreeMap<&AllocationId, bool> = entry.processes().collect();
        let completed = after.iter().filter(|(allocation, is_complete)| {
            **is_complete && before.get(*allocation) != Some(&true)
        });
        let vanished = before.iter().filter(|(allocation, is_complete)| {
            !**is_complete && !takeover && !after.contains_key(*allocation)
        });
        let ended = completed
            .chain(vanished)
            .map(|(allocation, _)| (*allocation).clone());
        let ended: Vec<AllocationId> = ended.collect();
        for allocation in &ended {
            self.vacate(id, allocation);
        }
        self.ends_work(&ended)
    }

    /// Returns true if the end of a process also ends its work. A process that ended on request
    /// returns its allocation, and its work is served again.
    fn ends_work(&self, ended: &[AllocationId]) -> bool {
        ended
            .iter()
            .any(|allocation| !self.leaving.contains(allocation))
    }
}

fn completed_allocations<E: MapEntry>(entry: &E) -> impl Iterator<Item = &AllocationId> {
    let completed = entry.processes().filter(|(_, is_complete)| *is_complete);
    completed.map(|(allocation, _)| allocation)
}

fn find_end_reason<E: MapEntry>(entry: &E, has_ended: bool) -> Option<EndReason> {
    if !entry.is_schedulable() {
        Some(EndReason::NotSchedulable)
    } else if has_ended {
        Some(EndReason::ProcessEnded)
    } else {
        None
    }
}
