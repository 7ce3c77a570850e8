//! Work with at least `fragmentation_threshold` processes. Donors of equal or higher priority than
//! the needy work are all among it.

use std::collections::BTreeSet;

use crate::{ids::WorkIx, state::RoundState};

/// State at the beginning of the round. It is kept between rounds.
#[derive(Default)]
pub(crate) struct LargeHolders {
    large: BTreeSet<WorkIx>,
}

impl LargeHolders {
    /// Updates the set from dirty rows.
    pub fn renew(&mut self, state: &RoundState) {
        let threshold = state.snapshot.tunables.fragmentation_threshold;
        let mut update = |at: WorkIx| {
            let work = &state.work[at];
            if work.class.is_some() && work.has() > 0 && work.has() >= threshold {
                self.large.insert(at);
            } else {
                self.large.remove(&at);
            }
        };
        if state.index.rebuilt {
            state.work.indices().for_each(update);
        } else {
            state.work.dirty().for_each(&mut update);
        }
    }

    /// The large holders, and all work that was written in this round.
    pub fn donors<'h>(&'h self, state: &'h RoundState) -> impl Iterator<Item = WorkIx> + 'h {
        let written = state.work.touched();
        let others = written.filter(|at| !self.large.contains(at));
        self.large.iter().copied().chain(others)
    }
}
