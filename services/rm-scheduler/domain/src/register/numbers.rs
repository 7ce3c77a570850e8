//! Numbers by name. A name stands in the row of its number, so a table holds numbers alone: that of
//! a hundred thousand names takes half a megabyte, and who looks one up waits for memory once or
//! twice.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

#[derive(Default)]
pub(super) struct Numbers {
    table: HashTable<u32>,
}

fn hash(name: &impl Hash) -> u64 {
    FxBuildHasher.hash_one(name)
}

impl Numbers {
    pub fn with_capacity(names: usize) -> Self {
        Self {
            table: HashTable::with_capacity(names),
        }
    }

    /// `name_of` says the name in the row of a number.
    pub fn find<'r, N: Hash + Eq + 'r>(
        &self,
        name: &N,
        name_of: impl Fn(usize) -> &'r N,
    ) -> Option<usize> {
        let is_it = |at: &u32| name_of(*at as usize) == name;
        self.table.find(hash(name), is_it).map(|at| *at as usize)
    }

    /// Of a name that has none yet.
    pub fn insert<'r, N: Hash + Eq + 'r>(
        &mut self,
        (name, at): (&N, usize),
        name_of: impl Fn(usize) -> &'r N,
    ) {
        // Rows have numbers of this size, here and in what is kept of them elsewhere.
        let small = u32::try_from(at).unwrap_or(u32::MAX);
        let rehash = |at: &u32| hash(name_of(*at as usize));
        self.table.insert_unique(hash(name), small, rehash);
    }

    pub fn remove(&mut self, name: &impl Hash, at: usize) {
        let is_it = |known: &u32| *known as usize == at;
        if let Ok(entry) = self.table.find_entry(hash(name), is_it) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_until_they_go_also_when_the_table_grew() {
        let names: Vec<String> = (0..500).map(|at| format!("n{at}")).collect();
        let mut numbers = Numbers::default();
        for (at, name) in names.iter().enumerate() {
            numbers.insert((name, at), |at| &names[at]);
        }
        for at in (0..names.len()).step_by(3) {
            numbers.remove(&names[at], at);
        }
        for (at, name) in names.iter().enumerate() {
            let found = numbers.find(name, |at| &names[at]);
            assert_eq!(found, Some(at).filter(|at| at % 3 != 0));
        }
        assert_eq!(numbers.find(&"other".to_owned(), |at| &names[at]), None);
    }
}
