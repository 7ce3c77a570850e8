//! Tests that leased work ends before its lease expires, even if responses are late or lost.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_holder_renews_first_and_stops_before_the_lease_of_the_grantor_ends(
        requested_ms in 0..u64::from(u32::MAX),
        lease_ms in 30..10_000_000_u64,
        delay_ms in 0..1_000_u64,
    ) {
        let lease = Lease::new(requested_ms, lease_ms);
        let grantor_end_ms = requested_ms + delay_ms + lease_ms;
        prop_assert!(lease.renew_at_ms() < lease.stop_at_ms());
        prop_assert!(lease.stop_at_ms() < grantor_end_ms);
        prop_assert!(!lease.is_valid_at(grantor_end_ms));
    }

    /// The node checks at random times, with lost responses and unreadable files. The node has
    /// killed its work when the grantor's lease ends (I4).
    #[test]
    fn no_work_runs_after_the_last_lease(
        lease_ms in 30..100_000_u64,
        // Each heartbeat: pause after the response, delay of the response, and its outcome.
        heartbeats in proptest::collection::vec((1..40_000_u64, 0..5_000_u64, 0..4_u8), 1..30),
    ) {
        let (mut now_ms, mut last, mut granted_ms) = (1_000, None, None);
        for (pause_ms, delay_ms, outcome) in heartbeats {
            let requested_ms = now_ms;
            now_ms += delay_ms;
            let read = match outcome {
                // The response was lost, or the file cannot be read.
                0 | 1 => None,
                // The lease is invalid, because it is of another boot or from the future.
                2 => Some(Lease::new(now_ms + 1 + pause_ms, lease_ms)),
                _ => {
                    granted_ms = Some(requested_ms + delay_ms);
                    Some(Lease::new(requested_ms, lease_ms))
                }
            };
            last = Lease::latest(last, read, now_ms);
            now_ms += pause_ms;
            let end_ms = granted_ms.map(|granted_ms| granted_ms + lease_ms);
            match required_action(now_ms, last) {
                LeaseAction::Run { until_ms } => {
                    prop_assert!(now_ms < until_ms && end_ms.is_some_and(|end| until_ms < end));
                }
                LeaseAction::Stop { kill_at_ms } => {
                    prop_assert!(end_ms.is_some_and(|end| kill_at_ms <= end));
                    prop_assert!(now_ms < kill_at_ms);
                }
                LeaseAction::Kill => {}
            }
            if end_ms.is_none_or(|end| now_ms >= end) {
                prop_assert_eq!(required_action(now_ms, last), LeaseAction::Kill);
            }
        }
    }
}

/// Returns a lease of ten seconds requested at 100 s, with a margin of one second.
fn lease() -> Lease {
    Lease::new(100_000, 10_000)
}

#[test]
fn work_runs_then_is_stopped_then_killed() {
    let until_ms = 109_000;
    let kill_at_ms = 110_000;
    for (now_ms, lease, expected) in [
        (0, None, LeaseAction::Kill),
        (100_000, None, LeaseAction::Kill),
        (100_000, Some(lease()), LeaseAction::Run { until_ms }),
        (108_999, Some(lease()), LeaseAction::Run { until_ms }),
        (109_000, Some(lease()), LeaseAction::Stop { kill_at_ms }),
        (109_999, Some(lease()), LeaseAction::Stop { kill_at_ms }),
        (110_000, Some(lease()), LeaseAction::Kill),
        // The node slept for an hour, and its clock went on (F25).
        (3_700_000, Some(lease()), LeaseAction::Kill),
        (u64::MAX, Some(Lease::new(u64::MAX, 10)), LeaseAction::Kill),
        (5, Some(Lease::new(5, 0)), LeaseAction::Kill),
    ] {
        assert_eq!(
            required_action(now_ms, lease),
            expected,
            "{now_ms} {lease:?}"
        );
    }
}

#[test]
fn an_unreadable_file_leaves_the_last_valid_lease() {
    let (old, new) = (Lease::new(90_000, 10_000), lease());
    let future = Lease::new(100_001, 10_000);
    for (last, read, expected) in [
        (None, None, None),
        (None, Some(new), Some(new)),
        (Some(old), None, Some(old)),
        (Some(old), Some(new), Some(new)),
        (Some(new), Some(old), Some(new)),
        (Some(new), Some(future), Some(new)),
        (None, Some(future), None),
        // The newest response counts, even if it grants less.
        (
            Some(new),
            Some(Lease::new(100_000, 5)),
            Some(Lease::new(100_000, 5)),
        ),
    ] {
        assert_eq!(Lease::latest(last, read, 100_000), expected);
    }
}

#[test]
fn a_gap_starts_a_tenure_that_must_settle() {
    let first = Tenure::renew(None, lease(), 100_010);
    assert_eq!(first.since_ms, 100_000);
    assert!(!first.may_start(100_999) && first.may_start(101_000));
    assert!(first.may_start(108_999) && !first.may_start(109_000));
    let next = Lease::new(105_000, 10_000);
    let renewed = Tenure::renew(Some(first), next, 105_010);
    assert_eq!(renewed.since_ms, 100_000);
    // The response came after the end of the old lease, so there was a gap.
    let renewed_late = Tenure::renew(Some(first), next, 109_500);
    assert_eq!(renewed_late.since_ms, 105_000);
    assert!(
        renewed_late.may_start(109_500),
        "the margin passed while the response was under way"
    );
    let after_gap = Tenure::renew(Some(renewed), Lease::new(200_000, 10_000), 200_001);
    assert!(!after_gap.may_start(200_500) && after_gap.may_start(201_000));
}
