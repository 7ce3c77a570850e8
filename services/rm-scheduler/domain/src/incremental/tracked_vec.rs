//! A `Vec` that is retained from round to round and tracks which rows were written, so that the
//! next round resets only those.
//!
//! A row is touched if this round wrote it. A row is dirty if it may differ from the end of the
//! last round: it was reset at the start of this round, or touched since.

use crate::ids::Ix;
use std::ops::{Index, IndexMut};

const BITS: usize = u64::BITS as usize;

pub(crate) struct TrackedVec<I, T> {
    rows: Vec<T>,
    /// True after a rebuild: all rows count as touched.
    all_touched: bool,
    /// Dirty and touched bits of the rows, 64 rows in each item.
    flag_words: Vec<FlagWord>,
    /// Rows that were reset at the start of this round or touched since, each once.
    dirty: Vec<I>,
    /// Rows touched in this round, each once.
    touched: Vec<I>,
    /// Row of each write of this round, in the order of the writes.
    journal: Vec<I>,
}

#[derive(Default, Clone, Copy)]
struct FlagWord {
    dirty: u64,
    touched: u64,
}

fn word_and_bit(row: impl Ix) -> (usize, u64) {
    let index = row.index();
    (index / BITS, 1 << (index % BITS))
}

impl<I, T> Default for TrackedVec<I, T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            all_touched: true,
            flag_words: Vec::new(),
            dirty: Vec::new(),
            touched: Vec::new(),
            journal: Vec::new(),
        }
    }
}

impl<I: Ix, T> TrackedVec<I, T> {
    /// Replaces all rows.
    pub fn fill(&mut self, rows: impl Iterator<Item = T>) {
        self.all_touched = true;
        self.rows.clear();
        self.rows.extend(rows);
        self.flag_words.clear();
        self.dirty.clear();
        self.dirty.extend((0..self.rows.len()).map(I::new));
        self.touched.clear();
        self.journal.clear();
    }

    /// Starts a round: resets the rows touched in the last round, and the `changed` rows.
    /// `reset_row` resets a row in place. Its last argument is true if the row was touched in the
    /// last round. `new_row` makes rows for indices beyond the last row.
    pub fn start_round(
        &mut self,
        changed: impl Iterator<Item = I>,
        new_row: impl Fn(I) -> T,
        reset_row: impl Fn(I, &mut T, bool),
    ) {
        self.journal.clear();
        if !std::mem::take(&mut self.all_touched) {
            for row in self.dirty.drain(..) {
                self.flag_words[row.index() / BITS] = FlagWord::default();
            }
            std::mem::swap(&mut self.dirty, &mut self.touched);
        }
        self.resize_flag_words(self.rows.len());
        for row in self.dirty.iter().copied() {
            let (word, bit) = word_and_bit(row);
            self.flag_words[word].dirty |= bit;
            reset_row(row, &mut self.rows[row.index()], true);
        }
        let mut appended: Vec<I> = Vec::new();
        for row in changed {
            if row.index() >= self.rows.len() {
                self.resize_flag_words(row.index() + 1);
            }
            if self.mark_dirty(row) {
                match self.rows.get_mut(row.index()) {
                    Some(value) => reset_row(row, value, false),
                    None => appended.push(row),
                }
            }
        }
        appended.sort_unstable();
        self.rows.extend(appended.into_iter().map(new_row));
    }

    fn resize_flag_words(&mut self, rows: usize) {
        let words = rows.div_ceil(BITS);
        if self.flag_words.len() < words {
            self.flag_words.resize(words, FlagWord::default());
        }
    }

    /// Marks a row as dirty. Returns true if it was not dirty before.
    fn mark_dirty(&mut self, row: I) -> bool {
        let (word, bit) = word_and_bit(row);
        let flags = &mut self.flag_words[word];
        let is_new = flags.dirty & bit == 0;
        if is_new {
            flags.dirty |= bit;
            self.dirty.push(row);
        }
        is_new
    }

    fn mark_touched(&mut self, row: I) {
        let (word, bit) = word_and_bit(row);
        self.flag_words[word].touched |= bit;
        self.touched.push(row);
        self.mark_dirty(row);
    }

    /// Returns the rows that may differ from the end of the last round, each once.
    pub fn dirty(&self) -> impl Iterator<Item = I> {
        self.dirty.iter().copied()
    }

    pub fn is_dirty(&self, row: I) -> bool {
        let (word, bit) = word_and_bit(row);
        self.all_touched || self.flag_words[word].dirty & bit != 0
    }

    /// Returns false if the row is unchanged since this round started.
    pub fn is_touched(&self, row: I) -> bool {
        let (word, bit) = word_and_bit(row);
        self.all_touched || self.flag_words[word].touched & bit != 0
    }

    /// Returns the rows written in this round.
    pub fn touched(&self) -> impl Iterator<Item = I> {
        let all = if self.all_touched {
            &self.dirty
        } else {
            &self.touched
        };
        all.iter().copied()
    }

    /// Returns the current position in the journal of this round.
    pub fn journal_position(&self) -> usize {
        self.journal.len()
    }

    /// Returns the rows written since this position in the journal, some more than once. Rows of a
    /// rebuild are not included.
    pub fn written_since(&self, position: usize) -> impl Iterator<Item = I> {
        // Consecutive writes to one row are merged.
        let runs = self.journal[position..].chunk_by(|one, other| one == other);
        runs.map(|run| run[0])
    }

    /// Returns a row for writing and marks it dirty, but not touched. The written value stays valid
    /// in the next round, so the row needs no reset.
    pub fn get_mut_untouched(&mut self, row: I) -> &mut T {
        if !self.all_touched {
            self.mark_dirty(row);
        }
        &mut self.rows[row.index()]
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the indices of all rows in ascending order.
    pub fn indices(
        &self,
    ) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + Clone + use<I, T> {
        (0..self.rows.len()).map(I::new)
    }

    /// Returns the rows with their indices in ascending order.
    pub fn enumerate(&self) -> impl Iterator<Item = (I, &T)> {
        self.indices().zip(&self.rows)
    }
}

impl<I: Ix, T> Index<I> for TrackedVec<I, T> {
    type Output = T;

    fn index(&self, row: I) -> &T {
        &self.rows[row.index()]
    }
}

impl<I: Ix, T> IndexMut<I> for TrackedVec<I, T> {
    #[inline]
    fn index_mut(&mut self, row: I) -> &mut T {
        let (word, bit) = word_and_bit(row);
        if !self.all_touched && self.flag_words[word].touched & bit == 0 {
            self.mark_touched(row);
        }
        self.journal.push(row);
        &mut self.rows[row.index()]
    }
}
