//! A lane of the queue: turns in their order, and what is to be done to them.

use super::{Turn, merge, sort};
use crate::books::Books;

#[derive(Default)]
pub(super) struct Lane {
    pub turns: Vec<Turn>,
    /// Some of its work is stirred, and to be taken out.
    pub is_stirred: bool,
    /// To be put in, in any order.
    pub fresh: Vec<Turn>,
}

impl Lane {
    /// Takes out what is stirred and puts in what is fresh. Costs nothing where nothing stirs.
    pub fn settle(&mut self, books: &Books) {
        if std::mem::take(&mut self.is_stirred) {
            let rests = |turn: &Turn| !books.requests.is_stirred(turn.at());
            self.turns.retain(rests);
        }
        if self.fresh.is_empty() {
            return;
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        sort(books, &mut fresh);
        if self.turns.is_empty() {
            fresh.shrink_to_fit();
            self.turns = fresh;
            return;
        }
        let mut all = Vec::with_capacity(self.turns.len() + fresh.len());
        merge(books, self.turns.iter().copied(), &fresh, |turn| {
            all.push(turn);
        });
        self.turns = all;
    }
}
