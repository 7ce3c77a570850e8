//! Unordered sets of indices.

use crate::ids::Ix;
use std::ops::Index;

const BITS: usize = u64::BITS as usize;

/// Set with fast insert, iteration and clear. A bitmap answers membership; a list gives the
/// members.
pub(crate) struct DenseSet<I> {
    words: Vec<Word>,
    /// All members and some removed ones, each once.
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
    marked: u64,
    listed: u64,
}

fn split(member: impl Ix) -> (usize, u64) {
    let at = member.index();
    (at / BITS, 1 << (at % BITS))
}

impl<I: Ix> DenseSet<I> {
    /// Returns true if it was not a member.
    #[inline]
    pub fn insert(&mut self, member: I) -> bool {
        let (word, bit) = split(member);
        if self.words.len() <= word {
            self.grow(word);
        }
        let word = &mut self.words[word];
        if word.marked & bit != 0 {
            return false;
        }
        word.marked |= bit;
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
        let (word, bit) = split(member);
        if let Some(word) = self.words.get_mut(word) {
            word.marked &= !bit;
        }
    }

    pub fn extend(&mut self, all: impl IntoIterator<Item = I>) {
        let all = all.into_iter();
        self.listed.reserve(all.size_hint().0);
        for member in all {
            self.insert(member);
        }
    }

    pub fn contains(&self, member: I) -> bool {
        let (word, bit) = split(member);
        self.words
            .get(word)
            .is_some_and(|word| word.marked & bit != 0)
    }

    pub fn members(&self) -> impl Iterator<Item = I> {
        let all = self.listed.iter().copied();
        all.filter(|member| self.contains(*member))
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

/// Set with fast insert, remove and iteration.
pub(crate) struct MemberSet<I> {
    listed: Vec<I>,
    /// Position in `listed`, by index of the member.
    positions: Vec<Option<u32>>,
}

impl<I> Default for MemberSet<I> {
    fn default() -> Self {
        Self {
            listed: Vec::new(),
            positions: Vec::new(),
        }
    }
}

impl<I: Ix> MemberSet<I> {
    pub fn set(&mut self, member: I, belongs: bool) {
        if !belongs && self.listed.is_empty() {
            return;
        }
        let at = member.index();
        if self.positions.len() <= at {
            self.positions.resize(at + 1, None);
        }
        match self.positions[at] {
            None if belongs => {
                self.positions[at] = u32::try_from(self.listed.len()).ok();
                self.listed.push(member);
            }
            Some(position) if !belongs => {
                self.positions[at] = None;
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
        let mut marks = DenseSet::<usize>::default();
        marks.extend([70, 3, 70, 5]);
        marks.remove(3);
        marks.remove(70);
        marks.remove(1_000);
        marks.insert(70);
        assert!(marks.members().eq([70, 5]));
        assert!(marks[70] && !marks[3] && !marks[1_000]);
        marks.clear();
        assert!(marks.members().next().is_none() && !marks.contains(5));
        marks.insert(5);
        assert!(marks.members().eq([5]));
    }

    #[test]
    fn members_are_inserted_and_removed() {
        let mut members = MemberSet::<usize>::default();
        for at in [4, 1, 9, 1] {
            members.set(at, true);
        }
        members.set(4, false);
        members.set(7, false);
        let mut all: Vec<usize> = members.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [1, 9]);
        members.set(9, false);
        members.set(4, true);
        assert!(members.contains(1) && members.contains(4) && !members.contains(9));
    }
}
