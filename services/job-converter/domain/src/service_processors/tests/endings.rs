//! Ends of processes: how each is classified, and what it means for its processor and service.

use super::*;

#[test]
fn each_exit_cause_has_its_class() {
    let class = |cause| classify_exit(Some(&Exit::of(cause, "")), false);
    assert_eq!(class(ExitCause::Success), Ending::Completed);
    assert_eq!(class(ExitCause::UserError), Ending::Failure);
    assert_eq!(class(ExitCause::UserLimit), Ending::Failure);
    assert_eq!(class(ExitCause::LaunchFailed), Ending::LaunchFailed);
    assert_eq!(class(ExitCause::Node), Ending::Lost);
    assert_eq!(class(ExitCause::LaunchUnknown), Ending::Lost);
    assert_eq!(class(ExitCause::Unknown), Ending::Lost);
    assert_eq!(class(ExitCause::Intended), Ending::Restarted);
    let disk = Exit {
        cause_code: Some("disk_full".to_owned()),
        ..Exit::of(ExitCause::UserError, "")
    };
    assert_eq!(classify_exit(Some(&disk), false), Ending::Lost);
    for cause in [ExitCause::Success, ExitCause::UserError, ExitCause::Node] {
        let result = classify_exit(Some(&Exit::of(cause, "")), true);
        assert_eq!(
            result,
            Ending::Intended,
            "the end of a vacated process is no failure"
        );
    }
}

#[test]
fn a_service_completes_when_all_processors_exit_with_0() {
    let mut service_test = ServiceTest::running(settings(2, 1));
    service_test.end_process(0, Ending::Failure);
    service_test.run(0, "h0");
    service_test.end_process(0, Ending::Completed);
    assert_eq!(service_test.state(0), State::Completed);
    assert_eq!(service_test.processors.get(0).unwrap().record(), None);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.processors.end()
        ),
        ("nothing", None)
    );
    service_test.end_process(1, Ending::Completed);
    // Standbys end with their actives.
    assert_eq!(service_test.processors.end(), Some(End::Completed));
}

#[test]
fn an_end_without_fault_is_not_counted_and_accepts_any_host() {
    let mut service_test = ServiceTest::running(settings(1, 0));
    for ending in [Ending::Lost, Ending::LaunchFailed] {
        service_test.end_process(0, ending);
        assert_eq!(service_test.requested_host(0), "any", "{ending:?}");
        assert_eq!(service_test.processors.get(0).unwrap().record(), None);
        service_test.run(0, "h0");
    }
    service_test.end_process(0, Ending::Restarted);
    assert_eq!(
        service_test.requested_host(0),
        "h0",
        "a restart prefers the last host"
    );
    assert_eq!(service_test.processors.get(0).unwrap().record(), None);
}

#[test]
fn a_superseded_end_changes_nothing() {
    let mut service_test = ServiceTest::running(settings(1, 0));
    let old = service_test.occupant(0);
    service_test.run(0, "elsewhere");
    service_test.processors.on_ended(
        0,
        placement(&old),
        Ending::Failure,
        time(service_test.now_ms),
    );
    assert_eq!(
        (
            service_test.state(0),
            service_test.processors.get(0).unwrap().record()
        ),
        (State::Running, None)
    );
}
