//! Who is needy, from round to round. Numbers say who came and who went; names are what is
//! carried over. Most stay, and to count a name once more waits for its memory: so the names are
//! those of two rounds ago, which nobody reads any more, and of these only some come and go.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::WorkId;

use super::RoundState;
use crate::{collections::bit_set::BitSet, incremental::prefetch::fetch, index::FleetIndex};

/// What a round found, for the next.
#[derive(Default)]
pub(crate) struct Needy {
    /// As they are carried over.
    pub names: Arc<BTreeSet<WorkId>>,
    numbers: BitSet,
    older_names: Option<OlderNames>,
}

/// Names that were carried over before, and how those that are now differ.
pub(crate) struct OlderNames {
    names: Arc<BTreeSet<WorkId>>,
    since: Change,
}

struct Change {
    removed: Vec<WorkId>,
    added: Vec<WorkId>,
}

/// Who was needy before this round.
#[derive(Default)]
pub(crate) struct PreviouslyNeedy<'a> {
    pub numbers: BitSet,
    /// Who was as well, and is withdrawn since.
    withdrawn: Vec<&'a WorkId>,
    pub older_names: Option<OlderNames>,
}

impl<'a> PreviouslyNeedy<'a> {
    /// By what is carried over. Where that is what the last round found, only who went has to be
    /// looked up.
    pub fn of(index: &'a FleetIndex, ids: &Arc<BTreeSet<WorkId>>, known: Needy) -> Self {
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
        // News says of nobody that he went and came, so nobody is back already.
        let gone = index.freed_work.iter().zip(&index.withdrawn);
        let withdrawn = gone.filter(|(at, _)| numbers.remove(**at));
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
    /// Who is needy. Where the same are as before, they are not listed anew; where most are, who
    /// came and went is said of the `older` names.
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
            let gone = gone.into_iter().map(|at| self.id(at));
            let gone = gone.chain(before.withdrawn.iter().copied());
            let since = Change {
                removed: gone.cloned().collect(),
                added: come.into_iter().map(|at| self.id(at).clone()).collect(),
            };
            let mut now = older.and_then(OlderNames::brought_up).unwrap_or_else(|| {
                fetch(names.iter().map(WorkId::as_str));
                BTreeSet::clone(names)
            });
            since.apply(&mut now);
            let names = Arc::clone(names);
            (now, Some(OlderNames { names, since }))
        } else {
            let all = || numbers.iter().map(|at| self.id(at));
            fetch(all().map(WorkId::as_str));
            (all().cloned().collect(), None)
        };
        #[cfg(test)]
        assert!(names == numbers.iter().map(|at| self.id(at).clone()).collect());
        Needy {
            names: Arc::new(names),
            numbers,
            older_names: older,
        }
    }
}

impl OlderNames {
    /// The names that came after these, in their memory; none where somebody reads them still.
    fn brought_up(self) -> Option<BTreeSet<WorkId>> {
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
