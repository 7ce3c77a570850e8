//! Needy work from round to round. A round compares it by number, and carries it over by
//! name. Rounds share the set of names while it is unchanged.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::WorkId;

use super::RoundState;
use crate::{collections::bit_set::BitSet, ids::WorkIx, index::FleetIndex};

/// Needy work that a round carries over to the next.
#[derive(Default)]
pub(crate) struct Needy {
    /// Names of the needy work, as they are carried over.
    pub names: Arc<BTreeSet<WorkId>>,
    numbers: BitSet<WorkIx>,
}

impl Needy {
    /// Returns the numbers of the carried work that still exists. If the carried names are those of
    /// the last round, only withdrawn work is looked up.
    pub fn carried_numbers(
        self,
        index: &FleetIndex,
        carried: &Arc<BTreeSet<WorkId>>,
    ) -> BitSet<WorkIx> {
        let mut numbers = self.numbers;
        if index.rebuilt || !Arc::ptr_eq(&self.names, carried) {
            numbers.clear();
            numbers.extend(carried.iter().filter_map(|id| index.find_work(id)));
            return numbers;
        }
        for work in &index.freed_work {
            numbers.remove(*work);
        }
        #[cfg(test)]
        assert!(
            numbers.iter().collect::<BTreeSet<_>>()
                == carried
                    .iter()
                    .filter_map(|id| index.find_work(id))
                    .collect()
        );
        numbers
    }
}

impl RoundState<'_> {
    /// Returns the needy work of this round.
    pub fn needy(&self) -> Needy {
        let mut numbers = BitSet::default();
        for outcome in &self.outcomes {
            numbers.union_with(&outcome.needy);
        }
        let carried = &self.snapshot.carried.needy;
        let is_unchanged =
            carried.len() == numbers.len() && self.previously_needy.iter().eq(numbers.iter());
        let names = if is_unchanged {
            Arc::clone(carried)
        } else {
            Arc::new(numbers.iter().map(|work| self.id(work).clone()).collect())
        };
        Needy { names, numbers }
    }
}
