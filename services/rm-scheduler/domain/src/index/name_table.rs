//! Hash table from names to rows. It stores only the hash of a name, so that the table is small.

use std::hash::{BuildHasher, BuildHasherDefault};

use crate::ids::Ix;
use hashbrown::HashTable;
use rustc_hash::FxHasher;

/// Hash of a name. Names with equal hashes are distinguished by their rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NameHash(u32);

impl NameHash {
    #[expect(clippy::cast_possible_truncation, reason = "32 bits are enough")]
    pub fn new(name: &str) -> Self {
        Self(BuildHasherDefault::<FxHasher>::default().hash_one(name) as u32)
    }

    /// Spreads the hash over 64 bits.
    fn to_u64(self) -> u64 {
        u64::from(self.0) << u32::BITS | u64::from(self.0)
    }
}

pub(super) struct NameTable<I>(HashTable<Entry<I>>);

struct Entry<I> {
    hash: NameHash,
    row: I,
}

impl<I> Default for NameTable<I> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<I: Ix> NameTable<I> {
    /// Returns the row of the name with this hash. `has_name` compares the name of a row.
    #[inline]
    pub fn find(&self, hash: NameHash, has_name: impl Fn(I) -> bool) -> Option<I> {
        let has_name = |entry: &Entry<I>| entry.hash == hash && has_name(entry.row);
        self.0.find(hash.to_u64(), has_name).map(|entry| entry.row)
    }

    pub fn reserve(&mut self, additional: usize) {
        self.0.reserve(additional, |entry| entry.hash.to_u64());
    }

    /// Inserts a row that is not in the table.
    pub fn insert(&mut self, hash: NameHash, row: I) {
        let entry = Entry { hash, row };
        self.0
            .insert_unique(hash.to_u64(), entry, |other| other.hash.to_u64());
    }

    /// Removes a row that is in the table.
    pub fn remove(&mut self, hash: NameHash, row: I) {
        let entry = self.0.find_entry(hash.to_u64(), |entry| entry.row == row);
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
        let mut rows = NameTable::default();
        let hash = NameHash::new("a");
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
