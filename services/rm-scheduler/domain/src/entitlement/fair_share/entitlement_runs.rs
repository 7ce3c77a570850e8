//! Entitlements of the work of one user, stored as runs of equal entitlements. Two results are
//! compared run by run. Compared item by item, a round of 100,000 requests with 1 % of changes took
//! 7.0 ms instead of 6.1 ms.

/// Runs by group, and by position in the group.
#[derive(Default)]
pub(super) struct EntitlementRuns {
    runs: Vec<Run>,
}

/// Adjacent items of a group with the same entitlement. An item is one piece of work.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub group: u32,
    pub len: u32,
    /// Number of entitled processes of each item.
    pub entitlement: u64,
}

impl EntitlementRuns {
    /// Builds runs from entitlements in the order of group and position.
    pub fn new(items: impl Iterator<Item = (u32, u64)>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for (group, entitlement) in items {
            match runs.last_mut() {
                Some(run) if (run.group, run.entitlement) == (group, entitlement) => run.len += 1,
                _ => runs.push(Run {
                    group,
                    len: 1,
                    entitlement,
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
        let mut offset = position;
        for (index, run) in self.runs.iter().enumerate().skip(first) {
            if run.group != group || offset < run.len {
                return (index, offset);
            }
            offset -= run.len;
        }
        (self.runs.len(), offset)
    }

    /// Inserts one item between others of its group.
    pub fn insert(&mut self, group: u32, position: u32, entitlement: u64) {
        let (index, offset) = self.find(group, position);
        let is_same = |run: &Run| run.group == group && run.entitlement == entitlement;
        // An item between two runs may belong to either.
        let previous = index.checked_sub(1).filter(|_| offset == 0);
        let mut neighbours = [Some(index), previous].into_iter().flatten();
        if let Some(index) = neighbours.find(|index| self.runs.get(*index).is_some_and(is_same)) {
            self.runs[index].len += 1;
            return;
        }
        let item_run = Run {
            group,
            len: 1,
            entitlement,
        };
        if offset == 0 {
            self.runs.insert(index, item_run);
            return;
        }
        let run = &mut self.runs[index];
        let len = run.len - offset;
        let remaining_run = Run { len, ..*run };
        run.len = offset;
        let next = index + 1;
        self.runs.splice(next..next, [item_run, remaining_run]);
    }

    /// Removes one item and returns its entitlement.
    pub fn remove(&mut self, group: u32, position: u32) -> Option<u64> {
        let (index, _) = self.find(group, position);
        let run = self.runs.get_mut(index).filter(|run| run.group == group)?;
        run.len -= 1;
        let entitlement = run.entitlement;
        if run.len == 0 {
            self.runs.remove(index);
        }
        Some(entitlement)
    }

    /// Replaces all runs. Each group must have as many items as before. Calls `report` for each
    /// item whose entitlement changed, with group, position and new entitlement.
    pub fn replace_all(&mut self, runs: Vec<Run>, mut report: impl FnMut((u32, u32), u64)) {
        if self.runs == runs {
            return;
        }
        let old_runs = std::mem::replace(&mut self.runs, runs);
        let mut old_runs = old_runs.into_iter();
        let mut old_run = Run::default();
        let (mut group, mut position) = (0, 0);
        for mut run in self.runs.iter().copied() {
            if run.group != group {
                (group, position) = (run.group, 0);
            }
            while run.len > 0 {
                if old_run.len == 0 {
                    let Some(next) = old_runs.next() else { break };
                    old_run = next;
                }
                let overlap = run.len.min(old_run.len);
                if run.entitlement != old_run.entitlement {
                    (position..position + overlap)
                        .for_each(|position| report((group, position), run.entitlement));
                }
                (run.len, old_run.len, position) =
                    (run.len - overlap, old_run.len - overlap, position + overlap);
            }
        }
    }

    /// Returns the entitlements of all items of a group.
    #[cfg(test)]
    pub fn iter_group(&self, group: u32) -> impl Iterator<Item = u64> {
        let runs = self.runs.iter().filter(move |run| run.group == group);
        runs.flat_map(|run| std::iter::repeat_n(run.entitlement, run.len as usize))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GROUPS: u32 = 3;

    proptest! {
        #[test]
        fn runs_equal_a_list_of_entitlements(
            edits in prop::collection::vec(
                (0..4_u8, 0..GROUPS, 0..9_usize, 0..3_u64),
                0..60,
            ),
            new_entitlements in prop::collection::vec(0..3_u64, 60),
        ) {
            let mut entitlements = EntitlementRuns::default();
            let mut expected = vec![Vec::new(); GROUPS as usize];
            // Kind 0 removes an item, and all other kinds insert one.
            for (kind, group, position, entitlement) in edits {
                let list = &mut expected[group as usize];
                let position = position.min(list.len());
                let index = u32::try_from(position).expect("a small number");
                if kind > 0 {
                    entitlements.insert(group, index, entitlement);
                    list.insert(position, entitlement);
                } else if position < list.len() {
                    prop_assert_eq!(entitlements.remove(group, index), Some(list.remove(position)));
                }
                for (group, list) in (0..).zip(&expected) {
                    prop_assert_eq!(&entitlements.iter_group(group).collect::<Vec<u64>>(), list);
                }
            }
            let groups = (0..).zip(&expected);
            let groups = groups.flat_map(|(group, list)| list.iter().map(move |_| group));
            let runs = groups.zip(new_entitlements);
            let runs = runs.map(|(group, entitlement)| Run { group, len: 1, entitlement });
            let runs: Vec<Run> = runs.collect();
            entitlements.replace_all(runs.clone(), |(group, position), entitlement| {
                let old_entitlement = &mut expected[group as usize][position as usize];
                assert_ne!(*old_entitlement, entitlement);
                *old_entitlement = entitlement;
            });
            for (group, list) in (0..).zip(&expected) {
                let own = runs.iter().filter(|run| run.group == group);
                prop_assert_eq!(&own.map(|run| run.entitlement).collect::<Vec<u64>>(), list);
                prop_assert_eq!(&entitlements.iter_group(group).collect::<Vec<u64>>(), list);
            }
        }
    }
}
