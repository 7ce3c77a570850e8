//! What was said last of one piece of work. All of it lies together: work anywhere is two lines of
//! memory, and is looked at once.

use std::hint::black_box;

use super::Moved;
use crate::{
    explanation::{
        shares::{self, Told},
        verdict::{Finder, Finding},
    },
    index::Register,
    output::{
        packed_share::PackedShare,
        plan::{Verdict, WorkShare},
    },
    state::Books,
};

/// Stands for no class, and for a user in whose sums it is not.
const NONE: u32 = u32::MAX;

#[repr(C, align(64))]
pub(super) struct Row {
    class: u32,
    user_at: u32,
    share: Option<PackedShare>,
    finding: Option<Finding>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            class: NONE,
            user_at: NONE,
            share: None,
            finding: None,
        }
    }
}

impl Row {
    /// Takes up what there is to say now; true where the verdict is another than before.
    pub fn renew<'a>(
        &mut self,
        books: &Books<'a>,
        ((at, wait), share): (Moved, &WorkShare),
        told: &mut Told,
        finder: &mut Finder<'a>,
    ) -> bool {
        let request = &books.requests[at];
        let (class, user_at) = match request.class {
            Some(class) => (small(class), small(books.demand(at).user_at)),
            None => (NONE, NONE),
        };
        let packed = Some(PackedShare::of(share, request.order));
        let finding = Some(finder.find(books, (at, wait)));
        self.leave(told);
        if class != NONE {
            told.count((class, user_at), &share.tally);
        }
        let counts = |share: &Option<PackedShare>| share.as_ref().map(PackedShare::counts);
        let is_other = self.class != class
            || self.finding != finding
            || counts(&self.share) != counts(&packed);
        (self.class, self.user_at) = (class, user_at);
        (self.share, self.finding) = (packed, finding);
        is_other
    }

    /// It is in the sums of nobody any more.
    pub fn leave(&mut self, told: &mut Told) {
        if let Some(share) = &self.share
            && self.user_at != NONE
        {
            told.forget((self.class, self.user_at), &share.tally());
            self.user_at = NONE;
        }
    }

    pub fn verdict(&self, register: &Register) -> Option<Verdict> {
        let class = register.classes.get(self.class as usize);
        let counts = self.share.as_ref()?.counts();
        Some(self.finding.as_ref()?.told(class, &counts))
    }

    pub fn share(&self) -> Option<WorkShare> {
        Some(self.share.as_ref()?.share())
    }

    /// Some of both lines.
    pub fn anything(&self) -> usize {
        self.class as usize ^ usize::from(self.finding.is_some())
    }

    /// Its share, where it is in the sums of somebody.
    pub fn counted(&self) -> Option<&PackedShare> {
        self.share.as_ref().filter(|_| self.user_at != NONE)
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NONE)
}

/// Rows of work from this number on, said for the first time; what they come to.
pub(super) fn fill(books: &Books, (rows, first): (&mut [Row], usize)) -> Told {
    let mut told = Told::of(books);
    let mut finder = Finder::default();
    for (row, at) in rows.iter_mut().zip(first..) {
        let (of_work, share) = ((at, books.wait_of(at)), shares::of_work(books, at));
        row.renew(books, (of_work, &share), &mut told, &mut finder);
    }
    told
}

/// Has all come at the same time that is to be looked at of this work: it lies anywhere in memory.
pub(super) fn fetch(books: &Books, rows: &[Row], work: impl Iterator<Item = usize>) {
    let all = work.fold(0, |all, at| {
        let (request, asked, row) = (&books.requests[at], books.demand(at), &rows[at]);
        let of_request = request.order ^ request.cap.now ^ request.granted;
        let holding = &asked.holding;
        let of_cap = u64::from(holding.cap.starting);
        let of_asked = asked.max_processes ^ holding.mean_start_ms ^ of_cap;
        let letter = asked.id.as_str().as_bytes().first();
        let of_row = row.anything() as u64;
        all ^ of_request ^ of_asked ^ of_row ^ letter.map_or(0, |letter| u64::from(*letter))
    });
    black_box(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_two_lines_of_memory() {
        assert_eq!(size_of::<Row>(), 128);
    }
}
