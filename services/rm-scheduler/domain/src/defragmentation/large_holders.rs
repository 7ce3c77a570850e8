//! Work that holds as much as the threshold: only among it are donors that nobody outranks.

use std::collections::BTreeSet;

use crate::state::RoundState;

/// As it stood when the round began, kept from round to round.
#[derive(Default)]
pub(crate) struct LargeHolders {
    large: BTreeSet<usize>,
}

impl LargeHolders {
    /// Takes up what is not what it was.
    pub fn renew(&mut self, state: &RoundState) {
        let threshold = state.snapshot.tunables.fragmentation_threshold;
        let mut take_up = |at: usize| {
            let work = &state.work[at];
            if work.class.is_some() && work.has() > 0 && work.has() >= threshold {
                self.large.insert(at);
            } else {
                self.large.remove(&at);
            }
        };
        if state.index.rebuilt {
            (0..state.work.len()).for_each(take_up);
        } else {
            state.work.dirty().for_each(&mut take_up);
        }
    }

    /// With all that this round gave anything to or took anything from.
    pub fn donors<'h>(&'h self, state: &'h RoundState) -> impl Iterator<Item = usize> + 'h {
        let written = state.work.touched();
        let others = written.filter(|at| !self.large.contains(at));
        self.large.iter().copied().chain(others)
    }
}
