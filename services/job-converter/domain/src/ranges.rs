//! A set of numbers stored as ranges, so that ten million waiting tasks are one entry.
//!
//! Invariants: ranges are not empty and do not touch each other, and `count` is the sum of their
//! lengths.

use std::collections::BTreeMap;

/// Map from the first number of a range to one past its last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    spans: BTreeMap<u64, u64>,
    count: u64,
}

impl Ranges {
    /// Returns the set of all numbers below `end`.
    pub fn below(end: u64) -> Self {
        let mut ranges = Self::default();
        ranges.insert_span(0, end);
        ranges
    }

    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn contains(&self, number: u64) -> bool {
        self.span_of(number).is_some()
    }

    /// Returns the range that contains a number.
    fn span_of(&self, number: u64) -> Option<(u64, u64)> {
        let (start, end) = self.spans.range(..=number).next_back()?;
        (number < *end).then_some((*start, *end))
    }

    /// Adds a number. Returns false if it was present.
    pub fn insert(&mut self, number: u64) -> bool {
        !self.contains(number) && {
            self.insert_span(number, number + 1);
            true
        }
    }

    /// Adds `start..end`, which may overlap existing ranges.
    pub fn insert_span(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut merged_start, mut merged_end) = (start, end);
        // Merges ranges that overlap or touch. They start at or before `merged_end`. The last one
        // that starts before `merged_start` may reach into it.
        while let Some((first, last)) = self
            .spans
            .range(..=merged_end)
            .next_back()
            .map(|(first, last)| (*first, *last))
        {
            if last < merged_start {
                break;
            }
            self.spans.remove(&first);
            self.count -= last - first;
            merged_start = merged_start.min(first);
            merged_end = merged_end.max(last);
        }
        self.spans.insert(merged_start, merged_end);
        self.count += merged_end - merged_start;
    }

    /// Removes a number. Returns false if it was absent.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some((start, end)) = self.span_of(number) else {
            return false;
        };
        self.spans.remove(&start);
        if start < number {
            self.spans.insert(start, number);
        }
        if number + 1 < end {
            self.spans.insert(number + 1, end);
        }
        self.count -= 1;
        true
    }

    /// Removes and returns the smallest numbers, at most `limit`.
    pub fn take_first(&mut self, limit: usize) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(limit.min(1024));
        while numbers.len() < limit {
            let Some((start, end)) = self.spans.pop_first() else {
                break;
            };
            let headroom = (limit - numbers.len()) as u64;
            let stop = end.min(start.saturating_add(headroom));
            numbers.extend(start..stop);
            if stop < end {
                self.spans.insert(stop, end);
            }
            self.count -= stop - start;
        }
        numbers
    }

    /// Returns the ranges in order, each as its first number and one past its last.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> {
        self.spans.iter().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64),
        Span(u64, u64),
        Remove(u64),
        Take(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..40_u64).prop_map(Step::Insert),
            (0..40_u64, 0..12_u64).prop_map(|(start, len)| Step::Span(start, start + len)),
            (0..40_u64).prop_map(Step::Remove),
            (0..6_usize).prop_map(Step::Take),
        ]
    }

    proptest! {
        #[test]
        fn ranges_behave_like_a_set(steps in prop::collection::vec(step(), 0..80)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(n) => prop_assert_eq!(ranges.insert(n), set.insert(n)),
                    Step::Span(a, b) => {
                        ranges.insert_span(a, b);
                        set.extend(a..b);
                    }
                    Step::Remove(n) => prop_assert_eq!(ranges.remove(n), set.remove(&n)),
                    Step::Take(n) => {
                        let mut first = Vec::new();
                        while first.len() < n && let Some(number) = set.pop_first() {
                            first.push(number);
                        }
                        prop_assert_eq!(ranges.take_first(n), first);
                    }
                }
                prop_assert_eq!(ranges.len(), set.len() as u64);
                let all: Vec<u64> = ranges.spans().flat_map(|(a, b)| a..b).collect();
                prop_assert!(all.iter().eq(set.iter()));
                let spans: Vec<_> = ranges.spans().collect();
                prop_assert!(spans.windows(2).all(|two| two[0].1 < two[1].0), "spans touch");
            }
        }
    }

    #[test]
    fn ten_million_numbers_are_one_range() {
        let mut ranges = Ranges::below(10_000_000);
        assert_eq!(ranges.take_first(2), [0, 1]);
        assert_eq!((ranges.spans().count(), ranges.len()), (1, 9_999_998));
    }
}
