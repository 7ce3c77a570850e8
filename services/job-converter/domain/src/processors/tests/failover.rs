//! Failover to a standby.

use super::*;

#[test]
fn a_lost_active_takes_the_host_of_its_running_standby() {
    let mut service_test = ServiceTest::running(terms(1, 2));
    assert_eq!(
        service_test.requested_host(0),
        "h0",
        "lost, it is put nowhere before a standby was chosen"
    );
    service_test.vacate(0);
    assert_eq!(
        service_test.requested_host(1),
        "nothing",
        "the standby is stopped"
    );
    assert_eq!(service_test.requested_host(0), "nothing", "and waited for");
    assert_eq!(service_test.requested_host(2), "any", "its sibling goes on");
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
    assert!(service_test.all.is_healthy());
    assert!(
        service_test.all.get(0).unwrap().failover().is_none(),
        "the service has ended"
    );
    assert_eq!(service_test.all.get(0).unwrap().record(), None);
}

#[test]
fn a_lost_active_takes_the_last_host_of_its_standby() {
    let mut service_test = ServiceTest::running(terms(1, 1));
    service_test.end_process(1, Ending::Lost);
    service_test.vacate(0);
    assert_eq!(service_test.requested_host(0), "h1");
    service_test.run(0, "h1");
    assert!(service_test.all.get(0).unwrap().failover().is_none());
}

#[test]
fn a_lost_active_without_known_hosts_accepts_any_host() {
    let mut service_test = ServiceTest::new(terms(1, 1));
    service_test.run(0, "h0");
    service_test.vacate(0);
    assert_eq!(service_test.requested_host(0), "any");
    assert!(service_test.all.get(0).unwrap().failover().is_some());
}

#[test]
fn the_longest_running_standby_takes_over() {
    let mut service_test = ServiceTest::running(terms(1, 3));
    service_test.advance(60_000);
    service_test.end_process(1, Ending::Lost);
    service_test.run(1, "h5");
    let silent = Occupant {
        up_since_ms: None,
        ..service_test.occupant(2)
    };
    service_test.all.set_occupant(2, Some(silent), 1);
    service_test.vacate(0);
    assert_eq!(
        service_test.requested_host(3),
        "nothing",
        "it stood by all the time"
    );
    assert_eq!(
        (
            service_test.requested_host(1).as_str(),
            service_test.requested_host(2).as_str()
        ),
        ("any", "any"),
        "one has just started, the node of the other does not answer"
    );
    service_test.end_vacated(3);
    assert_eq!(service_test.requested_host(0), "h3");
}

/// Both losses arrive at one instant, in either order.
#[test]
fn an_active_lost_together_with_a_standby_goes_to_the_one_that_is_left() {
    for (first, second) in [(0, 1), (1, 0)] {
        let mut service_test = ServiceTest::running(terms(1, 2));
        service_test.lose_node(first);
        service_test.lose_node(second);
        service_test.advance(0);
        assert_eq!(service_test.requested_host(0), "nothing");
        assert_eq!(
            service_test.requested_host(1),
            "any",
            "it is asked for anew, and not where it was"
        );
        assert_eq!(
            service_test.requested_host(2),
            "nothing",
            "makes place at once"
        );
        service_test.run(1, "h5");
        service_test.end_vacated(2);
        assert_eq!(service_test.requested_host(0), "h2");
    }
}

#[test]
fn no_failover_goes_to_a_host_that_is_lost() {
    let mut service_test = ServiceTest::running(terms(1, 1));
    service_test.lose_node(1);
    service_test.lose_node(0);
    service_test.advance(0);
    assert_eq!(
        service_test.requested_host(0),
        "any",
        "and waits for nothing"
    );
    // The node is back, and a process was placed on it.
    service_test.run(1, "h1");
    service_test.run(0, "h2");
    service_test.end_process(1, Ending::Lost);
    service_test.vacate(0);
    assert_eq!(service_test.requested_host(0), "h1");
}

#[test]
fn a_repeated_loss_is_one_failover() {
    let mut service_test = ServiceTest::running(terms(1, 2));
    let lost = service_test.occupant(0);
    service_test.vacate(0);
    service_test
        .all
        .on_ended(0, placement(&lost), Ending::Lost, time(service_test.now));
    service_test.advance(0);
    let failover = service_test.all.get(0).unwrap().failover().unwrap();
    assert_eq!(failover.waits_for, Some(1));
    assert_eq!(
        service_test.requested_host(2),
        "any",
        "the second standby is left alone"
    );
}

#[test]
fn a_failure_tries_its_own_host_before_the_failover() {
    let mut service_test = ServiceTest::running(terms(1, 1));
    service_test.end_process(0, Ending::Failure);
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
    let mut service_test = ServiceTest::running(terms(1, 2));
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
        "all of them are used"
    );
    // The first standby runs on its old node again. It stays used.
    service_test.run(1, "h1");
    let (allocation, host) = (id("alc_late"), host("h7"));
    let lost = Placement {
        allocation: &allocation,
        host: &host,
    };
    service_test
        .all
        .on_ended(0, lost, Ending::LaunchFailed, time(service_test.now));
    assert_eq!(
        service_test.requested_host(0),
        "any",
        "the failover has forgotten nothing"
    );
    service_test.run(0, "h8");
    service_test.vacate(0);
    assert_eq!(
        service_test.requested_host(1),
        "nothing",
        "a new one may use it"
    );
}

#[test]
fn a_failed_launch_starts_a_failover() {
    let mut service_test = ServiceTest::running(terms(1, 1));
    service_test.end_process(1, Ending::LaunchFailed);
    assert_eq!(service_test.requested_host(1), "any");
    service_test.run(1, "h1");
    service_test.end_process(0, Ending::LaunchFailed);
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
    let mut service_test = ServiceTest::running(terms(1, 1));
    service_test.end_process(1, Ending::Failure);
    assert_eq!(service_test.requested_host(1), "h1");
    service_test.advance(5_001);
    assert_eq!(service_test.requested_host(1), "any");
}

#[test]
fn a_standby_that_does_not_stop_is_skipped() {
    let mut service_test = ServiceTest::running(terms(1, 2));
    service_test.vacate(0);
    service_test.advance(600_000);
    assert_eq!(service_test.requested_host(1), "any", "believed to run");
    assert_eq!(service_test.requested_host(2), "nothing", "the next choice");
}

#[test]
fn two_standbys_on_one_host_fail_the_service() {
    let mut service_test = ServiceTest::running(terms(1, 2));
    service_test.run(2, "h1");
    service_test.vacate(0);
    assert!(
        matches!(service_test.all.end(), Some(End::Failed(why)) if why.contains("must never be"))
    );
}

#[test]
fn a_failover_outlives_the_manager() {
    let mut service_test = ServiceTest::running(terms(1, 2));
    service_test.vacate(0);
    let failover = service_test.all.get(0).unwrap().failover().cloned();
    let mut all = Processors::new(terms(1, 2));
    all.restore(0, None, None, failover);
    for slot in 0..3 {
        all.restore_host(slot, host(&format!("h{slot}")));
    }
    all.begin(time(0));
    let mut after = ServiceTest {
        all,
        now: 0,
        allocations: 90,
    };
    let standby = Occupant {
        allocation: id("alc_2"),
        host: host("h1"),
        running: true,
        up_since_ms: Some(0),
        stale: false,
    };
    after.all.set_occupant(1, Some(standby), 1);
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
        "h1 stays used, the next one is asked"
    );
}
