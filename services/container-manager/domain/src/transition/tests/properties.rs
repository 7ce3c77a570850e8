//! Property tests of [`decide`] with random sequences of reports and other facts.

use super::*;
use proptest::prelude::*;

/// Generates reports in any order. The end is reported at least once, and a late report of the
/// running container follows.
fn any_reports() -> impl Strategy<Value = Vec<Observation>> {
    let states = [
        State::Ordered,
        State::Launching,
        State::Running,
        State::Ended,
    ];
    let report = |state| observed(state, ORDER_REVISION);
    let any_report = proptest::sample::select(states.map(report).to_vec());
    proptest::collection::vec(any_report, 0..12).prop_map(move |mut reports| {
        reports.push(report(State::Ended));
        reports.push(report(State::Running));
        reports
    })
}

proptest! {
    /// The end is recorded exactly once, and late reports do not change it (I6).
    #[test]
    fn reports_in_any_order_and_number_give_the_same_end(
        reports in any_reports(), old_revision in 0..ORDER_REVISION
    ) {
        let mut lifecycle = Lifecycle::new(1);
        let mut ends = 0;
        for (index, report) in reports.iter().enumerate() {
            let revision = ORDER_REVISION + 1 + index as u64;
            let next = apply(&lifecycle, Fact::Observed(report), revision);
            ends += usize::from(next.has_ended() && !lifecycle.has_ended());
            prop_assert!(next.state >= lifecycle.state);
            let missing = Fact::Missing { observed_revision: old_revision };
            lifecycle = apply(&next, missing, revision);
        }
        prop_assert_eq!(ends, 1);
        prop_assert_eq!(lifecycle.exit.unwrap().code, Some(3));
    }

    /// The number of a fact selects its kind. Numbers from 4 are reports in one of the five states.
    #[test]
    fn an_ended_container_keeps_its_exit(
        facts in proptest::collection::vec((0..9_u8, 0..60_u64), 0..30)
    ) {
        let mut lifecycle = Lifecycle::new(1);
        for (revision, (kind, observed_revision)) in facts.into_iter().enumerate() {
            let observation = observed(State::ALL[usize::from(kind % 5)], observed_revision);
            let fact = match kind {
                0 => Fact::Allocation(AllocationStatus::Granted),
                1 => Fact::Allocation(AllocationStatus::Vacated),
                2 => Fact::Allocation(AllocationStatus::Purged),
                3 => Fact::Missing { observed_revision },
                _ => Fact::Observed(&observation),
            };
            let next = apply(&lifecycle, fact, revision as u64);
            prop_assert!(next.state >= lifecycle.state);
            prop_assert_eq!(next.has_ended(), next.exit.is_some());
            if lifecycle.has_ended() {
                prop_assert_eq!(&next.exit, &lifecycle.exit);
            }
            lifecycle = next;
        }
    }
}
