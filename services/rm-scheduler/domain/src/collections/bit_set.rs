//! Ordered set of indices, stored as a bitmap. A second bitmap marks the words of the first that
//! are not empty, so the next member is found fast.

use crate::ids::Ix;
use std::{marker::PhantomData, ops::Index};

const BITS: usize = u64::BITS as usize;

#[derive(Clone)]
pub(crate) struct BitSet<I> {
    words: Vec<u64>,
    /// Bitmap of the words that are not empty.
    non_empty_words: Vec<u64>,
    len: usize,
    index: PhantomData<fn() -> I>,
}

impl<I> Default for BitSet<I> {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            non_empty_words: Vec::new(),
            len: 0,
            index: PhantomData,
        }
    }
}

fn word_and_bit(position: usize) -> (usize, u64) {
    (position / BITS, 1 << (position % BITS))
}

/// Returns the bits of a word from this position on.
fn bits_from(word: u64, position: usize) -> u64 {
    word & (u64::MAX << (position % BITS))
}

fn lowest_bit(word: u64) -> usize {
    word.trailing_zeros() as usize
}

impl<I: Ix> BitSet<I> {
    #[inline]
    pub fn insert(&mut self, member: I) {
        let (word_index, bit) = word_and_bit(member.index());
        if self.words.len() <= word_index {
            self.grow(word_index);
        }
        let word = &mut self.words[word_index];
        self.len += usize::from(*word & bit == 0);
        if *word == 0 {
            let (summary_word, bit) = word_and_bit(word_index);
            self.non_empty_words[summary_word] |= bit;
        }
        *word |= bit;
    }

    /// Grows by at least 32 words, so that ascending inserts do not grow each time.
    #[cold]
    fn grow(&mut self, word_index: usize) {
        let words = (word_index + 1).next_multiple_of(BITS / 2);
        self.words.resize(words, 0);
        self.non_empty_words.resize(words.div_ceil(BITS), 0);
    }

    /// Returns true if `member` was in the set.
    pub fn remove(&mut self, member: I) -> bool {
        let (word_index, bit) = word_and_bit(member.index());
        let Some(word) = self.words.get_mut(word_index) else {
            return false;
        };
        let was_member = *word & bit != 0;
        self.len -= usize::from(was_member);
        *word &= !bit;
        if *word == 0 {
            let (summary_word, bit) = word_and_bit(word_index);
            self.non_empty_words[summary_word] &= !bit;
        }
        was_member
    }

    pub fn extend(&mut self, members: impl IntoIterator<Item = I>) {
        members.into_iter().for_each(|member| self.insert(member));
    }

    /// Adds all members of the other set.
    pub fn union_with(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
            self.non_empty_words.resize(other.non_empty_words.len(), 0);
        }
        let union_words = |own: &mut [u64], other: &[u64]| {
            own.iter_mut()
                .zip(other)
                .for_each(|(own, other)| *own |= other);
        };
        union_words(&mut self.words, &other.words);
        union_words(&mut self.non_empty_words, &other.non_empty_words);
        self.len = self
            .words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum();
    }

    /// Inserts or removes a member.
    pub fn set(&mut self, member: I, is_member: bool) {
        if is_member {
            self.insert(member);
        } else {
            self.remove(member);
        }
    }

    /// Removes all members. Only words with members are written.
    pub fn clear(&mut self) {
        let mut next = self.next_word(0);
        while let Some(word) = next {
            self.words[word] = 0;
            next = self.next_word(word + 1);
        }
        self.non_empty_words.fill(0);
        self.len = 0;
    }

    pub fn contains(&self, member: I) -> bool {
        let (word_index, bit) = word_and_bit(member.index());
        self.words
            .get(word_index)
            .is_some_and(|word| word & bit != 0)
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

    fn position_from(&self, position: usize) -> Option<usize> {
        let word = position / BITS;
        let remaining_bits = bits_from(*self.words.get(word)?, position);
        if remaining_bits != 0 {
            return Some(word * BITS + lowest_bit(remaining_bits));
        }
        let next = self.next_word(word + 1)?;
        Some(next * BITS + lowest_bit(self.words[next]))
    }

    fn next_word(&self, word: usize) -> Option<usize> {
        let summary_word = word / BITS;
        let remaining_bits = bits_from(*self.non_empty_words.get(summary_word)?, word);
        if remaining_bits != 0 {
            return Some(summary_word * BITS + lowest_bit(remaining_bits));
        }
        let later_words = self.non_empty_words[summary_word + 1..]
            .iter()
            .zip(summary_word + 1..);
        let mut later_words = later_words.filter(|(bits, _)| **bits != 0);
        later_words
            .next()
            .map(|(bits, position)| position * BITS + lowest_bit(*bits))
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = I> {
        let next = |position: usize| self.position_from(position);
        std::iter::successors(next(0), move |position| next(position + 1)).map(I::new)
    }
}

impl<I: Ix> Index<I> for BitSet<I> {
    type Output = bool;

    fn index(&self, member: I) -> &bool {
        if self.contains(member) { &true } else { &false }
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
            for (member, is_insertion) in &changes {
                if *is_insertion {
                    bits.insert(*member);
                    set.insert(*member);
                } else {
                    prop_assert_eq!(bits.remove(*member), set.remove(member));
                }
                prop_assert_eq!(bits.is_empty(), set.is_empty());
            }
            for (member, _) in changes {
                prop_assert_eq!(bits.at_least(member), set.range(member..).next().copied());
                prop_assert_eq!(bits.contains(member), set.contains(&member));
            }
            prop_assert!(bits.iter().eq(set.iter().copied()));
            prop_assert_eq!(bits.first(), set.first().copied());
        }

        #[test]
        fn a_union_matches_that_of_ordered_sets(
            one in prop::collection::btree_set(0..9_000_usize, 0..200),
            other in prop::collection::btree_set(0..400_usize, 0..200),
        ) {
            let (mut one_bits, mut other_bits) = (BitSet::default(), BitSet::default());
            one_bits.extend(one.iter().copied());
            other_bits.extend(other.iter().copied());
            let mut union = other_bits.clone();
            union.union_with(&one_bits);
            prop_assert!(union.iter().eq(one.union(&other).copied()));
            prop_assert_eq!(union.len(), one.union(&other).count());
            union.clear();
            union.union_with(&other_bits);
            prop_assert!(union.iter().eq(other.iter().copied()));
        }
    }
}
