//! Disruption limits: they decide which of the processes that have to leave may leave now.
//! A group never loses more processes at a time than it allows. Drains and graceful evacuations
//! apply the limits in every round.
//!
//! A process counts as moving from the order to leave until its successor runs or none is wanted
//! (W5).

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

/// Process that should move and may be ordered to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Group that the limit applies to: the work, or the service of an instance.
    pub group: WorkId,
    /// Number of processes of the group that may move at a time. `None` allows any number.
    pub limit: Option<u64>,
    /// True if the deadline of the process is over, so that it leaves regardless of the limit.
    pub at_once: bool,
}

/// Returns for each candidate, in order, whether it may leave now. `moving` is the number of
/// processes by group that already move.
#[must_use]
pub fn may_leave(candidates: &[Candidate], moving: &BTreeMap<WorkId, u64>) -> Vec<bool> {
    let mut moving = moving.clone();
    let mut may: Vec<bool> = candidates.iter().map(|it| it.at_once).collect();
    for it in candidates.iter().filter(|it| it.at_once) {
        *moving.entry(it.group.clone()).or_default() += 1;
    }
    for (it, may) in candidates.iter().zip(&mut may) {
        let moving = moving.entry(it.group.clone()).or_default();
        if !*may && it.limit.is_none_or(|limit| *moving < limit) {
            *may = true;
            *moving += 1;
        }
    }
    may
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::fixture::work_id;

    const GROUPS: usize = 4;

    fn limit_of(limits: &[Option<u64>], group: usize) -> Option<u64> {
        limits[group % GROUPS]
    }

    fn candidates(picks: &[(usize, bool)], limits: &[Option<u64>]) -> Vec<Candidate> {
        let one = |(group, at_once): &(usize, bool)| Candidate {
            group: work_id(&format!("job_{}", group % GROUPS)),
            limit: limit_of(limits, *group),
            at_once: *at_once,
        };
        picks.iter().map(one).collect()
    }

    fn being_moved(counts: &[u64]) -> BTreeMap<WorkId, u64> {
        let job = |(group, count): (usize, &u64)| (work_id(&format!("job_{group}")), *count);
        counts.iter().enumerate().map(job).collect()
    }

    proptest! {
        /// The limit is used up and exceeded only by processes whose deadline is over.
        #[test]
        fn a_group_loses_exactly_what_its_limit_allows(
            picks in prop::collection::vec((0..GROUPS, prop::bool::weighted(0.1)), 0..30),
            limits in prop::collection::vec(prop::option::of(0..4_u64), GROUPS),
            counts in prop::collection::vec(0..4_u64, GROUPS),
        ) {
            let all = candidates(&picks, &limits);
            let moving = being_moved(&counts);
            let may = may_leave(&all, &moving);
            prop_assert_eq!(&may, &may_leave(&all, &moving));
            for (group, limit) in limits.iter().enumerate() {
                let name = work_id(&format!("job_{group}"));
                let mine = || all.iter().zip(&may).filter(|(it, _)| it.group == name);
                let forced = mine().filter(|(it, _)| it.at_once).count() as u64;
                let go = mine().filter(|(_, may)| **may).count() as u64;
                let work_record = mine().count() as u64;
                let space = limit.map_or(u64::MAX, |limit| {
                    limit.saturating_sub(counts[group] + forced)
                });
                prop_assert_eq!(go, forced + space.min(work_record - forced));
            }
        }

        /// Processes whose deadline is over always leave.
        #[test]
        fn processes_past_their_deadline_always_leave(
            picks in prop::collection::vec((0..GROUPS, Just(true)), 0..30),
            limits in prop::collection::vec(prop::option::of(0..4_u64), GROUPS),
        ) {
            let all = candidates(&picks, &limits);
            prop_assert!(may_leave(&all, &BTreeMap::new()).into_iter().all(|may| may));
        }

        /// Repeated rounds empty any group with a limit above 0, never above the limit.
        #[test]
        fn repeated_rounds_empty_a_node(count in 1..40_usize, limit in 1..5_u64) {
            let mut left = candidates(&vec![(0, false); count], &[Some(limit); GROUPS]);
            let mut waves = 0;
            while !left.is_empty() {
                let may = may_leave(&left, &BTreeMap::new());
                let go = may.iter().filter(|may| **may).count() as u64;
                prop_assert!(go > 0 && go <= limit);
                let mut may = may.into_iter();
                left.retain(|_| !may.next().unwrap_or(false));
                waves += 1;
            }
            prop_assert_eq!(waves, (count as u64).div_ceil(limit));
        }
    }
}
