//! Hash table from names to row numbers. The name itself is read from the row, so the table is
//! small.

use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use rustc_hash::FxHasher;

/// Hash of a name. Names with equal hashes are told apart by their rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash(u32);

impl Hash {
    #[expect(clippy::cast_possible_truncation, reason = "half of it will do")]
    pub fn of(name: &str) -> Self {
        Self(BuildHasherDefault::<FxHasher>::default().hash_one(name) as u32)
    }

    /// Spreads the hash over 64 bits.
    fn wide(self) -> u64 {
        u64::from(self.0) << u32::BITS | u64::from(self.0)
    }
}

#[derive(Default)]
pub(super) struct ByName(HashTable<Entry>);

struct Entry {
    hash: Hash,
    number: u32,
}

impl Entry {
    fn number(&self) -> usize {
        self.number as usize
    }
}

impl ByName {
    /// Number of the name with this hash; `is_it` compares the name of a row.
    #[inline]
    pub fn find(&self, hash: Hash, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let is_it = |it: &Entry| it.hash == hash && is_it(it.number());
        self.0.find(hash.wide(), is_it).map(Entry::number)
    }

    /// The first number with this hash, without comparing names.
    pub fn guess(&self, hash: Hash) -> Option<usize> {
        self.find(hash, |_| true)
    }

    pub fn reserve(&mut self, more: usize) {
        self.0.reserve(more, |it| it.hash.wide());
    }

    /// Inserts a number that is not in the table.
    pub fn insert(&mut self, hash: Hash, number: usize) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let entry = Entry { hash, number };
        self.0
            .insert_unique(hash.wide(), entry, |it| it.hash.wide());
    }

    /// Removes a number that is in the table.
    pub fn remove(&mut self, hash: Hash, number: usize) {
        let entry = self.0.find_entry(hash.wide(), |it| it.number() == number);
        if let Ok(entry) = entry {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_equal_hashes_are_distinguished() {
        let mut numbers = ByName::default();
        let hash = Hash::of("a");
        assert_eq!(numbers.guess(hash), None);
        for number in [5, 6, 7] {
            numbers.insert(hash, number);
        }
        numbers.remove(hash, 5);
        assert_eq!(numbers.find(hash, |at| at == 6), Some(6));
        assert_eq!(numbers.find(hash, |at| at == 5), None);
        numbers.remove(hash, 6);
        assert_eq!(numbers.guess(hash), Some(7));
        assert_eq!(size_of::<Entry>(), 8);
    }
}
