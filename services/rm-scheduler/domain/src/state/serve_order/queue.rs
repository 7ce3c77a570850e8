//! A sorted queue of work with batched insertions and removals.

use super::{ServeKey, compare, sort};
use crate::state::RoundState;

/// Work in serve order. Changes are collected and applied together.
#[derive(Default)]
pub(crate) struct ServeQueue {
    pub keys: Vec<ServeKey>,
    /// Keys to remove, in any order.
    pub removed: Vec<ServeKey>,
    /// Keys to insert, in any order.
    pub added: Vec<ServeKey>,
}

impl ServeQueue {
    /// Applies removals and insertions. Keys between two changes are moved in one copy.
    pub fn apply_changes(&mut self, state: &RoundState) {
        if !self.removed.is_empty() {
            self.remove_all();
        }
        if !self.added.is_empty() {
            self.insert_all(state);
        }
    }

    /// Removes all keys of `removed`.
    fn remove_all(&mut self) {
        let mut positions: Vec<usize> = Vec::with_capacity(self.removed.len());
        positions.extend(self.removed.iter().filter_map(|key| self.position(key)));
        self.removed.clear();
        positions.sort_unstable();
        let len = self.keys.len();
        for (removed_before, position) in positions.iter().enumerate() {
            let next = positions.get(removed_before + 1).copied().unwrap_or(len);
            self.keys
                .copy_within(position + 1..next, position - removed_before);
        }
        self.keys.truncate(len - positions.len());
    }

    /// Returns the position of a key. The search reads only the key, because the row of its work
    /// may belong to other work by now.
    fn position(&self, key: &ServeKey) -> Option<usize> {
        let rank_and_time = key.rank_and_time();
        let first = self
            .keys
            .partition_point(|other| other.rank_and_time() < rank_and_time);
        let equal = self.keys[first..].iter();
        let mut equal = equal.take_while(|other| other.rank_and_time() == rank_and_time);
        equal
            .position(|other| other == key)
            .map(|offset| first + offset)
    }

    /// Inserts all keys of `added`, from the end to the beginning.
    fn insert_all(&mut self, state: &RoundState) {
        let mut new_keys = std::mem::take(&mut self.added);
        sort(state, &mut new_keys);
        let mut end = self.keys.len();
        self.keys.extend_from_slice(&new_keys);
        for (inserted_before, key) in new_keys.iter().enumerate().rev() {
            let is_before = |other: &ServeKey| compare(state, other, key).is_lt();
            let position = match self.keys[..end].last() {
                // New work is usually the youngest.
                Some(last) if !is_before(last) => self.keys[..end].partition_point(is_before),
                _ => end,
            };
            self.keys
                .copy_within(position..end, position + inserted_before + 1);
            self.keys[position + inserted_before] = *key;
            end = position;
        }
        new_keys.clear();
        self.added = new_keys;
    }
}
