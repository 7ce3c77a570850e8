use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_holder_renews_first_and_stops_before_the_lender_lets_go(
        requested in 0..u64::from(u32::MAX), lease_ms in 30..10_000_000_u64, took in 0..1_000_u64,
    ) {
        let lease = Lease::new(requested, lease_ms);
        let lender_ends = requested + took + lease_ms;
        prop_assert!(lease.renew_at_ms() < lease.stop_at_ms());
        prop_assert!(lease.stop_at_ms() < lender_ends);
        prop_assert!(!lease.holds(lender_ends));
    }

    /// The node checks at random times, with lost responses and unreadable files. It has killed its
    /// work when the grantor's lease ends. It never returns from ending to running without a newer
    /// lease (I4).
    #[test]
    fn no_work_runs_after_the_last_lease(
        lease_ms in 30..100_000_u64,
        beats in proptest::collection::vec((1..40_000_u64, 0..5_000_u64, 0..4_u8), 1..30),
    ) {
        let (mut now, mut last, mut found) = (1_000, None, None);
        for (pause, took, luck) in beats {
            let requested = now;
            now += took;
            let read = match luck {
                // The response was lost, or the file cannot be read.
                0 | 1 => None,
                // The lease is invalid, because it is of another boot or from the future.
                2 => Some(Lease::new(now + 1 + pause, lease_ms)),
                _ => {
                    found = Some(requested + took);
                    Some(Lease::new(requested, lease_ms))
                }
            };
            last = Lease::latest(last, read, now);
            now += pause;
            let lender_ends = found.map(|at| at + lease_ms);
            match step(now, last) {
                Step::Run { until_ms } => {
                    prop_assert!(now < until_ms && lender_ends.is_some_and(|end| until_ms < end));
                }
                Step::End { force_at_ms } => {
                    prop_assert!(lender_ends.is_some_and(|end| force_at_ms <= end));
                    prop_assert!(now < force_at_ms);
                }
                Step::Force => {}
            }
            if lender_ends.is_none_or(|end| now >= end) {
                prop_assert_eq!(step(now, last), Step::Force);
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
    let force_at_ms = 110_000;
    for (now_ms, lease, expected) in [
        (0, None, Step::Force),
        (100_000, None, Step::Force),
        (100_000, Some(lease()), Step::Run { until_ms }),
        (108_999, Some(lease()), Step::Run { until_ms }),
        (109_000, Some(lease()), Step::End { force_at_ms }),
        (109_999, Some(lease()), Step::End { force_at_ms }),
        (110_000, Some(lease()), Step::Force),
        // The node slept for an hour, and its clock went on (F25).
        (3_700_000, Some(lease()), Step::Force),
        (u64::MAX, Some(Lease::new(u64::MAX, 10)), Step::Force),
        (5, Some(Lease::new(5, 0)), Step::Force),
    ] {
        assert_eq!(step(now_ms, lease), expected, "{now_ms} {lease:?}");
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
    let first = Tenure::renewed(None, lease(), 100_010);
    assert_eq!(first.since_ms, 100_000);
    assert!(!first.may_start(100_999) && first.may_start(101_000));
    assert!(first.may_start(108_999) && !first.may_start(109_000));
    let next = Lease::new(105_000, 10_000);
    let renewed = Tenure::renewed(Some(first), next, 105_010);
    assert_eq!(renewed.since_ms, 100_000);
    // The response came after the end of the old lease, so there was a gap.
    let late = Tenure::renewed(Some(first), next, 109_500);
    assert_eq!(late.since_ms, 105_000);
    assert!(
        late.may_start(109_500),
        "it has settled while the answer was on its way"
    );
    let after = Tenure::renewed(Some(renewed), Lease::new(200_000, 10_000), 200_001);
    assert!(!after.may_start(200_500) && after.may_start(201_000));
}
