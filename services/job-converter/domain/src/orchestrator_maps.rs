//! Compares the work map of an orchestrator with the last accepted map of this orchestrator. The
//! comparison is pure: it returns a list of steps that the caller carries out.

mod map_comparison;
mod map_version;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::AllocationId;

pub use map_comparison::{Counts, Step};
pub use map_version::{IgnoredReason, MapVersion};

use map_version::VersionCheck;

/// An entry of a map. It describes one piece of work.
pub trait MapEntry: Clone + PartialEq {
    /// Returns true if the work waits, runs, or completes with a live process.
    fn is_schedulable(&self) -> bool;
    /// Returns true if the work is a job. A job continues when one of its processes ends. Other
    /// work ends with its process.
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

/// A piece of work in the last accepted map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWork<E> {
    /// Last accepted entry.
    pub entry: E,
    /// Why the work requests no processes any more. `None` while it requests some.
    pub end_reason: Option<EndReason>,
}

/// Known work of one orchestrator, independent of all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapState<E> {
    version: Option<MapVersion>,
    /// Superseded lineages, oldest first.
    past_lineages: Vec<String>,
    works: BTreeMap<String, KnownWork<E>>,
}

/// A parsed map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map<E> {
    pub version: MapVersion,
    pub works: BTreeMap<String, E>,
    /// Ids of refused entries.
    pub refused_ids: BTreeSet<String>,
    /// Vacating allocations. The end of a process in such an allocation does not end the work.
    pub leaving: BTreeSet<AllocationId>,
}

/// Result of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Ignored(IgnoredReason),
    Applied {
        steps: Vec<Step>,
        counts: Counts,
        /// Whether this is the last accepted map, sent again. The state is then unchanged.
        repeated: bool,
        /// Whether the map starts a new lineage.
        takeover: bool,
    },
}

impl<E> Default for MapState<E> {
    fn default() -> Self {
        Self {
            version: None,
            past_lineages: Vec::new(),
            works: BTreeMap::new(),
        }
    }
}

impl<E: MapEntry> MapState<E> {
    /// Restores the state from its rows.
    pub fn restored(version: Option<MapVersion>, past_lineages: Vec<String>) -> Self {
        Self {
            version,
            past_lineages,
            works: BTreeMap::new(),
        }
    }

    pub fn restore(&mut self, id: String, known: KnownWork<E>) {
        self.works.insert(id, known);
    }

    pub fn version(&self) -> Option<&MapVersion> {
        self.version.as_ref()
    }

    pub fn past_lineages(&self) -> &[String] {
        &self.past_lineages
    }

    pub fn works(&self) -> &BTreeMap<String, KnownWork<E>> {
        &self.works
    }

    pub fn get(&self, id: &str) -> Option<&KnownWork<E>> {
        self.works.get(id)
    }

    /// Marks work as refused by the scheduler. The work stays known, so that the same entry is not
    /// tried again.
    pub fn refuse(&mut self, id: &str) {
        if let Some(known) = self.works.get_mut(id) {
            known.end_reason = Some(EndReason::Refused);
        }
    }

    /// Ends work that is no job, after its process ended.
    pub fn end(&mut self, id: &str) {
        if let Some(known) = self
            .works
            .get_mut(id)
            .filter(|known| known.end_reason.is_none())
        {
            known.end_reason = Some(EndReason::ProcessEnded);
        }
    }

    /// Compares a map with the last accepted map. Unless the new map is ignored, it replaces the
    /// last one. Refused entries keep their last state.
    pub fn accept(&mut self, map: Map<E>) -> Outcome {
        let is_empty = map.works.is_empty() && map.refused_ids.is_empty();
        let version_check = map_version::check_version(
            self.version.as_ref(),
            &self.past_lineages,
            &map.version,
            is_empty,
        );
        let takeover = match version_check {
            VersionCheck::Ignored(reason) => return Outcome::Ignored(reason),
            VersionCheck::Takeover => true,
            VersionCheck::First | VersionCheck::Next => false,
            VersionCheck::Repeated if self.is_unchanged_by(&map) => {
                return Outcome::Applied {
                    steps: Vec::new(),
                    counts: Counts::unchanged(map.works.len(), map.refused_ids.len()),
                    repeated: true,
                    takeover: false,
                };
            }
            VersionCheck::Repeated => return Outcome::Ignored(IgnoredReason::SequenceUsed),
        };
        let version = map.version.clone();
        let (works, steps, counts) = map_comparison::compare(&self.works, map, takeover);
        self.works = works;
        if let Some(before) = self.version.replace(version).filter(|_| takeover) {
            map_version::remember_lineage(&mut self.past_lineages, before.lineage);
        }
        Outcome::Applied {
            steps,
            counts,
            repeated: false,
            takeover,
        }
    }

    fn is_unchanged_by(&self, map: &Map<E>) -> bool {
        let is_known = |(id, known): (&String, &KnownWork<E>)| {
            map.refused_ids.contains(id) || map.works.get(id) == Some(&known.entry)
        };
        self.works.iter().all(is_known) && map.works.keys().all(|id| self.works.contains_key(id))
    }
}
