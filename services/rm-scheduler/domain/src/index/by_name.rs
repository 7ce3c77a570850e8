//! Hash table from names to rows. The name is read from the row, so the table is small.

use std::hash::{BuildHasher, BuildHasherDefault};

use crate::ids::Ix;
use hashbrown::HashTable;
use rustc_hash::FxHasher;

/// Hash of a name. Names with equal hashes are distinguished by their rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash(u32);

impl Hash {
    #[expect(clippy::cast_possible_truncation, reason = "half of it will do")]
    pub fn new(name: &str) -> Self {
        Self(BuildHasherDefault::<FxHasher>::default().hash_one(name) as u32)
    }

    /// Spreads the hash over 64 bits.
    fn wide(self) -> u64 {
        u64::from(self.0) << u32::BITS | u64::from(self.0)
    }
}

pub(super) struct ByName<I>(HashTable<Entry<I>>);

struct Entry<I> {
    hash: Hash,
    row: I,
}

impl<I> Default for ByName<I> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<I: Ix> ByName<I> {
    /// Returns the row of the name with this hash. `is_it` compares the name of a row.
    #[inline]
    pub fn find(&self, hash: Hash, is_it: impl Fn(I) -> bool) -> Option<I> {
        let is_it = |it: &Entry<I>| it.hash == hash && is_it(it.row);
        self.0.find(hash.wide(), is_it).map(|it| it.row)
    }

    pub fn reserve(&mut self, more: usize) {
        self.0.reserve(more, |it| it.hash.wide());
    }

    /// Inserts a row that is not in the table.
    pub fn insert(&mut self, hash: Hash, row: I) {
        let entry = Entry { hash, row };
        self.0
            .insert_unique(hash.wide(), entry, |it| it.hash.wide());
    }

    /// Removes a row that is in the table.
    pub fn remove(&mut self, hash: Hash, row: I) {
        let entry = self.0.find_entry(hash.wide(), |it| it.row == row);
        if let Ok(entry) = entry {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::WorkIx;

    #[test]
    fn names_with_equal_hashes_are_distinguished() {
        let mut rows = ByName::default();
        let hash = Hash::new("a");
        assert_eq!(rows.find(hash, |_| true), None);
        let [first, second, third] = [5, 6, 7].map(WorkIx::new);
        for row in [first, second, third] {
            rows.insert(hash, row);
        }
        rows.remove(hash, first);
        assert_eq!(rows.find(hash, |row| row == second), Some(second));
        assert_eq!(rows.find(hash, |row| row == first), None);
        rows.remove(hash, second);
        assert_eq!(rows.find(hash, |_| true), Some(third));
        assert_eq!(size_of::<Entry<WorkIx>>(), 8);
    }
}
