//! Ordered set of small numbers. A second bitmap marks the words that are not empty, so the next
//! member is found in constant time.

use crate::ids::Ix;
use std::marker::PhantomData;

const BITS: usize = u64::BITS as usize;

#[derive(Clone)]
pub(crate) struct BitSet<I> {
    words: Vec<u64>,
    /// Bitmap of the words that are not empty.
    filled: Vec<u64>,
    len: usize,
    index: PhantomData<fn() -> I>,
}

impl<I> Default for BitSet<I> {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            filled: Vec::new(),
            len: 0,
            index: PhantomData,
        }
    }
}

fn split(at: usize) -> (usize, u64) {
    (at / BITS, 1 << (at % BITS))
}

/// Returns the bits of a word from this position on.
fn from(word: u64, at: usize) -> u64 {
    word & (u64::MAX << (at % BITS))
}

fn lowest(word: u64) -> usize {
    word.trailing_zeros() as usize
}

impl<I: Ix> BitSet<I> {
    #[inline]
    pub fn insert(&mut self, member: I) {
        let (position, bit) = split(member.index());
        if self.words.len() <= position {
            self.grow(position);
        }
        let word = &mut self.words[position];
        self.len += usize::from(*word & bit == 0);
        if *word == 0 {
            let (above, bit) = split(position);
            self.filled[above] |= bit;
        }
        *word |= bit;
    }

    /// Grows to a power of two, so that ascending inserts do not grow each time.
    #[cold]
    fn grow(&mut self, position: usize) {
        let words = (position + 1).next_multiple_of(BITS / 2);
        self.words.resize(words, 0);
        self.filled.resize(words.div_ceil(BITS), 0);
    }

    /// Returns true if it was a member.
    pub fn remove(&mut self, member: I) -> bool {
        let (position, bit) = split(member.index());
        let Some(word) = self.words.get_mut(position) else {
            return false;
        };
        let was_there = *word & bit != 0;
        self.len -= usize::from(was_there);
        *word &= !bit;
        if *word == 0 {
            let (above, bit) = split(position);
            self.filled[above] &= !bit;
        }
        was_there
    }

    pub fn extend(&mut self, all: impl IntoIterator<Item = I>) {
        all.into_iter().for_each(|member| self.insert(member));
    }

    /// Adds all members of the other set.
    pub fn unite(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
            self.filled.resize(other.filled.len(), 0);
        }
        let unite = |own: &mut [u64], other: &[u64]| {
            own.iter_mut()
                .zip(other)
                .for_each(|(own, other)| *own |= other);
        };
        unite(&mut self.words, &other.words);
        unite(&mut self.filled, &other.filled);
        self.len = self
            .words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum();
    }

    pub fn clear(&mut self) {
        self.words.clear();
        self.filled.clear();
        self.len = 0;
    }

    pub fn contains(&self, member: I) -> bool {
        let (position, bit) = split(member.index());
        self.words.get(position).is_some_and(|word| word & bit != 0)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn first(&self) -> Option<I> {
        self.position_from(0).map(I::new)
    }

    /// Returns the smallest member at or above this one.
    pub fn at_least(&self, least: I) -> Option<I> {
        self.position_from(least.index()).map(I::new)
    }

    fn position_from(&self, at: usize) -> Option<usize> {
        let word = at / BITS;
        let here = from(*self.words.get(word)?, at);
        if here != 0 {
            return Some(word * BITS + lowest(here));
        }
        let next = self.next_word(word + 1)?;
        Some(next * BITS + lowest(self.words[next]))
    }

    fn next_word(&self, word: usize) -> Option<usize> {
        let above = word / BITS;
        let here = from(*self.filled.get(above)?, word);
        if here != 0 {
            return Some(above * BITS + lowest(here));
        }
        let rest = self.filled[above + 1..].iter().zip(above + 1..);
        let mut rest = rest.filter(|(filled, _)| **filled != 0);
        rest.next().map(|(filled, at)| at * BITS + lowest(*filled))
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = I> {
        let next = |position: usize| self.position_from(position);
        std::iter::successors(next(0), move |position| next(position + 1)).map(I::new)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bit_set_behaves_like_an_ordered_set(
            changes in prop::collection::vec((0..20_000_usize, any::<bool>()), 0..200),
        ) {
            let (mut bits, mut set) = (BitSet::<usize>::default(), BTreeSet::new());
            for (at, belongs) in &changes {
                if *belongs {
                    bits.insert(*at);
                    set.insert(*at);
                } else {
                    prop_assert_eq!(bits.remove(*at), set.remove(at));
                }
                prop_assert_eq!(bits.is_empty(), set.is_empty());
            }
            for (at, _) in changes {
                prop_assert_eq!(bits.at_least(at), set.range(at..).next().copied());
                prop_assert_eq!(bits.contains(at), set.contains(&at));
            }
            prop_assert!(bits.iter().eq(set.iter().copied()));
            prop_assert_eq!(bits.first(), set.first().copied());
        }

        #[test]
        fn a_union_matches_that_of_ordered_sets(
            one in prop::collection::btree_set(0..9_000_usize, 0..200),
            other in prop::collection::btree_set(0..400_usize, 0..200),
        ) {
            let (mut bits, mut others) = (BitSet::default(), BitSet::default());
            bits.extend(one.iter().copied());
            others.extend(other.iter().copied());
            let mut both = others.clone();
            both.unite(&bits);
            prop_assert!(both.iter().eq(one.union(&other).copied()));
            prop_assert_eq!(both.len(), one.union(&other).count());
            both.clear();
            both.unite(&others);
            prop_assert!(both.iter().eq(other.iter().copied()));
        }
    }
}
