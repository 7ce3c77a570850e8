//! Sets of small numbers.

/// Cheap to fill, to walk over and to empty.
#[derive(Default)]
pub(crate) struct Marks {
    is_marked: Vec<bool>,
    /// All that are marked, and some that were; some of them twice.
    listed: Vec<usize>,
}

impl Marks {
    pub fn insert(&mut self, at: usize) {
        if self.is_marked.len() <= at {
            self.is_marked.resize(at + 1, false);
        }
        if !self.is_marked[at] {
            self.is_marked[at] = true;
            self.listed.push(at);
        }
    }

    pub fn remove(&mut self, at: usize) {
        if let Some(mark) = self.is_marked.get_mut(at) {
            *mark = false;
        }
    }

    pub fn extend(&mut self, all: impl IntoIterator<Item = usize>) {
        for at in all {
            self.insert(at);
        }
    }

    pub fn contains(&self, at: usize) -> bool {
        self.is_marked.get(at).copied().unwrap_or(false)
    }

    pub fn listed(&self) -> impl Iterator<Item = usize> {
        let all = self.listed.iter().copied();
        all.filter(|at| self.is_marked[*at])
    }

    pub fn clear(&mut self) {
        for at in self.listed.drain(..) {
            self.is_marked[at] = false;
        }
    }
}

/// Cheap to ask.
#[derive(Default)]
pub(crate) struct Flags {
    is_set: Vec<bool>,
}

impl Flags {
    pub fn set(&mut self, at: usize, belongs: bool) {
        if self.is_set.len() <= at {
            self.is_set.resize(at + 1, false);
        }
        self.is_set[at] = belongs;
    }

    pub fn contains(&self, at: usize) -> bool {
        self.is_set.get(at).copied().unwrap_or(false)
    }
}
