//! Hole tables: the number of nodes by free quanta. Only sizes that occur have an entry, so
//! a table supports processes of any size.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HoleTable {
    /// Size and number of holes, ascending by size. Neither is ever 0. With few sizes, a scan is
    /// faster than a lookup.
    by_size: Vec<(u64, u64)>,
}

impl HoleTable {
    /// Creates a table from sizes and numbers of holes, ascending by size.
    pub fn ascending(holes: impl Iterator<Item = (u64, u64)>) -> Self {
        // Holes that are filled in part add other sizes.
        let mut by_size = Vec::with_capacity(2 * holes.size_hint().0);
        by_size.extend(holes.filter(|(size, count)| size * count > 0));
        Self { by_size }
    }

    /// Returns the index of this size, or the index for its insertion.
    fn position(&self, size: u64) -> usize {
        self.by_size.partition_point(|(other, _)| *other < size)
    }

    fn at_least(&self, size: u64) -> &[(u64, u64)] {
        &self.by_size[self.position(size)..]
    }

    pub fn add(&mut self, size: u64, count: u64) {
        if size == 0 || count == 0 {
            return;
        }
        let position = self.position(size);
        match self.by_size.get_mut(position) {
            Some((there, known)) if *there == size => *known += count,
            _ => self.by_size.insert(position, (size, count)),
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (size, count) in &other.by_size {
            self.add(*size, *count);
        }
    }

    /// Returns true if these are exactly the holes of the table. They must be ascending by size.
    pub fn equals(&self, others: impl Iterator<Item = (u64, u64)>) -> bool {
        self.by_size.iter().copied().eq(others)
    }

    pub fn has(&self, size: u64) -> bool {
        self.count(size) > 0
    }

    /// Returns the number of holes of exactly this size.
    pub fn count(&self, size: u64) -> u64 {
        let first = self.at_least(size).first();
        first
            .filter(|(there, _)| *there == size)
            .map_or(0, |(_, count)| *count)
    }

    /// Returns the sum of all free quanta.
    pub fn quanta(&self) -> u64 {
        self.by_size.iter().map(|(size, count)| size * count).sum()
    }

    /// Returns how many processes of this many quanta still fit.
    pub fn processes(&self, quanta: u64) -> u64 {
        let holes = self.at_least(quanta).iter();
        holes.map(|(size, count)| size / quanta * count).sum()
    }

    pub fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |(size, _)| *size)
    }

    /// Removes one hole of exactly this size. Returns false if there is none.
    pub fn remove(&mut self, size: u64) -> bool {
        self.drop_holes(size, 1) == 1
    }

    /// Removes up to `count` holes of exactly this size. Returns how many were removed.
    pub fn drop_holes(&mut self, size: u64, count: u64) -> u64 {
        let at = self.position(size);
        let there = self.by_size.get(at);
        match there.filter(|(there, _)| *there == size) {
            Some(_) => self.drop_at(at, count),
            None => 0,
        }
    }

    /// Does the same for the size at this index.
    fn drop_at(&mut self, at: usize, count: u64) -> u64 {
        let (_, there) = &mut self.by_size[at];
        let gone = count.min(*there);
        *there -= gone;
        if *there == 0 {
            self.by_size.remove(at);
        }
        gone
    }

    /// Removes `count` processes of this many quanta, from exact multiples first.
    pub fn take(&mut self, count: u64, quanta: u64) {
        let mut left = count;
        // The rest of a multiple is a smaller multiple, so newly added sizes need no second visit.
        let mut at = self.position(quanta);
        while left > 0 && at < self.by_size.len() {
            if self.by_size[at].0.is_multiple_of(quanta) {
                // If processes are left, no hole of this size is left.
                left -= self.fill(at, left, quanta);
            } else {
                at += 1;
            }
        }
        self.count_out(left, quanta);
    }

    /// Removes processes from the smallest holes that fit. Returns how many did not fit.
    pub fn count_out(&mut self, count: u64, quanta: u64) -> u64 {
        let mut left = count;
        while left > 0 {
            let at = self.position(quanta);
            if at == self.by_size.len() {
                break;
            }
            left -= self.fill(at, left, quanta);
        }
        left
    }

    /// Fills holes of the size at this index one after the other. Returns how many processes fit.
    fn fill(&mut self, at: usize, count: u64, quanta: u64) -> u64 {
        let (size, there) = self.by_size[at];
        if size == quanta {
            return self.drop_at(at, count);
        }
        let each = size / quanta;
        let filled = (count / each).min(there);
        let part = if filled < there { count % each } else { 0 };
        self.drop_at(at, filled + u64::from(part > 0));
        self.add(size - each * quanta, filled);
        if part > 0 {
            self.add(size - part * quanta, 1);
        }
        filled * each + part
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
        let fits: Vec<u64> = (1..=6).map(|quanta| table.processes(quanta)).collect();
        assert_eq!(fits, [15, 6, 3, 3, 3, 0]);
    }

    #[test]
    fn taking_uses_exact_multiples_first() {
        let mut table = holes(&[3, 4, 5]);
        table.take(1, 2);
        assert_eq!(table, holes(&[3, 2, 5]));
        table.take(2, 2);
        assert_eq!(table, holes(&[1, 5]));
    }

    #[test]
    fn taking_returns_whole_holes_and_at_most_one_part() {
        let mut table = holes(&[6, 6, 6]);
        table.take(4, 2);
        assert_eq!(table, holes(&[4, 6]));
    }

    proptest! {
        #[test]
        fn taking_one_by_one_equals_taking_at_once(
            sizes in prop::collection::vec(1..40_u64, 0..12),
            quanta in 1..9_u64,
            counts in prop::collection::vec(0..6_u64, 0..6),
        ) {
            let (mut each, mut all) = (holes(&sizes), holes(&sizes));
            for count in &counts {
                let (there, exact) = (each.processes(quanta), each.count(quanta));
                each.take(*count, quanta);
                prop_assert_eq!(each.processes(quanta), there.saturating_sub(*count));
                if *count <= exact {
                    prop_assert_eq!(each.count(quanta), exact - count);
                }
            }
            all.take(counts.iter().sum(), quanta);
            prop_assert_eq!(each, all);
        }
    }

    #[test]
    fn counting_out_drains_the_smallest_hole_that_fits() {
        let mut table = holes(&[2, 5, 7]);
        assert_eq!(table.count_out(3, 3), 0);
        assert_eq!(table, holes(&[2, 2, 1]));
        assert_eq!(table.count_out(1, 3), 1);
    }
}
