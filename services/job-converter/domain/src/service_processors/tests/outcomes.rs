//! Outcomes of processes, and the resulting outcomes of their processors and service.

use super::*;

#[test]
fn each_exit_cause_has_its_outcome() {
    let outcome = |cause| classify_exit(Some(&Exit::of(cause, "")), false);
    assert_eq!(outcome(ExitCause::Success), ProcessOutcome::Completed);
    assert_eq!(outcome(ExitCause::UserError), ProcessOutcome::Failed);
    assert_eq!(outcome(ExitCause::UserLimit), ProcessOutcome::Failed);
    assert_eq!(
        outcome(ExitCause::LaunchFailed),
        ProcessOutcome::LaunchFailed
    );
    assert_eq!(outcome(ExitCause::Node), ProcessOutcome::Lost);
    assert_eq!(outcome(ExitCause::LaunchUnknown), ProcessOutcome::Lost);
    assert_eq!(outcome(ExitCause::Unknown), ProcessOutcome::Lost);
    assert_eq!(outcome(ExitCause::Intended), ProcessOutcome::Restarted);
    let disk = Exit {
        cause_code: Some("disk_full".to_owned()),
        ..Exit::of(ExitCause::UserError, "")
    };
    assert_eq!(classify_exit(Some(&disk), false), ProcessOutcome::Lost);
    for cause in [ExitCause::Success, ExitCause::UserError, ExitCause::Node] {
        let result = classify_exit(Some(&Exit::of(cause, "")), true);
        assert_eq!(
            result,
            ProcessOutcome::Intended,
            "the end of a vacated process is no failure"
        );
    }
}

#[test]
fn a_service_completes_when_all_processors_exit_with_0() {
    let mut service_test = ServiceTest::running(settings(2, 1));
    service_test.end_process(0, ProcessOutcome::Failed);
    service_test.run(0, "h0");
    service_test.end_process(0, ProcessOutcome::Completed);
    assert_eq!(service_test.state(0), State::Completed);
    assert_eq!(service_test.processors.get(0).unwrap().failures(), None);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.processors.service_outcome()
        ),
        ("nothing", None)
    );
    service_test.end_process(1, ProcessOutcome::Completed);
    // Standbys end with their actives.
    assert_eq!(
        service_test.processors.service_outcome(),
        Some(ServiceOutcome::Completed)
    );
}

#[test]
fn an_end_without_fault_is_not_counted_and_accepts_any_host() {
    let mut service_test = ServiceTest::running(settings(1, 0));
    for outcome in [ProcessOutcome::Lost, ProcessOutcome::LaunchFailed] {
        service_test.end_process(0, outcome);
        assert_eq!(service_test.requested_host(0), "any", "{outcome:?}");
        assert_eq!(service_test.processors.get(0).unwrap().failures(), None);
        service_test.run(0, "h0");
    }
    service_test.end_process(0, ProcessOutcome::Restarted);
    assert_eq!(
        service_test.requested_host(0),
        "h0",
        "a restart prefers the last host"
    );
    assert_eq!(service_test.processors.get(0).unwrap().failures(), None);
}

#[test]
fn a_superseded_end_changes_nothing() {
    let mut service_test = ServiceTest::running(settings(1, 0));
    let old = service_test.occupant(0);
    service_test.run(0, "elsewhere");
    service_test.processors.on_ended(
        0,
        placement(&old),
        ProcessOutcome::Failed,
        time(service_test.now_ms),
    );
    assert_eq!(
        (
            service_test.state(0),
            service_test.processors.get(0).unwrap().failures()
        ),
        (State::Running, None)
    );
}
