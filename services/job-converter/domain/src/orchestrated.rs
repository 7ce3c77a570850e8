//! The map of work of an orchestrator, compared with the last one that was accepted (fair-share
//! scheduling, 7.1 to 7.4). Pure: what follows from a map is a list of steps in the order of,
//! and somebody else takes them.

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

/// What a map says of one piece of work.
pub trait Piece: Clone + PartialEq {
    /// it waits, or runs, or completes while a process of it is alive.
    fn schedulable(&self) -> bool;
    /// A job goes on without one of its processes; whatever else ends with it.
    fn is_job(&self) -> bool;
    /// Its processes by share, and whether each is complete.
    fn processes(&self) -> impl Iterator<Item = (&AllocationId, bool)>;
}

/// Why a piece of work asks for nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Its map says so.
    NotSchedulable,
    /// It was no job, and its process ended.
    ProcessEnded,
    /// The scheduler will never serve it as it stands.
    Refused,
}

/// A piece of work as its last map has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known<P> {
    pub piece: P,
    pub over: Option<Over>,
}

/// What is known of one orchestrator. Nothing in it belongs to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book<P> {
    mark: Option<Mark>,
    /// Lineages that another one took over from, oldest first.
    past: Vec<String>,
    works: BTreeMap<String, Known<P>>,
}

/// A map as it came in: `bad` are entries that were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map<P> {
    pub mark: Mark,
    pub works: BTreeMap<String, P>,
    pub bad: BTreeSet<String>,
    /// Shares that were told to leave: the end of a process in one is not the end of its work.
    pub leaving: BTreeSet<AllocationId>,
}

/// What became of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Ignored(Ignored),
    Applied {
        steps: Vec<Step>,
        counts: Counts,
        /// It is the map that was accepted last, once more: there is nothing to do or to note.
        repeated: bool,
        takeover: bool,
    },
}

impl<P> Default for Book<P> {
    fn default() -> Self {
        Self {
            mark: None,
            past: Vec::new(),
            works: BTreeMap::new(),
        }
    }
}

impl<P: Piece> Book<P> {
    /// As it was kept in rows.
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

    /// The scheduler refused it. It stays known, so that the same entry is not tried again.
    pub fn refuse(&mut self, id: &str) {
        if let Some(known) = self.works.get_mut(id) {
            known.over = Some(Over::Refused);
        }
    }

    /// Something of it ended that is no job.
    pub fn end(&mut self, id: &str) {
        if let Some(known) = self.works.get_mut(id).filter(|known| known.over.is_none()) {
            known.over = Some(Over::ProcessEnded);
        }
    }

    /// Compares a map with the last accepted one and takes it in its place, unless it is ignored
    /// . What is bad in it stays as it was before.
    pub fn accept(&mut self, map: Map<P>) -> Outcome {
        let nothing = map.works.is_empty() && map.bad.is_empty();
        let judged = judge::judge(self.mark.as_ref(), &self.past, &map.mark, nothing);
        let takeover = match judged {
            Judged::Ignored(why) => return Outcome::Ignored(why),
            Judged::Takeover => true,
            Judged::First | Judged::Next => false,
            Judged::Again if self.says_the_same(&map) => {
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

    fn says_the_same(&self, map: &Map<P>) -> bool {
        let known = |(id, known): (&String, &Known<P>)| {
            map.bad.contains(id) || map.works.get(id) == Some(&known.piece)
        };
        self.works.iter().all(known) && map.works.keys().all(|id| self.works.contains_key(id))
    }
}
