//! Counted retries.

use super::*;

#[test]
fn negative_retries_are_unlimited_and_uncounted() {
    let record = Record {
        count: 900,
        last_failure_ms: 0,
        last_delay_ms: 0,
    };
    assert_eq!(
        count_failure(Some(&record), &retries(-1), 1, true),
        RetryDecision::Uncounted
    );
}

#[test]
fn zero_retries_exhaust_at_the_first_failure() {
    assert_eq!(
        count_failure(None, &retries(0), 1, true),
        RetryDecision::Exhausted
    );
    let none = Terms {
        retries: Some(retries(0)),
        ..terms(2, 0)
    };
    let mut service_test = ServiceTest::running(none.clone());
    service_test.end_process(0, Ending::Failure);
    assert!(matches!(service_test.all.end(), Some(End::Failed(_))));
    let may_continue = Terms {
        retries: Some(Retries {
            fail_service: false,
            ..retries(0)
        }),
        ..none
    };
    let mut service_test = ServiceTest::running(may_continue);
    service_test.end_process(0, Ending::Failure);
    assert_eq!(
        (service_test.state(0), service_test.all.end()),
        (State::Failed, None)
    );
    assert_eq!(service_test.requested_host(0), "nothing");
    assert!(!service_test.all.is_healthy(), "it stays unhealthy");
}

#[test]
fn only_the_gap_to_the_previous_failure_counts() {
    let record = |count, last_failure_ms, last_delay_ms| Record {
        count,
        last_failure_ms,
        last_delay_ms,
    };
    let count = |before: Option<Record>, now| match count_failure(
        before.as_ref(),
        &retries(8),
        now,
        true,
    ) {
        RetryDecision::Retry(record) => record.count,
        other => panic!("{other:?}"),
    };
    assert_eq!(count(None, 0), 1);
    assert_eq!(count(Some(record(3, 0, 0)), 299_999), 4);
    assert_eq!(
        count(Some(record(3, 0, 0)), 300_000),
        1,
        "a gap of a window"
    );
    // The delay of the last retry is not part of the gap.
    assert_eq!(count(Some(record(3, 0, 10_000)), 309_999), 4);
    assert_eq!(count(Some(record(3, 0, 10_000)), 310_000), 1);
    // All gaps are below the window, so the total time does not matter.
    assert_eq!(count(Some(record(7, 0, 0)), 250_000), 8);
}

#[test]
fn an_exhausted_processor_keeps_its_record() {
    let mut service_test = ServiceTest::running(Terms {
        retries: Some(Retries {
            fail_service: false,
            ..retries(2)
        }),
        host_affinity: false,
        ..terms(1, 0)
    });
    for expected in [1, 2] {
        service_test.end_process(0, Ending::Failure);
        assert_eq!(
            service_test.all.get(0).unwrap().record().unwrap().count,
            expected
        );
        service_test.run(0, "h0");
        service_test.advance(1_000);
    }
    let before = service_test.all.get(0).unwrap().record().copied();
    service_test.end_process(0, Ending::Failure);
    assert_eq!(service_test.state(0), State::Failed);
    assert_eq!(service_test.all.get(0).unwrap().record().copied(), before);
}

#[test]
fn only_the_last_retry_on_one_host_is_delayed() {
    let delay = |count, specific| {
        let record = Record {
            count,
            last_failure_ms: 0,
            last_delay_ms: 0,
        };
        match count_failure(Some(&record), &retries(8), 10, specific) {
            RetryDecision::Retry(record) => record.last_delay_ms,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delay(6, true), 0);
    assert_eq!(delay(7, false), 0);
    assert_eq!(delay(7, true), 360_000 + CLOCK_SKEW_MS);
    let mut service_test = ServiceTest::running(Terms {
        retries: Some(retries(1)),
        ..terms(1, 0)
    });
    service_test.end_process(0, Ending::Failure);
    assert_eq!(service_test.requested_host(0), "nothing");
    assert_eq!(
        service_test.all.due_ms(TIMEOUTS, service_test.now),
        Some(361_000)
    );
    service_test.advance(361_000);
    assert_eq!(service_test.requested_host(0), "h0");
    // The timeout starts when the retry may be served.
    service_test.advance(5_000);
    assert_eq!(service_test.requested_host(0), "h0");
    service_test.advance(1);
    assert_eq!(service_test.requested_host(0), "any");
}

#[test]
fn a_retry_requests_the_last_host_or_any() {
    let mut service_test = ServiceTest::running(terms(1, 0));
    service_test.end_process(0, Ending::Failure);
    assert_eq!(service_test.requested_host(0), "h0");
    let mut service_test = ServiceTest::running(Terms {
        host_affinity: false,
        ..terms(1, 0)
    });
    service_test.end_process(0, Ending::Failure);
    assert_eq!(service_test.requested_host(0), "any");
}

#[test]
fn a_delay_outlives_the_manager() {
    let record = Record {
        count: 8,
        last_failure_ms: time(0).wall_ms,
        last_delay_ms: 361_000,
    };
    let mut all = Processors::new(terms(1, 0));
    all.restore(0, Some(record), None, None);
    all.restore_host(0, host("h0"));
    // The monotonic clock restarts.
    let now = Now {
        wall_ms: time(300_000).wall_ms,
        monotonic_ms: 7,
    };
    all.begin(now);
    assert!(!all.ask(0, 7).wanted);
    assert_eq!(all.due_ms(TIMEOUTS, 7), Some(7 + 61_000));
    assert!(all.ask(0, 61_007).wanted);
}

#[test]
fn a_service_with_a_failed_processor_ends_failed() {
    let mut service_test = ServiceTest::running(Terms {
        retries: Some(Retries {
            fail_service: false,
            ..retries(0)
        }),
        ..terms(2, 0)
    });
    service_test.end_process(0, Ending::Failure);
    service_test.end_process(1, Ending::Completed);
    assert!(matches!(service_test.all.end(), Some(End::Failed(_))));
}

#[test]
fn a_service_without_retries_restarts_for_ever() {
    let mut service_test = ServiceTest::running(Terms {
        retries: None,
        host_affinity: false,
        ..terms(1, 0)
    });
    for ending in [Ending::Completed, Ending::Failure] {
        for _ in 0..50 {
            service_test.end_process(0, ending);
            assert_eq!(
                (
                    service_test.requested_host(0).as_str(),
                    service_test.all.end()
                ),
                ("any", None)
            );
            service_test.run(0, "h0");
        }
    }
}

#[test]
fn a_failed_processor_that_is_placed_again_clears_its_record() {
    let mut service_test = ServiceTest::running(Terms {
        retries: Some(Retries {
            fail_service: false,
            ..retries(1)
        }),
        ..terms(1, 1)
    });
    service_test.end_process(0, Ending::Failure);
    service_test.run(0, "h0");
    service_test.end_process(0, Ending::Failure);
    assert_eq!(service_test.state(0), State::Failed);
    service_test.run(0, "h9");
    assert_eq!(
        (
            service_test.state(0),
            service_test.requested_host(0).as_str()
        ),
        (State::Running, "h9")
    );
    assert_eq!(service_test.all.get(0).unwrap().record(), None);
}
