//! Rows that live from round to round. Each round begins with rows that say what follows from the
//! register; so what a round writes is noted, and only that is set right before the next one.

use std::ops::{Index, IndexMut};

const BITS: usize = u64::BITS as usize;

pub(crate) struct Kept<T> {
    rows: Vec<T>,
    /// All rows are of this round, and count as written.
    is_fresh: bool,
    /// Of each so many rows, which are noted. They are as many as the rows ask for.
    notes: Vec<Notes>,
    /// Set right when this round began, or written since; each once.
    stirred: Vec<usize>,
    /// Written since this round began; each once.
    written: Vec<usize>,
    /// What was written, as often as it was.
    journal: Vec<usize>,
}

#[derive(Default, Clone, Copy)]
struct Notes {
    stirred: u64,
    written: u64,
}

fn split(at: usize) -> (usize, u64) {
    (at / BITS, 1 << (at % BITS))
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            is_fresh: true,
            notes: Vec::new(),
            stirred: Vec::new(),
            written: Vec::new(),
            journal: Vec::new(),
        }
    }
}

impl<T> Kept<T> {
    /// All rows anew, in the memory of the old ones.
    pub fn fill(&mut self, rows: impl Iterator<Item = T>) {
        self.is_fresh = true;
        self.rows.clear();
        self.rows.extend(rows);
        self.notes.clear();
        self.stirred.clear();
        self.stirred.extend(0..self.rows.len());
        self.written.clear();
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
        if !std::mem::take(&mut self.is_fresh) {
            for at in self.stirred.drain(..) {
                self.notes[at / BITS] = Notes::default();
            }
            std::mem::swap(&mut self.stirred, &mut self.written);
        }
        self.make_notes(self.rows.len());
        for at in self.stirred.iter().copied() {
            let (word, bit) = split(at);
            self.notes[word].stirred |= bit;
            again(at, &mut self.rows[at], true);
        }
        let mut late: Vec<usize> = Vec::new();
        for at in named {
            if at >= self.rows.len() {
                self.make_notes(at + 1);
            }
            if self.stir(at) {
                match self.rows.get_mut(at) {
                    Some(place) => again(at, place, false),
                    None => late.push(at),
                }
            }
        }
        late.sort_unstable();
        self.rows.extend(late.into_iter().map(fresh));
    }

    fn make_notes(&mut self, rows: usize) {
        let words = rows.div_ceil(BITS);
        if self.notes.len() < words {
            self.notes.resize(words, Notes::default());
        }
    }

    /// True when it was not stirred.
    fn stir(&mut self, at: usize) -> bool {
        let (word, bit) = split(at);
        let notes = &mut self.notes[word];
        let is_new = notes.stirred & bit == 0;
        if is_new {
            notes.stirred |= bit;
            self.stirred.push(at);
        }
        is_new
    }

    fn note_written(&mut self, at: usize) {
        let (word, bit) = split(at);
        self.notes[word].written |= bit;
        self.written.push(at);
        self.stir(at);
    }

    /// Those that may differ from what they were when the last round ended, each once.
    pub fn stirred(&self) -> impl Iterator<Item = usize> {
        self.stirred.iter().copied()
    }

    pub fn is_stirred(&self, at: usize) -> bool {
        let (word, bit) = split(at);
        self.is_fresh || self.notes[word].stirred & bit != 0
    }

    /// Where it says no it is as this round began with it.
    pub fn is_written(&self, at: usize) -> bool {
        let (word, bit) = split(at);
        self.is_fresh || self.notes[word].written & bit != 0
    }

    /// Written in this round.
    pub fn written(&self) -> impl Iterator<Item = usize> {
        let all = if self.is_fresh {
            &self.stirred
        } else {
            &self.written
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
        if !self.is_fresh {
            self.stir(at);
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

impl<T> Index<usize> for Kept<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.rows[at]
    }
}

impl<T> IndexMut<usize> for Kept<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        let (word, bit) = split(at);
        if !self.is_fresh && self.notes[word].written & bit == 0 {
            self.note_written(at);
        }
        self.journal.push(at);
        &mut self.rows[at]
    }
}
