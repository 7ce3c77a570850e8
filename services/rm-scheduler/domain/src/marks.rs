//! Sets of small numbers.

use std::ops::Index;

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

impl Index<usize> for Marks {
    type Output = bool;

    fn index(&self, at: usize) -> &bool {
        self.is_marked.get(at).unwrap_or(&false)
    }
}

/// Cheap to fill, to take from and to walk over; in no order.
#[derive(Default)]
pub(crate) struct Members {
    listed: Vec<usize>,
    /// Where each is listed.
    place: Vec<Option<u32>>,
}

impl Members {
    pub fn set(&mut self, at: usize, belongs: bool) {
        if self.place.len() <= at {
            self.place.resize(at + 1, None);
        }
        match self.place[at] {
            None if belongs => {
                self.place[at] = u32::try_from(self.listed.len()).ok();
                self.listed.push(at);
            }
            Some(place) if !belongs => {
                self.place[at] = None;
                self.listed.swap_remove(place as usize);
                if let Some(moved) = self.listed.get(place as usize) {
                    self.place[*moved] = Some(place);
                }
            }
            _ => {}
        }
    }

    pub fn contains(&self, at: usize) -> bool {
        self.place.get(at).is_some_and(Option::is_some)
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.listed.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go() {
        let mut members = Members::default();
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
