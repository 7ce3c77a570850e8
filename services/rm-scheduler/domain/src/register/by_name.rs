//! Numbers of work and shares, found by their names. A name is kept where its number leads and not
//! here: so what is looked through is small, it grows without asking for a name, and of many names
//! none has to wait for the memory of the one before.

use std::{
    hash::{BuildHasher, BuildHasherDefault},
    num::NonZero,
};

use rustc_hash::FxHasher;

/// What a name comes to. Names that come to the same are told apart where they are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hash(u32);

impl Hash {
    #[expect(clippy::cast_possible_truncation, reason = "half of it will do")]
    pub fn of(name: &str) -> Self {
        Self(BuildHasherDefault::<FxHasher>::default().hash_one(name) as u32)
    }
}

#[derive(Default)]
pub(super) struct ByName {
    /// Each stands where its hash says, or behind others without a gap. At most half are taken.
    places: Vec<Option<Entry>>,
    len: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: Hash,
    /// One more than the number, so that a place takes no more memory where nothing stands.
    next: NonZero<u32>,
}

impl Entry {
    fn number(self) -> usize {
        self.next.get() as usize - 1
    }
}

impl ByName {
    /// The number of a name that comes to this; `is_it` says whether a number has that name.
    #[inline]
    pub fn find(&self, hash: Hash, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        loop {
            let entry = (*self.places.get(at)?)?;
            if entry.hash == hash && is_it(entry.number()) {
                return Some(entry.number());
            }
            at = self.after(at);
        }
    }

    /// The number that it most likely is.
    pub fn guess(&self, hash: Hash) -> Option<usize> {
        self.find(hash, |_| true)
    }

    pub fn reserve(&mut self, more: usize) {
        let places = ((self.len + more) * 2).next_power_of_two();
        if self.places.len() < places {
            let before = std::mem::replace(&mut self.places, vec![None; places]);
            for entry in before.into_iter().flatten() {
                self.put(entry);
            }
        }
    }

    /// A number that is not here. There is no memory for as many rows as would not fit.
    pub fn insert(&mut self, hash: Hash, number: usize) {
        let next = u32::try_from(number + 1).ok().and_then(NonZero::new);
        let next = next.unwrap_or(NonZero::<u32>::MAX);
        self.reserve(1);
        self.put(Entry { hash, next });
        self.len += 1;
    }

    fn put(&mut self, entry: Entry) {
        let mut at = self.home(entry.hash);
        while self.places[at].is_some() {
            at = self.after(at);
        }
        self.places[at] = Some(entry);
    }

    /// Takes out a number that is here.
    pub fn remove(&mut self, hash: Hash, number: usize) {
        let mut gap = self.home(hash);
        while self.places[gap].is_some_and(|it| it.number() != number) {
            gap = self.after(gap);
        }
        let mut at = self.after(gap);
        while let Some(behind) = self.places[at] {
            // Who stands behind moves up, but not to before where he is looked for.
            let far = |from: usize| at.wrapping_sub(from) & (self.places.len() - 1);
            if far(self.home(behind.hash)) >= far(gap) {
                self.places[gap] = Some(behind);
                gap = at;
            }
            at = self.after(at);
        }
        self.places[gap] = None;
        self.len -= 1;
    }

    /// Where a hash says.
    fn home(&self, hash: Hash) -> usize {
        hash.0 as usize & self.places.len().wrapping_sub(1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & self.places.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Hashes are of few, so that rows run into each other and around the end.
        #[test]
        fn who_is_there_is_found_whoever_came_and_went(
            steps in prop::collection::vec((0..24_usize, any::<bool>()), 0..200),
        ) {
            let hash = |number: usize| Hash([u32::MAX, 3, 2, 7][number % 4]);
            let (mut numbers, mut there) = (ByName::default(), BTreeSet::new());
            for (number, comes) in steps {
                if comes && there.insert(number) {
                    numbers.insert(hash(number), number);
                } else if !comes && there.remove(&number) {
                    numbers.remove(hash(number), number);
                }
                for number in 0..24 {
                    let found = numbers.find(hash(number), |at| at == number);
                    prop_assert_eq!(found.is_some(), there.contains(&number));
                }
            }
            prop_assert_eq!(numbers.len, there.len());
        }
    }

    #[test]
    fn names_of_one_hash_are_told_apart() {
        let mut numbers = ByName::default();
        assert_eq!(numbers.guess(Hash::of("a")), None);
        for number in [5, 6] {
            numbers.insert(Hash::of("a"), number);
        }
        assert_eq!(numbers.find(Hash::of("a"), |at| at == 6), Some(6));
        assert_eq!(numbers.find(Hash::of("a"), |at| at == 7), None);
        assert_eq!(size_of::<Option<Entry>>(), 8);
    }
}
