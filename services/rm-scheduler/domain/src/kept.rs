//! Rows that live from round to round. Each round begins with rows that say what follows from the
//! register; so what a round writes is noted, and only that is set right before the next one.

use std::ops::{Index, IndexMut};

use crate::marks::Marks;

pub(crate) struct Kept<T> {
    rows: Vec<T>,
    /// All rows are of this round, and count as written.
    is_fresh: bool,
    /// Set right when this round began.
    renewed: Marks,
    /// Written since.
    written: Marks,
    /// What was written, as often as it was.
    journal: Vec<usize>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            is_fresh: true,
            renewed: Marks::default(),
            written: Marks::default(),
            journal: Vec::new(),
        }
    }
}

impl<T> Kept<T> {
    /// All rows anew, in the memory of the old ones.
    pub fn fill(&mut self, rows: impl Iterator<Item = T>) {
        self.is_fresh = true;
        self.renewed.clear();
        self.written.clear();
        self.journal.clear();
        self.rows.clear();
        self.rows.extend(rows);
    }

    /// Sets right what the last round wrote, and what is named: `again` does so in place, and is
    /// told whether the row was written; what is named alone is as the last round began with it.
    pub fn renew(
        &mut self,
        named: impl Iterator<Item = usize>,
        fresh: impl Fn(usize) -> T,
        again: impl Fn(usize, &mut T, bool),
    ) {
        self.renewed.clear();
        self.journal.clear();
        std::mem::swap(&mut self.renewed, &mut self.written);
        if std::mem::take(&mut self.is_fresh) {
            self.renewed.extend(0..self.rows.len());
        }
        for at in self.renewed.listed() {
            again(at, &mut self.rows[at], true);
        }
        let mut late: Vec<usize> = Vec::new();
        for at in named.filter(|at| self.renewed.insert(*at)) {
            match self.rows.get_mut(at) {
                Some(place) => again(at, place, false),
                None => late.push(at),
            }
        }
        late.sort_unstable();
        self.rows.extend(late.into_iter().map(fresh));
    }

    /// Those that may differ from what they were when the last round ended, each once.
    pub fn stirred(&self) -> impl Iterator<Item = usize> {
        let renewed = self.renewed.listed();
        renewed.chain(self.written().filter(|at| !self.renewed.contains(*at)))
    }

    pub fn is_stirred(&self, at: usize) -> bool {
        self.is_fresh || self.renewed.contains(at) || self.written.contains(at)
    }

    /// Written in this round.
    pub fn written(&self) -> impl Iterator<Item = usize> {
        let all = if self.is_fresh { self.rows.len() } else { 0 };
        (0..all).chain(self.written.listed())
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
            self.renewed.insert(at);
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
    fn index_mut(&mut self, at: usize) -> &mut T {
        if !self.is_fresh {
            self.written.insert(at);
        }
        self.journal.push(at);
        &mut self.rows[at]
    }
}
