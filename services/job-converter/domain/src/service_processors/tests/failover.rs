//! Failover of an active to a standby. Slot 0 is the active, and the next slots are its standbys.
//! At the start, slot N runs on node hN.

use super::*;

#[test]
fn a_lost_active_takes_the_host_of_its_running_standby() {
    let mut service_test = ServiceTest::running(settings(1, 2));
    assert_eq!(
        service_test.requested_host(0),
        "h0",
        "a running active requests its own node, so that a loss does not place it elsewhere"
    );
    service_test.vacate(0);
    assert_eq!(
        service_test.requested_host(1),
        "nothing",
        "the standby is stopped"
    );
    assert_eq!(
        service_test.requested_host(0),
        "nothing",
        "the active waits for the standby"
    );
    assert_eq!(
        service_test.requested_host(2),
        "any",
        "the other standby continues"
    );
    service_test.vacate(1);
    assert_eq!(service_test.requested_host(0), "nothing");
    service_test.end_vacated(1);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(1).as_str()
        ),
        ("h1", "any")
    );
    service_test.run(0, "h1");
    service_test.run(1, "h5");
    assert!(service_test.processors.is_healthy());
    assert!(
        service_test.processors.get(0).unwrap().failover().is_none(),
        "the failover has ended"
    );
    assert_eq!(service_test.processors.get(0).unwrap().failures(), None);
}

#[test]
fn a_lost_active_takes_the_last_host_of_its_standby() {
    let mut service_test = ServiceTest::running(settings(1, 1));
    service_test.end_process(1, ProcessOutcome::Lost);
    service_test.vacate(0);
    assert_eq!(service_test.requested_host(0), "h1");
    service_test.run(0, "h1");
    assert!(service_test.processors.get(0).unwrap().failover().is_none());
}

#[test]
fn a_lost_active_without_known_hosts_accepts_any_host() {
    let mut service_test = ServiceTest::new(settings(1, 1));
    service_test.run(0, "h0");
    service_test.vacate(0);
    assert_eq!(service_test.requested_host(0), "any");
    assert!(service_test.processors.get(0).unwrap().failover().is_some());
}

#[test]
fn the_longest_running_standby_takes_over() {
    let mut service_test = ServiceTest::running(settings(1, 3));
    service_test.advance(60_000);
    service_test.end_process(1, ProcessOutcome::Lost);
    service_test.run(1, "h5");
    let not_running = Occupant {
        up_since_ms: None,
        ..service_test.occupant(2)
    };
    service_test
        .processors
        .set_occupant(2, Some(not_running), 1);
    service_test.vacate(0);
    assert_eq!(
        service_test.requested_host(3),
        "nothing",
        "the standby that runs longest is stopped"
    );
    assert_eq!(
        (
            service_test.requested_host(1).as_str(),
            service_test.requested_host(2).as_str()
        ),
        ("any", "any"),
        "standby 1 has just started, and standby 2 does not run"
    );
    service_test.end_vacated(3);
    assert_eq!(service_test.requested_host(0), "h3");
}

/// Both losses arrive at one instant, in either order.
#[test]
fn an_active_lost_together_with_a_standby_fails_over_to_the_other_standby() {
    for (first, second) in [(0, 1), (1, 0)] {
        let mut service_test = ServiceTest::running(settings(1, 2));
        service_test.lose_node(first);
        service_test.lose_node(second);
        service_test.advance(0);
        assert_eq!(service_test.requested_host(0), "nothing");
        assert_eq!(
            service_test.requested_host(1),
            "any",
            "the lost standby is requested on any node"
        );
        assert_eq!(
            service_test.requested_host(2),
            "nothing",
            "the other standby is stopped at once"
        );
        service_test.run(1, "h5");
        service_test.end_vacated(2);
        assert_eq!(service_test.requested_host(0), "h2");
    }
}

#[test]
fn no_failover_goes_to_a_host_that_is_lost() {
    let mut service_test = ServiceTest::running(settings(1, 1));
    service_test.lose_node(1);
    service_test.lose_node(0);
    service_test.advance(0);
    assert_eq!(
        service_test.requested_host(0),
        "any",
        "the active waits for no standby"
    );
    // The node is back, and a process was placed on it.
    service_test.run(1, "h1");
    service_test.run(0, "h2");
    service_test.end_process(1, ProcessOutcome::Lost);
    service_test.vacate(0);
    assert_eq!(service_test.requested_host(0), "h1");
}

#[test]
fn a_repeated_loss_is_one_failover() {
    let mut service_test = ServiceTest::running(settings(1, 2));
    let lost = service_test.occupant(0);
    service_test.vacate(0);
    service_test.processors.on_ended(
        0,
        placement(&lost),
        ProcessOutcome::Lost,
        time(service_test.now_ms),
    );
    service_test.advance(0);
    let failover = service_test.processors.get(0).unwrap().failover().unwrap();
    assert_eq!(failover.waits_for, Some(1));
    assert_eq!(
        service_test.requested_host(2),
        "any",
        "the second standby continues"
    );
}

#[test]
fn a_failure_tries_its_own_host_before_the_failover() {
    let mut service_test = ServiceTest::running(settings(1, 1));
    service_test.end_process(0, ProcessOutcome::Failed);
    assert_eq!(service_test.requested_host(0), "h0");
    assert_eq!(service_test.requested_host(1), "any");
    service_test.advance(5_001);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(1).as_str()
        ),
        ("nothing", "nothing")
    );
    service_test.end_vacated(1);
    assert_eq!(service_test.requested_host(0), "h1");
}

#[test]
fn a_failover_does_not_choose_an_expired_host_again() {
    let mut service_test = ServiceTest::running(settings(1, 2));
    service_test.vacate(0);
    service_test.end_vacated(1);
    assert_eq!(service_test.requested_host(0), "h1");
    service_test.advance(5_001);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(2).as_str()
        ),
        ("nothing", "nothing")
    );
    service_test.end_vacated(2);
    assert_eq!(service_test.requested_host(0), "h2");
    service_test.advance(5_001);
    assert_eq!(
        service_test.requested_host(0),
        "any",
        "all known nodes were tried"
    );
    // The first standby runs on its old node again. The failover does not try this node again.
    service_test.run(1, "h1");
    let (allocation, host) = (allocation_id("alc_late"), host("h7"));
    let lost = Placement {
        allocation: &allocation,
        host: &host,
    };
    service_test.processors.on_ended(
        0,
        lost,
        ProcessOutcome::LaunchFailed,
        time(service_test.now_ms),
    );
    assert_eq!(
        service_test.requested_host(0),
        "any",
        "the failover remembers the tried nodes"
    );
    service_test.run(0, "h8");
    service_test.vacate(0);
    assert_eq!(
        service_test.requested_host(1),
        "nothing",
        "a new failover may use the node of standby 1"
    );
}

#[test]
fn a_failed_launch_starts_a_failover() {
    let mut service_test = ServiceTest::running(settings(1, 1));
    service_test.end_process(1, ProcessOutcome::LaunchFailed);
    assert_eq!(service_test.requested_host(1), "any");
    service_test.run(1, "h1");
    service_test.end_process(0, ProcessOutcome::LaunchFailed);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(1).as_str()
        ),
        ("nothing", "nothing")
    );
}

#[test]
fn an_expired_standby_accepts_any_host() {
    let mut service_test = ServiceTest::running(settings(1, 1));
    service_test.end_process(1, ProcessOutcome::Failed);
    assert_eq!(service_test.requested_host(1), "h1");
    service_test.advance(5_001);
    assert_eq!(service_test.requested_host(1), "any");
}

#[test]
fn a_standby_that_does_not_stop_is_skipped() {
    let mut service_test = ServiceTest::running(settings(1, 2));
    service_test.vacate(0);
    service_test.advance(600_000);
    assert_eq!(
        service_test.requested_host(1),
        "any",
        "the standby did not end, so it continues"
    );
    assert_eq!(
        service_test.requested_host(2),
        "nothing",
        "the next standby is stopped"
    );
}

#[test]
fn two_standbys_on_one_host_fail_the_service() {
    let mut service_test = ServiceTest::running(settings(1, 2));
    service_test.run(2, "h1");
    service_test.vacate(0);
    let end = service_test.processors.service_outcome();
    assert!(matches!(end, Some(ServiceOutcome::Failed(why)) if why.contains("must never be")));
}

#[test]
fn a_failover_continues_after_a_restart() {
    let mut service_test = ServiceTest::running(settings(1, 2));
    service_test.vacate(0);
    let failover = service_test.processors.get(0).unwrap().failover().cloned();
    let mut processors = Processors::new(settings(1, 2));
    processors.restore(0, None, None, failover);
    for slot in 0..3 {
        processors.restore_host(slot, host(&format!("h{slot}")));
    }
    processors.open_missing_requests(time(0));
    let mut after = ServiceTest {
        processors,
        now_ms: 0,
        allocations: 90,
    };
    let standby = Occupant {
        allocation: allocation_id("alc_2"),
        host: host("h1"),
        running: true,
        up_since_ms: Some(0),
        stale: false,
    };
    after.processors.set_occupant(1, Some(standby), 1);
    after.run(2, "h2");
    assert_eq!(
        (
            after.requested_host(0).as_str(),
            after.requested_host(1).as_str()
        ),
        ("nothing", "nothing")
    );
    after.end_vacated(1);
    assert_eq!(
        (
            after.requested_host(0).as_str(),
            after.requested_host(1).as_str()
        ),
        ("h1", "any")
    );
    after.advance(5_001);
    assert_eq!(
        after.requested_host(2),
        "nothing",
        "node h1 was tried, so the next standby is stopped"
    );
}
