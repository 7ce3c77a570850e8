//! A lane of the queue: turns in their order, and what is to be done to them.

use super::{ServeKey, compare, sort};
use crate::state::RoundState;

#[derive(Default)]
pub(crate) struct ServeQueue {
    pub keys: Vec<ServeKey>,
    /// To be taken out, in any order.
    pub removed: Vec<ServeKey>,
    /// To be put in, in any order.
    pub added: Vec<ServeKey>,
}

impl ServeQueue {
    /// Costs nothing where nothing comes or goes; else what lies between is moved in one piece.
    pub fn settle(&mut self, state: &RoundState) {
        if !self.removed.is_empty() {
            self.take_out();
        }
        if !self.added.is_empty() {
            self.put_in(state);
        }
    }

    fn take_out(&mut self) {
        let mut places: Vec<usize> = Vec::with_capacity(self.removed.len());
        places.extend(self.removed.iter().filter_map(|key| self.place(key)));
        self.removed.clear();
        places.sort_unstable();
        let len = self.keys.len();
        for (before, place) in places.iter().enumerate() {
            let next = places.get(before + 1).copied().unwrap_or(len);
            self.keys.copy_within(place + 1..next, place - before);
        }
        self.keys.truncate(len - places.len());
    }

    /// Where a turn is. Orders and ids say nothing here: some are those of other work by now.
    fn place(&self, key: &ServeKey) -> Option<usize> {
        let age = key.age();
        let from = self.keys.partition_point(|other| other.age() < age);
        let equal = self.keys[from..].iter();
        let mut equal = equal.take_while(|other| other.age() == age);
        equal.position(|other| other == key).map(|at| from + at)
    }

    fn put_in(&mut self, state: &RoundState) {
        let mut fresh = std::mem::take(&mut self.added);
        sort(state, &mut fresh);
        let mut end = self.keys.len();
        self.keys.extend_from_slice(&fresh);
        for (before, key) in fresh.iter().enumerate().rev() {
            let is_before = |other: &ServeKey| compare(state, other, key).is_lt();
            let place = match self.keys[..end].last() {
                // What comes mostly is the youngest.
                Some(last) if !is_before(last) => self.keys[..end].partition_point(is_before),
                _ => end,
            };
            self.keys.copy_within(place..end, place + before + 1);
            self.keys[place + before] = *key;
            end = place;
        }
        fresh.clear();
        self.added = fresh;
    }
}
