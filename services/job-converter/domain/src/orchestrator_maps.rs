//! Compares the work map of an orchestrator with the last accepted map of this orchestrator. The
//! comparison is pure: it returns a list of steps that the caller carries out.

mod compare;
mod map_order;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::AllocationId;

pub use compare::{Counts, Step};
pub use map_order::{Ignored, Mark};

use map_order::MapOrder;

/// An entry of a map. It describes one piece of work.
pub trait MapEntry: Clone + PartialEq {
    /// Returns true if the work waits, runs, or completes with a live process.
    fn is_schedulable(&self) -> bool;
    /// Returns true for a job, which continues without one of its processes. Other work ends with
    /// its process.
    fn is_job(&self) -> bool;
    /// Returns the processes by allocation, and whether each is complete.
    fn processes(&self) -> impl Iterator<Item = (&AllocationId, bool)>;
}

/// Why work requests no processes any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The map names a state that requests no processes.
    NotSchedulable,
    /// The work was no job, and its process ended.
    ProcessEnded,
    /// The scheduler will never serve the work in its current form.
    Refused,
}

/// A piece of work as its last map describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWork<P> {
    /// Last accepted entry.
    pub piece: P,
    /// Why the work requests no processes any more. `None` while it requests some.
    pub over: Option<EndReason>,
}

/// Known work of one orchestrator, independent of all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapState<P> {
    mark: Option<Mark>,
    /// Superseded lineages, oldest first.
    past_lineages: Vec<String>,
    works: BTreeMap<String, KnownWork<P>>,
}

/// A parsed map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map<P> {
    pub mark: Mark,
    pub works: BTreeMap<String, P>,
    /// Ids of refused entries.
    pub refused_ids: BTreeSet<String>,
    /// Vacating allocations. The end of a process in such an allocation does not end the work.
    pub leaving: BTreeSet<AllocationId>,
}

/// Result of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Ignored(Ignored),
    Applied {
        steps: Vec<Step>,
        counts: Counts,
        /// Whether this is the last accepted map, sent again. The state is then unchanged.
        repeated: bool,
        /// Whether the map starts a new lineage.
        takeover: bool,
    },
}

impl<P> Default for MapState<P> {
    fn default() -> Self {
        Self {
            mark: None,
            past_lineages: Vec::new(),
            works: BTreeMap::new(),
        }
    }
}

impl<P: MapEntry> MapState<P> {
    /// Restores the state from its rows.
    pub fn restored(mark: Option<Mark>, past_lineages: Vec<String>) -> Self {
        Self {
            mark,
            past_lineages,
            works: BTreeMap::new(),
        }
    }

    pub fn restore(&mut self, id: String, known: KnownWork<P>) {
        self.works.insert(id, known);
    }

    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    pub fn past_lineages(&self) -> &[String] {
        &self.past_lineages
    }

    pub fn works(&self) -> &BTreeMap<String, KnownWork<P>> {
        &self.works
    }

    pub fn get(&self, id: &str) -> Option<&KnownWork<P>> {
        self.works.get(id)
    }

    /// Marks work as refused by the scheduler. The work stays known, so that the same entry is not
    /// tried again.
    pub fn refuse(&mut self, id: &str) {
        if let Some(known) = self.works.get_mut(id) {
            known.over = Some(EndReason::Refused);
        }
    }

    /// Ends work that is no job, after its process ended.
    pub fn end(&mut self, id: &str) {
        if let Some(known) = self.works.get_mut(id).filter(|known| known.over.is_none()) {
            known.over = Some(EndReason::ProcessEnded);
        }
    }

    /// Compares a map with the last accepted map. Unless the new map is ignored, it replaces the
    /// last one. Refused entries keep their last state.
    pub fn accept(&mut self, map: Map<P>) -> Outcome {
        let is_empty = map.works.is_empty() && map.refused_ids.is_empty();
        let map_order =
            map_order::classify(self.mark.as_ref(), &self.past_lineages, &map.mark, is_empty);
        let takeover = match map_order {
            MapOrder::Ignored(reason) => return Outcome::Ignored(reason),
            MapOrder::Takeover => true,
            MapOrder::First | MapOrder::Next => false,
            MapOrder::Repeated if self.is_unchanged_by(&map) => {
                return Outcome::Applied {
                    steps: Vec::new(),
                    counts: Counts::unchanged(map.works.len(), map.refused_ids.len()),
                    repeated: true,
                    takeover: false,
                };
            }
            MapOrder::Repeated => return Outcome::Ignored(Ignored::SequenceUsed),
        };
        let mark = map.mark.clone();
        let (works, steps, counts) = compare::compare(&self.works, map, takeover);
        self.works = works;
        if let Some(before) = self.mark.replace(mark).filter(|_| takeover) {
            map_order::remember_lineage(&mut self.past_lineages, before.lineage);
        }
        Outcome::Applied {
            steps,
            counts,
            repeated: false,
            takeover,
        }
    }

    fn is_unchanged_by(&self, map: &Map<P>) -> bool {
        let is_known = |(id, known): (&String, &KnownWork<P>)| {
            map.refused_ids.contains(id) || map.works.get(id) == Some(&known.piece)
        };
        self.works.iter().all(is_known) && map.works.keys().all(|id| self.works.contains_key(id))
    }
}
