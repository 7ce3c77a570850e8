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
    let mut can_leave: Vec<bool> = candidates.iter().map(|it| it.at_once).collect();
    for it in candidates.iter().filter(|it| it.at_once) {
        *moving.entry(it.group.clone()).or_default() += 1;
    }
    for (it, can_leave) in candidates.iter().zip(&mut can_leave) {
        let moving = moving.entry(it.group.clone()).or_default();
        if !*can_leave && it.limit.is_none_or(|limit| *moving < limit) {
            *can_leave = true;
            *moving += 1;
        }
    }
    can_leave
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

    fn candidates(specs: &[(usize, bool)], limits: &[Option<u64>]) -> Vec<Candidate> {
        let candidate = |(group, at_once): &(usize, bool)| Candidate {
            group: work_id(&format!("job_{}", group % GROUPS)),
            limit: limit_of(limits, *group),
            at_once: *at_once,
        };
        specs.iter().map(candidate).collect()
    }

    fn moving_counts(counts: &[u64]) -> BTreeMap<WorkId, u64> {
        let job = |(group, count): (usize, &u64)| (work_id(&format!("job_{group}")), *count);
        counts.iter().enumerate().map(job).collect()
    }

    proptest! {
        /// The limit is used up and exceeded only by processes whose deadline is over.
        #[test]
        fn a_group_loses_exactly_what_its_limit_allows(
            specs in prop::collection::vec((0..GROUPS, prop::bool::weighted(0.1)), 0..30),
            limits in prop::collection::vec(prop::option::of(0..4_u64), GROUPS),
            counts in prop::collection::vec(0..4_u64, GROUPS),
        ) {
            let all = candidates(&specs, &limits);
            let moving = moving_counts(&counts);
            let can_leave = may_leave(&all, &moving);
            prop_assert_eq!(&can_leave, &may_leave(&all, &moving));
            for (group, limit) in limits.iter().enumerate() {
                let name = work_id(&format!("job_{group}"));
                let of_group = || all.iter().zip(&can_leave).filter(|(it, _)| it.group == name);
                let past_deadline = of_group().filter(|(it, _)| it.at_once).count() as u64;
                let leaving = of_group().filter(|(_, can_leave)| **can_leave).count() as u64;
                let group_size = of_group().count() as u64;
                let headroom = limit.map_or(u64::MAX, |limit| {
                    limit.saturating_sub(counts[group] + past_deadline)
                });
                prop_assert_eq!(leaving, past_deadline + headroom.min(group_size - past_deadline));
            }
        }

        /// Processes whose deadline is over always leave.
        #[test]
        fn processes_past_their_deadline_always_leave(
            specs in prop::collection::vec((0..GROUPS, Just(true)), 0..30),
            limits in prop::collection::vec(prop::option::of(0..4_u64), GROUPS),
        ) {
            let all = candidates(&specs, &limits);
            prop_assert!(may_leave(&all, &BTreeMap::new()).into_iter().all(|can_leave| can_leave));
        }

        /// Repeated rounds empty any group with a limit above 0, never above the limit.
        #[test]
        fn repeated_rounds_empty_a_node(count in 1..40_usize, limit in 1..5_u64) {
            let mut remaining = candidates(&vec![(0, false); count], &[Some(limit); GROUPS]);
            let mut rounds = 0;
            while !remaining.is_empty() {
                let can_leave = may_leave(&remaining, &BTreeMap::new());
                let leaving = can_leave.iter().filter(|can_leave| **can_leave).count() as u64;
                prop_assert!(leaving > 0 && leaving <= limit);
                let mut can_leave = can_leave.into_iter();
                remaining.retain(|_| !can_leave.next().unwrap_or(false));
                rounds += 1;
            }
            prop_assert_eq!(rounds, (count as u64).div_ceil(limit));
        }
    }
}
