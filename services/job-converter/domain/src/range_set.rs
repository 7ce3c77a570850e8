//! A set of numbers stored as ranges. Ten million waiting tasks are one range.
//!
//! Invariants: ranges are not empty and do not touch each other, and `count` is the sum of their
//! lengths.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// End of each range by its start. The end is one past the last number.
    spans: BTreeMap<u64, u64>,
    /// Number of numbers in the set.
    count: u64,
}

impl RangeSet {
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
        // Merges every existing range that overlaps or touches the new one. The search goes from
        // the last range that starts at or before `merged_end` downwards, until a range ends too
        // early.
        while let Some((old_start, old_end)) = self
            .spans
            .range(..=merged_end)
            .next_back()
            .map(|(start, end)| (*start, *end))
        {
            if old_end < merged_start {
                break;
            }
            self.spans.remove(&old_start);
            self.count -= old_end - old_start;
            merged_start = merged_start.min(old_start);
            merged_end = merged_end.max(old_end);
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

    /// Removes and returns the numbers of `start..end` that are in the set, as ranges.
    pub fn take_span(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let found: Vec<(u64, u64)> = self.spans_within(start, end).collect();
        for (found_start, found_end) in &found {
            // One range of the set covers each range found.
            let Some((old_start, old_end)) = self.span_of(*found_start) else {
                continue;
            };
            self.spans.remove(&old_start);
            if old_start < *found_start {
                self.spans.insert(old_start, *found_start);
            }
            if *found_end < old_end {
                self.spans.insert(*found_end, old_end);
            }
            self.count -= found_end - found_start;
        }
        found
    }

    /// Returns how many numbers of `start..end` are in the set.
    pub fn count_within(&self, start: u64, end: u64) -> u64 {
        let spans = self.spans_within(start, end);
        spans.map(|(start, end)| end - start).sum()
    }

    /// Returns the parts of ranges that are within `start..end`.
    fn spans_within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        // The range that contains `start` may begin before it.
        let first = self.span_of(start).map_or(start, |(first, _)| first);
        let spans = self.spans.range(first..end.max(first));
        spans
            .map(move |(span_start, span_end)| ((*span_start).max(start), (*span_end).min(end)))
            .filter(|(start, end)| start < end)
    }

    /// Removes and returns the smallest numbers, at most `limit`.
    pub fn take_first(&mut self, limit: usize) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(limit.min(1024));
        while numbers.len() < limit {
            let Some((start, end)) = self.spans.pop_first() else {
                break;
            };
            let missing = (limit - numbers.len()) as u64;
            let stop = end.min(start.saturating_add(missing));
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
        /// Inserts all numbers from the start to one before the end.
        InsertSpan {
            start: u64,
            end: u64,
        },
        Remove(u64),
        /// Takes this many of the smallest numbers.
        TakeFirst(usize),
        /// Takes all numbers from the start to one before the end.
        TakeSpan {
            start: u64,
            end: u64,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..40_u64).prop_map(Step::Insert),
            (0..40_u64, 0..12_u64).prop_map(|(start, len)| Step::InsertSpan {
                start,
                end: start + len,
            }),
            (0..40_u64).prop_map(Step::Remove),
            (0..6_usize).prop_map(Step::TakeFirst),
            (0..40_u64, 0..12_u64).prop_map(|(start, len)| Step::TakeSpan {
                start,
                end: start + len,
            }),
        ]
    }

    proptest! {
        #[test]
        fn ranges_behave_like_a_set(steps in prop::collection::vec(step(), 0..80)) {
            let (mut ranges, mut set) = (RangeSet::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(number) => {
                        prop_assert_eq!(ranges.insert(number), set.insert(number));
                    }
                    Step::InsertSpan { start, end } => {
                        ranges.insert_span(start, end);
                        set.extend(start..end);
                    }
                    Step::Remove(number) => {
                        prop_assert_eq!(ranges.remove(number), set.remove(&number));
                    }
                    Step::TakeFirst(limit) => {
                        let mut first = Vec::new();
                        while first.len() < limit && let Some(number) = set.pop_first() {
                            first.push(number);
                        }
                        prop_assert_eq!(ranges.take_first(limit), first);
                    }
                    Step::TakeSpan { start, end } => {
                        let within: Vec<u64> = set.range(start..end).copied().collect();
                        prop_assert_eq!(ranges.count_within(start, end), within.len() as u64);
                        let taken = ranges.take_span(start, end).into_iter();
                        let taken: Vec<u64> = taken.flat_map(|(start, end)| start..end).collect();
                        prop_assert_eq!(&taken, &within);
                        set.retain(|number| !taken.contains(number));
                    }
                }
                prop_assert_eq!(ranges.len(), set.len() as u64);
                let all: Vec<u64> = ranges.spans().flat_map(|(start, end)| start..end).collect();
                prop_assert!(all.iter().eq(set.iter()));
                let spans: Vec<_> = ranges.spans().collect();
                let has_gap = |pair: &[(u64, u64)]| {
                    let (_, first_end) = pair[0];
                    let (next_start, _) = pair[1];
                    first_end < next_start
                };
                prop_assert!(spans.windows(2).all(has_gap), "spans touch");
            }
        }
    }

    #[test]
    fn ten_million_numbers_are_one_range() {
        let mut ranges = RangeSet::below(10_000_000);
        assert_eq!(ranges.take_first(2), [0, 1]);
        assert_eq!((ranges.spans().count(), ranges.len()), (1, 9_999_998));
    }
}
