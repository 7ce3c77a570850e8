//! Rows that live from round to round. Each round begins with rows that say what follows from the
//! register; so what a round writes is noted, and only that is set right before the next one.

use std::ops::{Index, IndexMut};

const BITS: usize = u64::BITS as usize;

pub(crate) struct TrackedVec<T> {
    rows: Vec<T>,
    /// All rows are of this round, and count as written.
    all_touched: bool,
    /// Of each so many rows, which are noted. They are as many as the rows ask for.
    dirty_words: Vec<DirtyWord>,
    /// Set right when this round began, or written since; each once.
    dirty: Vec<usize>,
    /// Written since this round began; each once.
    touched: Vec<usize>,
    /// What was written, as often as it was.
    journal: Vec<usize>,
}

#[derive(Default, Clone, Copy)]
struct DirtyWord {
    dirty: u64,
    touched: u64,
}

fn split(at: usize) -> (usize, u64) {
    (at / BITS, 1 << (at % BITS))
}

impl<T> Default for TrackedVec<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            all_touched: true,
            dirty_words: Vec::new(),
            dirty: Vec::new(),
            touched: Vec::new(),
            journal: Vec::new(),
        }
    }
}

impl<T> TrackedVec<T> {
    /// All rows anew, in the memory of the old ones.
    pub fn fill(&mut self, rows: impl Iterator<Item = T>) {
        self.all_touched = true;
        self.rows.clear();
        self.rows.extend(rows);
        self.dirty_words.clear();
        self.dirty.clear();
        self.dirty.extend(0..self.rows.len());
        self.touched.clear();
        self.journal.clear();
    }

    /// Sets right what the last round wrote, and what is named: `again` does so in place, and is
    /// told whether the row was written; what is named alone is as the last round began with it.
    pub fn renew(
        &mut self,
        named: impl Iterator<Item = usize>,
        fresh: impl Fn(usize) -> T,
        again: impl Fn(usize, &mut T, bool),
    ) {
        self.journal.clear();
        if !std::mem::take(&mut self.all_touched) {
            for at in self.dirty.drain(..) {
                self.dirty_words[at / BITS] = DirtyWord::default();
            }
            std::mem::swap(&mut self.dirty, &mut self.touched);
        }
        self.resize_dirty_words(self.rows.len());
        for at in self.dirty.iter().copied() {
            let (word, bit) = split(at);
            self.dirty_words[word].dirty |= bit;
            again(at, &mut self.rows[at], true);
        }
        let mut late: Vec<usize> = Vec::new();
        for at in named {
            if at >= self.rows.len() {
                self.resize_dirty_words(at + 1);
            }
            if self.mark_dirty(at) {
                match self.rows.get_mut(at) {
                    Some(place) => again(at, place, false),
                    None => late.push(at),
                }
            }
        }
        late.sort_unstable();
        self.rows.extend(late.into_iter().map(fresh));
    }

    fn resize_dirty_words(&mut self, rows: usize) {
        let words = rows.div_ceil(BITS);
        if self.dirty_words.len() < words {
            self.dirty_words.resize(words, DirtyWord::default());
        }
    }

    /// True when it was not stirred.
    fn mark_dirty(&mut self, at: usize) -> bool {
        let (word, bit) = split(at);
        let notes = &mut self.dirty_words[word];
        let is_new = notes.dirty & bit == 0;
        if is_new {
            notes.dirty |= bit;
            self.dirty.push(at);
        }
        is_new
    }

    fn note_touched(&mut self, at: usize) {
        let (word, bit) = split(at);
        self.dirty_words[word].touched |= bit;
        self.touched.push(at);
        self.mark_dirty(at);
    }

    /// Those that may differ from what they were when the last round ended, each once.
    pub fn dirty_rows(&self) -> impl Iterator<Item = usize> {
        self.dirty.iter().copied()
    }

    pub fn is_dirty(&self, at: usize) -> bool {
        let (word, bit) = split(at);
        self.all_touched || self.dirty_words[word].dirty & bit != 0
    }

    /// Where it says no it is as this round began with it.
    pub fn is_touched(&self, at: usize) -> bool {
        let (word, bit) = split(at);
        self.all_touched || self.dirty_words[word].touched & bit != 0
    }

    /// Written in this round.
    pub fn touched_rows(&self) -> impl Iterator<Item = usize> {
        let all = if self.all_touched {
            &self.dirty
        } else {
            &self.touched
        };
        all.iter().copied()
    }

    /// The place in this round's writing. Of another round it means nothing.
    pub fn now(&self) -> usize {
        self.journal.len()
    }

    /// Written in this round since `then`, some of it more than once. Other than for
    /// [`Kept::written`], rows that are fresh do not count as written.
    pub fn since(&self, then: usize) -> impl Iterator<Item = usize> {
        // Whoever writes a row mostly writes it some times in a row.
        let runs = self.journal[then..].chunk_by(|one, other| one == other);
        runs.map(|run| run[0])
    }

    /// For what is right for the next round as well.
    pub fn settle(&mut self, at: usize) -> &mut T {
        if !self.all_touched {
            self.mark_dirty(at);
        }
        &mut self.rows[at]
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.rows.iter()
    }
}

impl<T> Index<usize> for TrackedVec<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.rows[at]
    }
}

impl<T> IndexMut<usize> for TrackedVec<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        let (word, bit) = split(at);
        if !self.all_touched && self.dirty_words[word].touched & bit == 0 {
            self.note_touched(at);
        }
        self.journal.push(at);
        &mut self.rows[at]
    }
}
