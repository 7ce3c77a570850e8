//! A lane of the queue: turns in their order, and what is to be done to them.

use super::{Turn, compare, sort};
use crate::state::Books;

#[derive(Default)]
pub(crate) struct Lane {
    pub turns: Vec<Turn>,
    /// To be taken out, in any order.
    pub gone: Vec<Turn>,
    /// To be put in, in any order.
    pub fresh: Vec<Turn>,
}

impl Lane {
    /// Costs nothing where nothing comes or goes; else what lies between is moved in one piece.
    pub fn settle(&mut self, books: &Books) {
        if !self.gone.is_empty() {
            self.take_out();
        }
        if !self.fresh.is_empty() {
            self.put_in(books);
        }
    }

    fn take_out(&mut self) {
        let mut places: Vec<usize> = Vec::with_capacity(self.gone.len());
        places.extend(self.gone.iter().filter_map(|turn| self.place(turn)));
        self.gone.clear();
        places.sort_unstable();
        let len = self.turns.len();
        for (before, place) in places.iter().enumerate() {
            let next = places.get(before + 1).copied().unwrap_or(len);
            self.turns.copy_within(place + 1..next, place - before);
        }
        self.turns.truncate(len - places.len());
    }

    /// Where a turn is. Orders and ids say nothing here: some are those of other work by now.
    fn place(&self, turn: &Turn) -> Option<usize> {
        let age = turn.age();
        let from = self.turns.partition_point(|other| other.age() < age);
        let equal = self.turns[from..].iter();
        let mut equal = equal.take_while(|other| other.age() == age);
        equal.position(|other| other == turn).map(|at| from + at)
    }

    fn put_in(&mut self, books: &Books) {
        let mut fresh = std::mem::take(&mut self.fresh);
        sort(books, &mut fresh);
        let mut end = self.turns.len();
        self.turns.extend_from_slice(&fresh);
        for (before, turn) in fresh.iter().enumerate().rev() {
            let is_before = |other: &Turn| compare(books, other, turn).is_lt();
            let place = match self.turns[..end].last() {
                // What comes mostly is the youngest.
                Some(last) if !is_before(last) => self.turns[..end].partition_point(is_before),
                _ => end,
            };
            self.turns.copy_within(place..end, place + before + 1);
            self.turns[place + before] = *turn;
            end = place;
        }
        fresh.clear();
        self.fresh = fresh;
    }
}
