//! Two unordered sets of indices: `DenseSet` with a fast clear, `SparseSet` with a compact list.

use crate::ids::Ix;
use std::ops::Index;

const BITS: usize = u64::BITS as usize;

/// Set with fast insert, iteration and clear. A bitmap answers membership, and a list gives the
/// members.
pub(crate) struct DenseSet<I> {
    words: Vec<Word>,
    /// Indices inserted since the last `clear`, each once. Some may have been removed since.
    listed: Vec<I>,
}

impl<I> Default for DenseSet<I> {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            listed: Vec::new(),
        }
    }
}

#[derive(Default, Clone, Copy)]
struct Word {
    /// Bits of the indices that are members.
    present: u64,
    /// Bits of the indices that are in the list.
    listed: u64,
}

fn word_and_bit(member: impl Ix) -> (usize, u64) {
    let index = member.index();
    (index / BITS, 1 << (index % BITS))
}

impl<I: Ix> DenseSet<I> {
    /// Returns true if `member` was not in the set before.
    #[inline]
    pub fn insert(&mut self, member: I) -> bool {
        let (word, bit) = word_and_bit(member);
        if self.words.len() <= word {
            self.grow(word);
        }
        let word = &mut self.words[word];
        if word.present & bit != 0 {
            return false;
        }
        word.present |= bit;
        if word.listed & bit == 0 {
            word.listed |= bit;
            self.listed.push(member);
        }
        true
    }

    /// Grows to a power of two, so that ascending inserts do not grow each time.
    #[cold]
    fn grow(&mut self, word: usize) {
        let words = (word + 1).next_power_of_two();
        self.words.resize(words, Word::default());
    }

    pub fn remove(&mut self, member: I) {
        if self.listed.is_empty() {
            return;
        }
        let (word, bit) = word_and_bit(member);
        if let Some(word) = self.words.get_mut(word) {
            word.present &= !bit;
        }
    }

    pub fn extend(&mut self, members: impl IntoIterator<Item = I>) {
        let members = members.into_iter();
        self.listed.reserve(members.size_hint().0);
        for member in members {
            self.insert(member);
        }
    }

    pub fn contains(&self, member: I) -> bool {
        let (word, bit) = word_and_bit(member);
        self.words
            .get(word)
            .is_some_and(|word| word.present & bit != 0)
    }

    pub fn members(&self) -> impl Iterator<Item = I> {
        let members = self.listed.iter().copied();
        members.filter(|member| self.contains(*member))
    }

    pub fn clear(&mut self) {
        for member in self.listed.drain(..) {
            self.words[member.index() / BITS] = Word::default();
        }
    }
}

impl<I: Ix> Index<I> for DenseSet<I> {
    type Output = bool;

    fn index(&self, member: I) -> &bool {
        if self.contains(member) { &true } else { &false }
    }
}

/// Set whose list contains exactly the members, so that iteration never visits removed ones.
pub(crate) struct SparseSet<I> {
    listed: Vec<I>,
    /// Position in `listed`, by index of the member.
    positions: Vec<Option<u32>>,
}

impl<I> Default for SparseSet<I> {
    fn default() -> Self {
        Self {
            listed: Vec::new(),
            positions: Vec::new(),
        }
    }
}

impl<I: Ix> SparseSet<I> {
    /// Inserts the index, or removes it if `is_member` is false.
    pub fn set(&mut self, member: I, is_member: bool) {
        if !is_member && self.listed.is_empty() {
            return;
        }
        let index = member.index();
        if self.positions.len() <= index {
            self.positions.resize(index + 1, None);
        }
        match self.positions[index] {
            None if is_member => {
                self.positions[index] = u32::try_from(self.listed.len()).ok();
                self.listed.push(member);
            }
            Some(position) if !is_member => {
                self.positions[index] = None;
                self.listed.swap_remove(position as usize);
                if let Some(moved) = self.listed.get(position as usize) {
                    self.positions[moved.index()] = Some(position);
                }
            }
            _ => {}
        }
    }

    pub fn contains(&self, member: I) -> bool {
        self.positions
            .get(member.index())
            .is_some_and(Option::is_some)
    }

    pub fn iter(&self) -> impl Iterator<Item = I> {
        self.listed.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_inserted_again_is_listed_once() {
        let mut set = DenseSet::<usize>::default();
        set.extend([70, 3, 70, 5]);
        set.remove(3);
        set.remove(70);
        set.remove(1_000);
        set.insert(70);
        assert!(set.members().eq([70, 5]));
        assert!(set[70] && !set[3] && !set[1_000]);
        set.clear();
        assert!(set.members().next().is_none() && !set.contains(5));
        set.insert(5);
        assert!(set.members().eq([5]));
    }

    #[test]
    fn members_are_inserted_and_removed() {
        let mut members = SparseSet::<usize>::default();
        for member in [4, 1, 9, 1] {
            members.set(member, true);
        }
        members.set(4, false);
        members.set(7, false);
        let mut sorted: Vec<usize> = members.iter().collect();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 9]);
        members.set(9, false);
        members.set(4, true);
        assert!(members.contains(1) && members.contains(4) && !members.contains(9));
    }
}
