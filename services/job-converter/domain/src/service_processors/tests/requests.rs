//! Requests of processors without a process: which node they request, and when they expire.

use super::*;

#[test]
fn each_slot_has_one_processor_id() {
    let settings = settings(3, 2);
    let names: Vec<String> = (0..settings.count())
        .map(|slot| settings.id_at(slot).to_string())
        .collect();
    let expected = ["0", "1", "2", "0-0", "0-1", "1-0", "1-1", "2-0", "2-1"];
    assert_eq!(names, expected);
    for slot in 0..settings.count() {
        assert_eq!(settings.slot(settings.id_at(slot)), Some(slot));
    }
    let unknown_id = ProcessorId {
        active: 1,
        replica: Some(2),
    };
    assert_eq!(settings.slot(unknown_id), None);
    assert_eq!(settings.partners(3).collect::<Vec<_>>(), [0, 4]);
}

#[test]
fn an_expired_request_for_the_last_host_accepts_any_host() {
    let mut service_test = ServiceTest::running(settings(1, 0));
    service_test.end_process(0, ProcessOutcome::Restarted);
    service_test.advance(5_000);
    assert_eq!(
        service_test.requested_host(0),
        "h0",
        "the request is not older than its timeout"
    );
    assert_eq!(
        service_test
            .processors
            .due_ms(TIMEOUTS, service_test.now_ms),
        Some(5_001)
    );
    service_test.advance(1);
    assert_eq!(service_test.requested_host(0), "any");
}

#[test]
fn a_spare_host_serves_an_expired_request() {
    // An expired request names no node, so any node satisfies it.
    let mut service_test = ServiceTest::running(settings(1, 0));
    service_test.end_process(0, ProcessOutcome::Failed);
    service_test.advance(5_001);
    service_test.run(0, "spare");
    assert_eq!(service_test.state(0), State::Running);
    service_test.end_process(0, ProcessOutcome::Failed);
    assert_eq!(
        service_test.requested_host(0),
        "spare",
        "the start changed the last host"
    );
}

#[test]
fn an_expired_request_without_a_spare_accepts_any_host() {
    let mut service_test = ServiceTest::running(settings(1, 0));
    service_test.end_process(0, ProcessOutcome::Failed);
    service_test.advance(5_001);
    for _ in 0..100 {
        assert_eq!(service_test.requested_host(0), "any");
        assert_eq!(
            service_test
                .processors
                .due_ms(TIMEOUTS, service_test.now_ms),
            None,
            "no further timeout is due"
        );
        service_test.advance(60_000);
    }
}

#[test]
fn a_request_without_affinity_never_expires() {
    let mut service_test = ServiceTest::new(ProcessorSettings {
        host_affinity: false,
        ..settings(1, 0)
    });
    service_test.advance(1_000_000);
    assert_eq!(service_test.requested_host(0), "any");
    assert_eq!(
        service_test
            .processors
            .due_ms(TIMEOUTS, service_test.now_ms),
        None
    );
    assert!(
        service_test.processors.take_events().is_empty(),
        "waiting adds no events"
    );
}

#[test]
fn a_restart_adopts_running_processes_without_new_requests() {
    let mut service_test = ServiceTest::new(settings(1, 1));
    service_test.run(0, "h4");
    service_test.run(1, "h5");
    assert!(service_test.processors.is_healthy());
    assert_eq!(service_test.requested_host(0), "h4");
    assert_eq!(
        service_test
            .processors
            .due_ms(TIMEOUTS, service_test.now_ms),
        None
    );
}

#[test]
fn a_service_without_affinity_requests_no_particular_host() {
    let mut service_test = ServiceTest::running(ProcessorSettings {
        host_affinity: false,
        ..settings(1, 1)
    });
    assert_eq!(service_test.requested_host(0), "any");
    service_test.vacate(0);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(1).as_str()
        ),
        ("any", "any")
    );
}
