//! Disruption limits decide which of the processes that must leave may leave now. A group never
//! loses more processes at a time than its limit allows. Drains and graceful evacuations apply the
//! limits in every round.
//!
//! A process is moving from its order to leave until its successor runs, or until no successor is
//! wanted (W5).

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

/// Process that must leave, and may be ordered to do so now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Group that the limit applies to: the work, or the service of an instance.
    pub group: WorkId,
    /// Number of processes of the group that may move at a time. `None` allows any number.
    pub limit: Option<u64>,
    /// True if the deadline of the process has passed, so that the process leaves regardless of the
    /// limit.
    pub at_once: bool,
}

/// Returns for each candidate, in order, whether it may leave now. `moving` has the number of
/// processes of each group that are already moving.
#[must_use]
pub fn may_leave(candidates: &[Candidate], moving: &BTreeMap<WorkId, u64>) -> Vec<bool> {
    let mut moving = moving.clone();
    let mut allowed: Vec<bool> = candidates
        .iter()
        .map(|candidate| candidate.at_once)
        .collect();
    for candidate in candidates.iter().filter(|candidate| candidate.at_once) {
        *moving.entry(candidate.group.clone()).or_default() += 1;
    }
    for (candidate, allowed) in candidates.iter().zip(&mut allowed) {
        let moving = moving.entry(candidate.group.clone()).or_default();
        if !*allowed && candidate.limit.is_none_or(|limit| *moving < limit) {
            *allowed = true;
            *moving += 1;
        }
    }
    allowed
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

    /// Builds candidates from the number of their group, and whether their deadline has passed.
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
        /// The limit is used up. Only processes whose deadline has passed
        /// exceed the limit.
        #[test]
        fn a_group_loses_exactly_what_its_limit_allows(
            specs in prop::collection::vec((0..GROUPS, prop::bool::weighted(0.1)), 0..30),
            limits in prop::collection::vec(prop::option::of(0..4_u64), GROUPS),
            counts in prop::collection::vec(0..4_u64, GROUPS),
        ) {
            let all = candidates(&specs, &limits);
            let moving = moving_counts(&counts);
            let allowed = may_leave(&all, &moving);
            prop_assert_eq!(&allowed, &may_leave(&all, &moving));
            for (group, limit) in limits.iter().enumerate() {
                let name = work_id(&format!("job_{group}"));
                let is_of_group = |candidate: &Candidate| candidate.group == name;
                let of_group =
                    || all.iter().zip(&allowed).filter(|(candidate, _)| is_of_group(candidate));
                let past_deadline = of_group().filter(|(candidate, _)| candidate.at_once);
                let past_deadline = past_deadline.count() as u64;
                let leaving = of_group().filter(|(_, allowed)| **allowed).count() as u64;
                let group_size = of_group().count() as u64;
                let headroom = limit.map_or(u64::MAX, |limit| {
                    limit.saturating_sub(counts[group] + past_deadline)
                });
                prop_assert_eq!(leaving, past_deadline + headroom.min(group_size - past_deadline));
            }
        }

        /// Processes whose deadline has passed leave regardless of the limit.
        #[test]
        fn processes_past_their_deadline_always_leave(
            specs in prop::collection::vec((0..GROUPS, Just(true)), 0..30),
            limits in prop::collection::vec(prop::option::of(0..4_u64), GROUPS),
        ) {
            let all = candidates(&specs, &limits);
            prop_assert!(may_leave(&all, &BTreeMap::new()).into_iter().all(|allowed| allowed));
        }

        /// With a limit above 0, all processes of a group leave over several rounds. No round
        /// exceeds the limit.
        #[test]
        fn repeated_rounds_empty_a_group(count in 1..40_usize, limit in 1..5_u64) {
            let mut remaining = candidates(&vec![(0, false); count], &[Some(limit); GROUPS]);
            let mut rounds = 0;
            while !remaining.is_empty() {
                let allowed = may_leave(&remaining, &BTreeMap::new());
                let leaving = allowed.iter().filter(|allowed| **allowed).count() as u64;
                prop_assert!(leaving > 0 && leaving <= limit);
                let mut allowed = allowed.into_iter();
                remaining.retain(|_| !allowed.next().unwrap_or(false));
                rounds += 1;
            }
            prop_assert_eq!(rounds, (count as u64).div_ceil(limit));
        }
    }
}
