//! Compares the work map of an orchestrator with its last accepted map. Pure: the result is a list
//! of steps, carried out by the caller.

mod compare;
mod judge;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::AllocationId;

pub use compare::{Counts, Step};
pub use judge::{Ignored, Mark};

use judge::Judged;

/// An entry of a map.
pub trait Piece: Clone + PartialEq {
    /// It waits, runs, or completes with a live process.
    fn schedulable(&self) -> bool;
    /// A job continues without one of its processes; other work ends with it.
    fn is_job(&self) -> bool;
    /// Processes by share, and whether each is complete.
    fn processes(&self) -> impl Iterator<Item = (&AllocationId, bool)>;
}

/// Why work requests nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Its map says so.
    NotSchedulable,
    /// It was no job, and its process ended.
    ProcessEnded,
    /// The scheduler will never serve it as it stands.
    Refused,
}

/// A piece of work as named by its last map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known<P> {
    pub piece: P,
    pub over: Option<Over>,
}

/// Known work of one orchestrator, independent of all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapState<P> {
    mark: Option<Mark>,
    /// Superseded lineages, oldest first.
    past: Vec<String>,
    works: BTreeMap<String, Known<P>>,
}

/// A parsed map; `bad` are its refused entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map<P> {
    pub mark: Mark,
    pub works: BTreeMap<String, P>,
    pub bad: BTreeSet<String>,
    /// Vacating shares: the end of their process does not end their work.
    pub leaving: BTreeSet<AllocationId>,
}

/// Result of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Ignored(Ignored),
    Applied {
        steps: Vec<Step>,
        counts: Counts,
        /// The last accepted map, sent again: nothing changed.
        repeated: bool,
        takeover: bool,
    },
}

impl<P> Default for MapState<P> {
    fn default() -> Self {
        Self {
            mark: None,
            past: Vec::new(),
            works: BTreeMap::new(),
        }
    }
}

impl<P: Piece> MapState<P> {
    /// From rows.
    pub fn restored(mark: Option<Mark>, past: Vec<String>) -> Self {
        Self {
            mark,
            past,
            works: BTreeMap::new(),
        }
    }

    pub fn restore(&mut self, id: String, known: Known<P>) {
        self.works.insert(id, known);
    }

    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    pub fn past(&self) -> &[String] {
        &self.past
    }

    pub fn works(&self) -> &BTreeMap<String, Known<P>> {
        &self.works
    }

    pub fn get(&self, id: &str) -> Option<&Known<P>> {
        self.works.get(id)
    }

    /// Marks work as refused by the scheduler. It stays known, so that the same entry is not tried
    /// again.
    pub fn refuse(&mut self, id: &str) {
        if let Some(known) = self.works.get_mut(id) {
            known.over = Some(Over::Refused);
        }
    }

    /// Ends work that is no job, after its process ended.
    pub fn end(&mut self, id: &str) {
        if let Some(known) = self.works.get_mut(id).filter(|known| known.over.is_none()) {
            known.over = Some(Over::ProcessEnded);
        }
    }

    /// Compares a map with the last accepted one and replaces it, unless it is ignored. Entries
    /// with faults keep their last state.
    pub fn accept(&mut self, map: Map<P>) -> Outcome {
        let nothing = map.works.is_empty() && map.bad.is_empty();
        let judged = judge::judge(self.mark.as_ref(), &self.past, &map.mark, nothing);
        let takeover = match judged {
            Judged::Ignored(why) => return Outcome::Ignored(why),
            Judged::Takeover => true,
            Judged::First | Judged::Next => false,
            Judged::Again if self.is_unchanged_by(&map) => {
                return Outcome::Applied {
                    steps: Vec::new(),
                    counts: Counts::unchanged(map.works.len(), map.bad.len()),
                    repeated: true,
                    takeover: false,
                };
            }
            Judged::Again => return Outcome::Ignored(Ignored::SequenceUsed),
        };
        let mark = map.mark.clone();
        let (works, steps, counts) = compare::compare(&self.works, map, takeover);
        self.works = works;
        if let Some(before) = self.mark.replace(mark).filter(|_| takeover) {
            judge::remember(&mut self.past, before.lineage);
        }
        Outcome::Applied {
            steps,
            counts,
            repeated: false,
            takeover,
        }
    }

    fn is_unchanged_by(&self, map: &Map<P>) -> bool {
        let known = |(id, known): (&String, &Known<P>)| {
            map.bad.contains(id) || map.works.get(id) == Some(&known.piece)
        };
        self.works.iter().all(known) && map.works.keys().all(|id| self.works.contains_key(id))
    }
}
