//! Sets of small numbers in ascending order: a bit for each number, and above them a bit for each
//! word that has any, so that the next one is found without looking at what is not there.

const BITS: usize = u64::BITS as usize;

#[derive(Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    /// By word: has it any?
    filled: Vec<u64>,
    len: usize,
}

fn split(at: usize) -> (usize, u64) {
    (at / BITS, 1 << (at % BITS))
}

/// The bits of a word from this one on.
fn from(word: u64, at: usize) -> u64 {
    word & (u64::MAX << (at % BITS))
}

fn lowest(word: u64) -> usize {
    word.trailing_zeros() as usize
}

impl Bits {
    #[inline]
    pub fn insert(&mut self, at: usize) {
        let (place, bit) = split(at);
        if self.words.len() <= place {
            self.grow(place);
        }
        let word = &mut self.words[place];
        self.len += usize::from(*word & bit == 0);
        if *word == 0 {
            let (above, bit) = split(place);
            self.filled[above] |= bit;
        }
        *word |= bit;
    }

    /// Numbers that ascend would ask for a little more each time. There are many small sets, so it
    /// is not much more.
    #[cold]
    fn grow(&mut self, place: usize) {
        let words = (place + 1).next_multiple_of(BITS / 2);
        self.words.resize(words, 0);
        self.filled.resize(words.div_ceil(BITS), 0);
    }

    pub fn remove(&mut self, at: usize) {
        let (place, bit) = split(at);
        let Some(word) = self.words.get_mut(place) else {
            return;
        };
        self.len -= usize::from(*word & bit != 0);
        *word &= !bit;
        if *word == 0 {
            let (above, bit) = split(place);
            self.filled[above] &= !bit;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn first(&self) -> Option<usize> {
        self.at_least(0)
    }

    /// The least that is no less than this.
    pub fn at_least(&self, at: usize) -> Option<usize> {
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

    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.first(), |at| self.at_least(at + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_as_ordered_sets_are(
            changes in prop::collection::vec((0..20_000_usize, any::<bool>()), 0..200),
        ) {
            let (mut bits, mut set) = (Bits::default(), BTreeSet::new());
            for (at, belongs) in &changes {
                if *belongs {
                    bits.insert(*at);
                    set.insert(*at);
                } else {
                    bits.remove(*at);
                    set.remove(at);
                }
                prop_assert_eq!(bits.is_empty(), set.is_empty());
            }
            for (at, _) in changes {
                prop_assert_eq!(bits.at_least(at), set.range(at..).next().copied());
            }
            prop_assert!(bits.iter().eq(set.iter().copied()));
            prop_assert_eq!(bits.first(), set.first().copied());
        }
    }
}
