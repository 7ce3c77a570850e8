//! Large holders: work with at least `fragmentation_threshold` processes. Defragmentation takes
//! processes from a donor of equal or higher priority than the needy work only if the donor is a
//! large holder.

use std::collections::BTreeSet;

use super::RoundState;
use crate::ids::WorkIx;

/// Large holders at the beginning of the round. The set is retained between rounds.
#[derive(Default)]
pub(crate) struct LargeHolders {
    large: BTreeSet<WorkIx>,
}

impl LargeHolders {
    /// Updates the set from dirty rows.
    pub fn refresh(&mut self, state: &RoundState) {
        let threshold = state.snapshot.tunables.fragmentation_threshold;
        let mut update = |work: WorkIx| {
            let work_state = &state.work[work];
            if work_state.class.is_some()
                && work_state.process_count() > 0
                && work_state.process_count() >= threshold
            {
                self.large.insert(work);
            } else {
                self.large.remove(&work);
            }
        };
        if state.index.rebuilt {
            state.work.indices().for_each(update);
        } else {
            state.work.dirty().for_each(&mut update);
        }
    }

    /// Returns the work that can be a donor: the large holders, and all work that was written in
    /// this round.
    pub fn donors<'h>(&'h self, state: &'h RoundState) -> impl Iterator<Item = WorkIx> + 'h {
        let written = state.work.touched();
        let others = written.filter(|work| !self.large.contains(work));
        self.large.iter().copied().chain(others)
    }
}
