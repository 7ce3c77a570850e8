//! Hole tables: the number of holes by size. A hole is the space on one node, and its size is the
//! number of quanta. Only sizes that occur have an entry.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HoleTable {
    /// Size and number of holes, ascending by size. Neither is ever 0. With few sizes, a scan is
    /// faster than a lookup.
    by_size: Vec<(u64, u64)>,
}

impl HoleTable {
    /// Creates a table from sizes and numbers of holes, ascending by size.
    pub fn from_ascending(holes: impl Iterator<Item = (u64, u64)>) -> Self {
        // Holes that are filled in part add other sizes.
        let mut by_size = Vec::with_capacity(2 * holes.size_hint().0);
        by_size.extend(holes.filter(|(size, count)| size * count > 0));
        Self { by_size }
    }

    /// Returns the index of this size, or the index for its insertion.
    fn position(&self, size: u64) -> usize {
        self.by_size.partition_point(|(other, _)| *other < size)
    }

    /// Returns the holes of at least this size.
    fn at_least(&self, size: u64) -> &[(u64, u64)] {
        &self.by_size[self.position(size)..]
    }

    pub fn add(&mut self, size: u64, count: u64) {
        if size == 0 || count == 0 {
            return;
        }
        let position = self.position(size);
        match self.by_size.get_mut(position) {
            Some((known_size, known_count)) if *known_size == size => *known_count += count,
            _ => self.by_size.insert(position, (size, count)),
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (size, count) in &other.by_size {
            self.add(*size, *count);
        }
    }

    /// Returns true if the table has exactly these holes: size and number, ascending by size.
    pub fn equals_holes(&self, holes: impl Iterator<Item = (u64, u64)>) -> bool {
        self.by_size.iter().copied().eq(holes)
    }

    pub fn contains(&self, size: u64) -> bool {
        self.count(size) > 0
    }

    /// Returns the number of holes of exactly this size.
    pub fn count(&self, size: u64) -> u64 {
        let first = self.at_least(size).first();
        first
            .filter(|(known_size, _)| *known_size == size)
            .map_or(0, |(_, count)| *count)
    }

    /// Returns the sum of all free quanta.
    pub fn total_quanta(&self) -> u64 {
        self.by_size.iter().map(|(size, count)| size * count).sum()
    }

    /// Returns how many processes of this many quanta still fit.
    pub fn count_processes(&self, quanta: u64) -> u64 {
        let holes = self.at_least(quanta).iter();
        holes.map(|(size, count)| size / quanta * count).sum()
    }

    pub fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |(size, _)| *size)
    }

    /// Removes one hole of exactly this size. Returns false if there is none.
    pub fn remove(&mut self, size: u64) -> bool {
        self.remove_up_to(size, 1) == 1
    }

    /// Removes up to `count` holes of exactly this size. Returns how many were removed.
    pub fn remove_up_to(&mut self, size: u64, count: u64) -> u64 {
        let index = self.position(size);
        let entry = self.by_size.get(index);
        match entry.filter(|(known_size, _)| *known_size == size) {
            Some(_) => self.remove_at(index, count),
            None => 0,
        }
    }

    /// Removes up to `count` holes of the size at this index. Returns how many were removed.
    fn remove_at(&mut self, index: usize, count: u64) -> u64 {
        let (_, known_count) = &mut self.by_size[index];
        let removed = count.min(*known_count);
        *known_count -= removed;
        if *known_count == 0 {
            self.by_size.remove(index);
        }
        removed
    }

    /// Fills holes with `count` processes of this many quanta. Holes that are exact multiples are
    /// filled first.
    pub fn fill_exact_first(&mut self, count: u64, quanta: u64) {
        let mut left = count;
        let mut index = self.position(quanta);
        while left > 0 && index < self.by_size.len() {
            if self.by_size[index].0.is_multiple_of(quanta) {
                // If processes are left after this, no hole of this size is left, and the next size
                // is at the same index.
                left -= self.fill_at(index, left, quanta);
            } else {
                index += 1;
            }
        }
        self.fill_smallest_first(left, quanta);
    }

    /// Fills the smallest holes that fit with processes. Returns how many did not fit.
    pub fn fill_smallest_first(&mut self, count: u64, quanta: u64) -> u64 {
        let mut left = count;
        while left > 0 {
            let index = self.position(quanta);
            if index == self.by_size.len() {
                break;
            }
            left -= self.fill_at(index, left, quanta);
        }
        left
    }

    /// Fills holes of the size at this index, one after the other, with up to `count` processes.
    /// Returns how many processes fit.
    fn fill_at(&mut self, index: usize, count: u64, quanta: u64) -> u64 {
        let (size, known_count) = self.by_size[index];
        if size == quanta {
            return self.remove_at(index, count);
        }
        let per_hole = size / quanta;
        let filled = (count / per_hole).min(known_count);
        // Processes that fill one more hole only in part.
        let partial = if filled < known_count {
            count % per_hole
        } else {
            0
        };
        self.remove_at(index, filled + u64::from(partial > 0));
        self.add(size - per_hole * quanta, filled);
        if partial > 0 {
            self.add(size - partial * quanta, 1);
        }
        filled * per_hole + partial
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holes(sizes: &[u64]) -> HoleTable {
        let mut holes = HoleTable::default();
        for size in sizes {
            holes.add(*size, 1);
        }
        holes
    }

    #[test]
    fn a_table_counts_the_processes_that_fit() {
        let table = holes(&[5, 5, 5]);
        let fits: Vec<u64> = (1..=6)
            .map(|quanta| table.count_processes(quanta))
            .collect();
        assert_eq!(fits, [15, 6, 3, 3, 3, 0]);
    }

    #[test]
    fn processes_fill_exact_multiples_first() {
        let mut table = holes(&[3, 4, 5]);
        table.fill_exact_first(1, 2);
        assert_eq!(table, holes(&[3, 2, 5]));
        table.fill_exact_first(2, 2);
        assert_eq!(table, holes(&[1, 5]));
    }

    #[test]
    fn at_most_one_hole_is_filled_in_part() {
        let mut table = holes(&[6, 6, 6]);
        table.fill_exact_first(4, 2);
        assert_eq!(table, holes(&[4, 6]));
    }

    proptest! {
        #[test]
        fn filling_one_by_one_equals_filling_at_once(
            sizes in prop::collection::vec(1..40_u64, 0..12),
            quanta in 1..9_u64,
            counts in prop::collection::vec(0..6_u64, 0..6),
        ) {
            let (mut one_by_one, mut at_once) = (holes(&sizes), holes(&sizes));
            for count in &counts {
                let fitting = one_by_one.count_processes(quanta);
                let exact = one_by_one.count(quanta);
                one_by_one.fill_exact_first(*count, quanta);
                prop_assert_eq!(one_by_one.count_processes(quanta), fitting.saturating_sub(*count));
                if *count <= exact {
                    prop_assert_eq!(one_by_one.count(quanta), exact - count);
                }
            }
            at_once.fill_exact_first(counts.iter().sum(), quanta);
            prop_assert_eq!(one_by_one, at_once);
        }
    }

    #[test]
    fn processes_fill_the_smallest_hole_that_fits() {
        let mut table = holes(&[2, 5, 7]);
        assert_eq!(table.fill_smallest_first(3, 3), 0);
        assert_eq!(table, holes(&[2, 2, 1]));
        assert_eq!(table.fill_smallest_first(1, 3), 1);
    }
}
