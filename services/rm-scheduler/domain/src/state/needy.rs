//! Needy work from round to round. Sets of numbers find the differences; the set of names
//! is carried over. A set of names is updated from the one of two rounds ago, which is no longer
//! shared.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::WorkId;

use super::RoundState;
use crate::{
    collections::bit_set::BitSet, ids::WorkIx, incremental::prefetch::fetch, index::FleetIndex,
};

/// Result of a round, for the next one.
#[derive(Default)]
pub(crate) struct Needy {
    /// Names as carried over.
    pub names: Arc<BTreeSet<WorkId>>,
    numbers: BitSet<WorkIx>,
    older_names: Option<OlderNames>,
}

/// An older set of names, and its differences to the current one.
pub(crate) struct OlderNames {
    names: Arc<BTreeSet<WorkId>>,
    since: Change,
}

struct Change {
    removed: Vec<WorkId>,
    added: Vec<WorkId>,
}

/// Needy work of the last round.
#[derive(Default)]
pub(crate) struct PreviouslyNeedy<'a> {
    pub numbers: BitSet<WorkIx>,
    /// Needy in the last round, and withdrawn since.
    withdrawn: Vec<&'a WorkId>,
    pub older_names: Option<OlderNames>,
}

impl<'a> PreviouslyNeedy<'a> {
    /// Reads the carried names. If they are those of the last round, only withdrawn work is looked
    /// up.
    pub fn from_carried(index: &'a FleetIndex, ids: &Arc<BTreeSet<WorkId>>, known: Needy) -> Self {
        let Needy {
            names,
            mut numbers,
            older_names: older,
        } = known;
        if index.rebuilt || !Arc::ptr_eq(&names, ids) {
            numbers.clear();
            numbers.extend(ids.iter().filter_map(|id| index.find_work(id)));
            return Self {
                numbers,
                ..Self::default()
            };
        }
        // A withdrawn piece of work does not return within one delta.
        let gone = index.freed_work.iter().zip(&index.withdrawn);
        let withdrawn = gone.filter(|(work, _)| numbers.remove(**work));
        let withdrawn = withdrawn.map(|(_, id)| id).collect();
        #[cfg(test)]
        assert!(
            numbers.iter().collect::<BTreeSet<_>>()
                == ids.iter().filter_map(|id| index.find_work(id)).collect()
        );
        Self {
            numbers,
            withdrawn,
            older_names: older,
        }
    }
}

impl RoundState<'_> {
    /// Needy work of this round. An unchanged set is shared; a set with few changes updates
    /// `older`.
    pub fn needy(&self, older: Option<OlderNames>) -> Needy {
        let mut numbers = BitSet::default();
        for outcome in &self.outcomes {
            numbers.unite(&outcome.needy);
        }
        let (before, names) = (&self.previously_needy, &self.snapshot.carried.needy);
        let gone = before.numbers.without(&numbers);
        let come = numbers.without(&before.numbers);
        if gone.is_empty() && come.is_empty() && names.len() == before.numbers.len() {
            let names = Arc::clone(names);
            return Needy {
                names,
                numbers,
                older_names: older,
            };
        }
        let all_are_known = names.len() == before.numbers.len() + before.withdrawn.len();
        let (names, older) = if all_are_known && gone.len() + come.len() < numbers.len() / 4 {
            let gone = gone.into_iter().map(|work| self.id(work));
            let gone = gone.chain(before.withdrawn.iter().copied());
            let since = Change {
                removed: gone.cloned().collect(),
                added: come.into_iter().map(|work| self.id(work).clone()).collect(),
            };
            let mut now = older.and_then(OlderNames::into_next).unwrap_or_else(|| {
                fetch(names.iter().map(WorkId::as_str));
                BTreeSet::clone(names)
            });
            since.apply(&mut now);
            let names = Arc::clone(names);
            (now, Some(OlderNames { names, since }))
        } else {
            let all = || numbers.iter().map(|work| self.id(work));
            fetch(all().map(WorkId::as_str));
            (all().cloned().collect(), None)
        };
        #[cfg(test)]
        assert!(names == numbers.iter().map(|work| self.id(work).clone()).collect());
        Needy {
            names: Arc::new(names),
            numbers,
            older_names: older,
        }
    }
}

impl OlderNames {
    /// The set that followed this one, built in place; none if it is still shared.
    fn into_next(self) -> Option<BTreeSet<WorkId>> {
        let mut names = Arc::into_inner(self.names)?;
        self.since.apply(&mut names);
        Some(names)
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeSet<WorkId>) {
        for id in &self.removed {
            names.remove(id);
        }
        names.extend(self.added.iter().cloned());
    }
}
