//! Entitlements of the work of one user, as runs of equal counts. The cost of comparing two counts
//! grows with the number of differences.

/// Runs by group, and by position in the group.
#[derive(Default)]
pub(super) struct CountRuns {
    runs: Vec<Run>,
}

/// Adjacent items of a group with the same count.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub group: u32,
    pub len: u32,
    /// Number of entitled processes of each item.
    pub counted: u64,
}

impl CountRuns {
    /// Builds runs from counts in the order of group and position.
    pub fn new(each: impl Iterator<Item = (u32, u64)>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for (group, counted) in each {
            match runs.last_mut() {
                Some(run) if (run.group, run.counted) == (group, counted) => run.len += 1,
                _ => runs.push(Run {
                    group,
                    len: 1,
                    counted,
                }),
            }
        }
        Self { runs }
    }

    /// Returns the index of the run that has this position of a group, and the offset in the run.
    /// For the position after the last item of a group, returns the index at which its next run
    /// would be.
    fn find(&self, group: u32, position: u32) -> (usize, u32) {
        let first = self.runs.partition_point(|run| run.group < group);
        let mut within = position;
        for (at, run) in self.runs.iter().enumerate().skip(first) {
            if run.group != group || within < run.len {
                return (at, within);
            }
            within -= run.len;
        }
        (self.runs.len(), within)
    }

    /// Inserts one item between others of its group.
    pub fn insert(&mut self, group: u32, position: u32, counted: u64) {
        let (at, within) = self.find(group, position);
        let is_same = |run: &Run| run.group == group && run.counted == counted;
        // An item between two runs may belong to either.
        let before = at.checked_sub(1).filter(|_| within == 0);
        let mut his = [Some(at), before].into_iter().flatten();
        if let Some(at) = his.find(|at| self.runs.get(*at).is_some_and(is_same)) {
            self.runs[at].len += 1;
            return;
        }
        let one = Run {
            group,
            len: 1,
            counted,
        };
        if within == 0 {
            self.runs.insert(at, one);
            return;
        }
        let run = &mut self.runs[at];
        let len = run.len - within;
        let rest = Run { len, ..*run };
        run.len = within;
        let next = at + 1;
        self.runs.splice(next..next, [one, rest]);
    }

    /// Removes one item and returns its count.
    pub fn remove(&mut self, group: u32, position: u32) -> Option<u64> {
        let (at, _) = self.find(group, position);
        let run = self.runs.get_mut(at).filter(|run| run.group == group)?;
        run.len -= 1;
        let counted = run.counted;
        if run.len == 0 {
            self.runs.remove(at);
        }
        Some(counted)
    }

    /// Replaces all runs. Calls `report` with the group and position of each item whose count
    /// changed, and its new count.
    pub fn renew(&mut self, runs: Vec<Run>, mut report: impl FnMut((u32, u32), u64)) {
        if self.runs == runs {
            return;
        }
        let known = std::mem::replace(&mut self.runs, runs);
        let mut known = known.into_iter();
        let mut before = Run::default();
        let (mut group, mut position) = (0, 0);
        for mut run in self.runs.iter().copied() {
            if run.group != group {
                (group, position) = (run.group, 0);
            }
            while run.len > 0 {
                if before.len == 0 {
                    let Some(next) = known.next() else { break };
                    before = next;
                }
                let both = run.len.min(before.len);
                if run.counted != before.counted {
                    (position..position + both)
                        .for_each(|position| report((group, position), run.counted));
                }
                (run.len, before.len, position) =
                    (run.len - both, before.len - both, position + both);
            }
        }
    }

    /// Returns the counts of all items of a group.
    #[cfg(test)]
    pub fn each(&self, group: u32) -> impl Iterator<Item = u64> {
        let runs = self.runs.iter().filter(move |run| run.group == group);
        runs.flat_map(|run| std::iter::repeat_n(run.counted, run.len as usize))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GROUPS: u32 = 3;

    proptest! {
        #[test]
        fn runs_equal_a_list_of_counts(
            moves in prop::collection::vec(
                (0..4_u8, 0..GROUPS, 0..9_usize, 0..3_u64),
                0..60,
            ),
            last in prop::collection::vec(0..3_u64, 60),
        ) {
            let mut counts = CountRuns::default();
            let mut lists = vec![Vec::new(); GROUPS as usize];
            for (kind, group, position, counted) in moves {
                let list = &mut lists[group as usize];
                let position = position.min(list.len());
                let at = u32::try_from(position).expect("a small number");
                if kind > 0 {
                    counts.insert(group, at, counted);
                    list.insert(position, counted);
                } else if position < list.len() {
                    prop_assert_eq!(counts.remove(group, at), Some(list.remove(position)));
                }
                for (group, list) in (0..).zip(&lists) {
                    prop_assert_eq!(&counts.each(group).collect::<Vec<u64>>(), list);
                }
            }
            let groups = (0..).zip(&lists);
            let owner = groups.flat_map(|(group, list)| list.iter().map(move |_| group));
            let runs = owner.zip(last).map(|(group, counted)| Run { group, len: 1, counted });
            let runs: Vec<Run> = runs.collect();
            counts.renew(runs.clone(), |(group, position), counted| {
                let known = &mut lists[group as usize][position as usize];
                assert_ne!(*known, counted);
                *known = counted;
            });
            for (group, list) in (0..).zip(&lists) {
                let own = runs.iter().filter(|run| run.group == group);
                prop_assert_eq!(&own.map(|run| run.counted).collect::<Vec<u64>>(), list);
                prop_assert_eq!(&counts.each(group).collect::<Vec<u64>>(), list);
            }
        }
    }
}
