//! Work that holds as much as the threshold: only among it are donors that nobody outranks.

use std::collections::BTreeSet;

use crate::state::Books;

/// As it stood when the round began, kept from round to round.
#[derive(Default)]
pub(crate) struct Hoards {
    large: BTreeSet<usize>,
}

impl Hoards {
    /// Takes up what is not what it was.
    pub fn renew(&mut self, books: &Books) {
        let threshold = books.snapshot.tunables.fragmentation_threshold;
        let mut take_up = |at: usize| {
            let request = &books.requests[at];
            if request.class.is_some() && request.has() > 0 && request.has() >= threshold {
                self.large.insert(at);
            } else {
                self.large.remove(&at);
            }
        };
        if books.register.anew {
            (0..books.requests.len()).for_each(take_up);
        } else {
            books.requests.stirred().for_each(&mut take_up);
        }
    }

    /// With all that this round gave anything to or took anything from.
    pub fn donors<'h>(&'h self, books: &'h Books) -> impl Iterator<Item = usize> + 'h {
        let written = books.requests.written();
        let others = written.filter(|at| !self.large.contains(at));
        self.large.iter().copied().chain(others)
    }
}
