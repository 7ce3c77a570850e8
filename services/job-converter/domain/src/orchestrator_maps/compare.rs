//! Compares two maps: new, removed and changed work, and the state of processes.

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
    /// The work starts to request processes.
    Arrived { work: String },
    /// The work continues with changed fields.
    Refreshed { work: String },
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

type Works<P> = BTreeMap<String, KnownWork<P>>;

/// Returns the new state of all work, the steps that lead to it, and the counts.
pub(super) fn compare<P: MapEntry>(
    last: &Works<P>,
    map: Map<P>,
    takeover: bool,
) -> (Works<P>, Vec<Step>, Counts) {
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
    for (id, piece) in new {
        let known = match last.get(&id) {
            None => comparison.add_new(&id, piece),
            Some(known) if known.piece == piece => {
                comparison.counts.unchanged += 1;
                known.clone()
            }
            Some(known) => comparison.update(&id, known, piece, takeover),
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

    fn add_new<P: MapEntry>(&mut self, id: &str, piece: P) -> KnownWork<P> {
        self.counts.new += 1;
        // These allocations belong to an earlier life of the work, and their process has ended.
        let completed: Vec<AllocationId> = completed_allocations(&piece).cloned().collect();
        for allocation in &completed {
            self.vacate(id, allocation);
        }
        let ended = !piece.is_job() && self.ends_work(&completed);
        let over = end_reason(&piece, ended);
        if over.is_none() {
            self.arrive(id);
        }
        KnownWork { piece, over }
    }

    fn update<P: MapEntry>(
        &mut self,
        id: &str,
        known: &KnownWork<P>,
        piece: P,
        takeover: bool,
    ) -> KnownWork<P> {
        self.counts.changed += 1;
        let ended = self.reconcile(id, known, &piece, takeover) && !piece.is_job();
        let over = match known.over {
            // Work that ended with its process does not start again while its entry stays.
            Some(EndReason::ProcessEnded) => end_reason(&piece, true),
            _ => end_reason(&piece, ended),
        };
        match (known.over.is_some(), over.is_some()) {
            (false, true) => {
                self.counts.completed += 1;
                self.complete(id, false);
            }
            (true, false) => self.arrive(id),
            _ => self.requests.push(Step::Refreshed {
                work: id.to_owned(),
            }),
        }
        KnownWork { piece, over }
    }

    /// Compares processes. Returns true if a process ended and thereby ends its work. After a
    /// takeover, the orchestrator has not observed its allocations yet. Allocations that the map
    /// does not name are then retained.
    fn reconcile<P: MapEntry>(
        &mut self,
        id: &str,
        known: &KnownWork<P>,
        piece: &P,
        takeover: bool,
    ) -> bool {
        let before: BTreeMap<&AllocationId, bool> = known.piece.processes().collect();
        let after: BTreeMap<&AllocationId, bool> = piece.processes().collect();
        let completed = after
            .iter()
            .filter(|(allocation, over)| **over && before.get(*allocation) != Some(&true));
        let vanished = before
            .iter()
            .filter(|(allocation, over)| !**over && !takeover && !after.contains_key(*allocation));
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

fn completed_allocations<P: MapEntry>(piece: &P) -> impl Iterator<Item = &AllocationId> {
    let completed = piece.processes().filter(|(_, over)| *over);
    completed.map(|(allocation, _)| allocation)
}

fn end_reason<P: MapEntry>(piece: &P, ended: bool) -> Option<EndReason> {
    if !piece.is_schedulable() {
        Some(EndReason::NotSchedulable)
    } else if ended {
        Some(EndReason::ProcessEnded)
    } else {
        None
    }
}
