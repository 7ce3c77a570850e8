//! Counted retries: when a failed processor is retried, and when its retries are used up.

use super::*;

#[test]
fn negative_retries_are_unlimited_and_uncounted() {
    let record = FailureRecord {
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
    let zero_retries = ProcessorSettings {
        retries: Some(retries(0)),
        ..settings(2, 0)
    };
    let mut service_test = ServiceTest::running(zero_retries.clone());
    service_test.end_process(0, ProcessOutcome::Failed);
    assert!(matches!(
        service_test.processors.service_outcome(),
        Some(ServiceOutcome::Failed(_))
    ));
    let continues_after_failure = ProcessorSettings {
        retries: Some(Retries {
            fail_service: false,
            ..retries(0)
        }),
        ..zero_retries
    };
    let mut service_test = ServiceTest::running(continues_after_failure);
    service_test.end_process(0, ProcessOutcome::Failed);
    assert_eq!(
        (
            service_test.state(0),
            service_test.processors.service_outcome()
        ),
        (State::Failed, None)
    );
    assert_eq!(service_test.requested_host(0), "nothing");
    assert!(
        !service_test.processors.is_healthy(),
        "a failed processor makes the service unhealthy"
    );
}

#[test]
fn only_the_gap_to_the_previous_failure_counts() {
    let record = |count, last_failure_ms, last_delay_ms| FailureRecord {
        count,
        last_failure_ms,
        last_delay_ms,
    };
    let count = |before: Option<FailureRecord>, now| match count_failure(
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
    let mut service_test = ServiceTest::running(ProcessorSettings {
        retries: Some(Retries {
            fail_service: false,
            ..retries(2)
        }),
        host_affinity: false,
        ..settings(1, 0)
    });
    for expected in [1, 2] {
        service_test.end_process(0, ProcessOutcome::Failed);
        assert_eq!(
            service_test
                .processors
                .get(0)
                .unwrap()
                .failures()
                .unwrap()
                .count,
            expected
        );
        service_test.run(0, "h0");
        service_test.advance(1_000);
    }
    let before = service_test.processors.get(0).unwrap().failures().copied();
    service_test.end_process(0, ProcessOutcome::Failed);
    assert_eq!(service_test.state(0), State::Failed);
    assert_eq!(
        service_test.processors.get(0).unwrap().failures().copied(),
        before
    );
}

#[test]
fn only_the_last_retry_on_one_host_is_delayed() {
    let delay = |count, requests_node| {
        let record = FailureRecord {
            count,
            last_failure_ms: 0,
            last_delay_ms: 0,
        };
        match count_failure(Some(&record), &retries(8), 10, requests_node) {
            RetryDecision::Retry(record) => record.last_delay_ms,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delay(6, true), 0);
    assert_eq!(delay(7, false), 0);
    assert_eq!(delay(7, true), 360_000 + CLOCK_SKEW_MS);
    let mut service_test = ServiceTest::running(ProcessorSettings {
        retries: Some(retries(1)),
        ..settings(1, 0)
    });
    service_test.end_process(0, ProcessOutcome::Failed);
    assert_eq!(service_test.requested_host(0), "nothing");
    assert_eq!(
        service_test
            .processors
            .due_ms(TIMEOUTS, service_test.now_ms),
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
    let mut service_test = ServiceTest::running(settings(1, 0));
    service_test.end_process(0, ProcessOutcome::Failed);
    assert_eq!(service_test.requested_host(0), "h0");
    let mut service_test = ServiceTest::running(ProcessorSettings {
        host_affinity: false,
        ..settings(1, 0)
    });
    service_test.end_process(0, ProcessOutcome::Failed);
    assert_eq!(service_test.requested_host(0), "any");
}

#[test]
fn the_delay_of_a_retry_continues_after_a_restart() {
    let record = FailureRecord {
        count: 8,
        last_failure_ms: time(0).wall_ms,
        last_delay_ms: 361_000,
    };
    let mut processors = Processors::new(settings(1, 0));
    processors.restore(0, Some(record), None, None);
    processors.restore_host(0, host("h0"));
    // The monotonic clock restarts.
    let now = Now {
        wall_ms: time(300_000).wall_ms,
        monotonic_ms: 7,
    };
    processors.open_missing_requests(now);
    assert!(!processors.demand(0, 7).wanted);
    assert_eq!(processors.due_ms(TIMEOUTS, 7), Some(7 + 61_000));
    assert!(processors.demand(0, 61_007).wanted);
}

#[test]
fn a_service_with_a_failed_processor_ends_failed() {
    let mut service_test = ServiceTest::running(ProcessorSettings {
        retries: Some(Retries {
            fail_service: false,
            ..retries(0)
        }),
        ..settings(2, 0)
    });
    service_test.end_process(0, ProcessOutcome::Failed);
    service_test.end_process(1, ProcessOutcome::Completed);
    assert!(matches!(
        service_test.processors.service_outcome(),
        Some(ServiceOutcome::Failed(_))
    ));
}

#[test]
fn a_service_without_retries_restarts_for_ever() {
    let mut service_test = ServiceTest::running(ProcessorSettings {
        retries: None,
        host_affinity: false,
        ..settings(1, 0)
    });
    for outcome in [ProcessOutcome::Completed, ProcessOutcome::Failed] {
        for _ in 0..50 {
            service_test.end_process(0, outcome);
            assert_eq!(
                (
                    service_test.requested_host(0).as_str(),
                    service_test.processors.service_outcome()
                ),
                ("any", None)
            );
            service_test.run(0, "h0");
        }
    }
}

#[test]
fn a_failed_processor_that_is_placed_again_clears_its_record() {
    let mut service_test = ServiceTest::running(ProcessorSettings {
        retries: Some(Retries {
            fail_service: false,
            ..retries(1)
        }),
        ..settings(1, 1)
    });
    service_test.end_process(0, ProcessOutcome::Failed);
    service_test.run(0, "h0");
    service_test.end_process(0, ProcessOutcome::Failed);
    assert_eq!(service_test.state(0), State::Failed);
    service_test.run(0, "h9");
    assert_eq!(
        (
            service_test.state(0),
            service_test.requested_host(0).as_str()
        ),
        (State::Running, "h9")
    );
    assert_eq!(service_test.processors.get(0).unwrap().failures(), None);
}
