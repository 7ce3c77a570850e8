//! Number of processes by size, for demand and grants.

use super::hole_table::HoleTable;

/// Number of processes by size, as a sorted list. With few sizes, a list is faster to scan, compare
/// and copy than a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounts {
    /// Quanta and number of processes, ascending by quanta. The number is never 0.
    by_quanta: Vec<(u64, u64)>,
}

impl ProcessCounts {
    /// Creates an empty list with capacity for this many sizes.
    pub fn with_capacity(sizes: usize) -> Self {
        let by_quanta = Vec::with_capacity(sizes);
        Self { by_quanta }
    }

    pub fn add(&mut self, quanta: u64, count: u64) {
        if count == 0 {
            return;
        }
        let position = self.by_quanta.partition_point(|(other, _)| *other < quanta);
        self.add_at(position, quanta, count);
    }

    /// Adds processes of one size. `position` is the index of the size. If the size is new, it is
    /// inserted at this index.
    fn add_at(&mut self, position: usize, quanta: u64, count: u64) {
        match self.by_quanta.get_mut(position) {
            Some((known_quanta, sum)) if *known_quanta == quanta => {
                *sum = sum.saturating_add(count);
            }
            _ => self.by_quanta.insert(position, (quanta, count)),
        }
    }

    /// Adds a size that is larger than all others.
    pub fn push(&mut self, quanta: u64, count: u64) {
        if count > 0 {
            self.by_quanta.push((quanta, count));
        }
    }

    /// Adds all processes of the other list.
    pub fn merge(&mut self, other: &Self) {
        let mut position = 0;
        for (quanta, count) in other.iter() {
            while self
                .by_quanta
                .get(position)
                .is_some_and(|(known_quanta, _)| *known_quanta < quanta)
            {
                position += 1;
            }
            self.add_at(position, quanta, count);
            position += 1;
        }
    }

    /// Removes all sizes and keeps the capacity.
    pub fn clear(&mut self) {
        self.by_quanta.clear();
    }

    /// Returns the number of sizes.
    pub fn size_count(&self) -> usize {
        self.by_quanta.len()
    }

    /// Returns quanta and number of processes, ascending by quanta.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.by_quanta.iter().copied()
    }

    pub fn total_quanta(&self) -> u64 {
        self.iter().map(|(quanta, count)| quanta * count).sum()
    }

    /// Returns the processes as holes, one for each process. The grant of a class is divided among
    /// its users this way, and the grant of a user among its work.
    pub fn as_holes(&self) -> HoleTable {
        HoleTable::from_ascending(self.iter())
    }
}
