//! Needy work, which each round carries over to the next. Ids are carried over, because a
//! rebuild renumbers work. Within a round, indices are used. Rounds share the set of ids while it
//! is unchanged.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::WorkId;

use super::RoundState;
use crate::{collections::bit_set::BitSet, ids::WorkIx, index::FleetIndex};

/// Needy work that a round carries over to the next.
#[derive(Default)]
pub(crate) struct Needy {
    /// Ids of the needy work, which are carried over.
    pub ids: Arc<BTreeSet<WorkId>>,
    indices: BitSet<WorkIx>,
}

impl Needy {
    /// Returns the indices of the work in `carried` that still exists. If `carried` is the set of
    /// the last round, its indices are reused without withdrawn work.
    pub fn carried_indices(
        self,
        index: &FleetIndex,
        carried: &Arc<BTreeSet<WorkId>>,
    ) -> BitSet<WorkIx> {
        let mut indices = self.indices;
        if index.rebuilt || !Arc::ptr_eq(&self.ids, carried) {
            indices.clear();
            indices.extend(carried.iter().filter_map(|id| index.find_work(id)));
            return indices;
        }
        for work in &index.freed_work {
            indices.remove(*work);
        }
        #[cfg(test)]
        assert!(
            indices.iter().collect::<BTreeSet<_>>()
                == carried
                    .iter()
                    .filter_map(|id| index.find_work(id))
                    .collect()
        );
        indices
    }
}

impl RoundState<'_> {
    /// Returns the needy work of this round.
    pub fn needy(&self) -> Needy {
        let mut indices = BitSet::default();
        for outcome in &self.outcomes {
            indices.union_with(&outcome.needy);
        }
        let carried = &self.snapshot.carried.needy;
        let is_unchanged =
            carried.len() == indices.len() && self.previously_needy.iter().eq(indices.iter());
        let ids = if is_unchanged {
            Arc::clone(carried)
        } else {
            Arc::new(indices.iter().map(|work| self.id(work).clone()).collect())
        };
        Needy { ids, indices }
    }
}
