//! Failed processors, forced restarts, blocked hosts, processes without an action, and restarts of
//! container-manager. These are scenarios 28 to 42 of the specification of placements, then its
//! worked examples.
//!
//! Start state: hosts `a` to `d`. Processor `0` runs on `a`, its standby `0-0` on `b`, and
//! processor `1` on `c`; `d` is free. `fleet.request(uuid, processor, destination)` submits a
//! request.

use super::{assert_failed, assert_refused, assert_succeeded, launch_successor};
use crate::container_access::LiveState;
use crate::status::{Phase, Reason, Status};
use crate::test_fleet::{LIMITS, TestFleet, host, work};

use Status::{InProgress, Succeeded};

#[test]
fn a_failed_processor_is_started_on_the_target() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.set_failed("1", true);
    fleet.request("first", "1", "d");
    assert_eq!(
        fleet.phase("first"),
        Some(Phase::Stopped),
        "nothing to stop"
    );
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "d");
    assert!(!fleet.env.processors[&work("1")].failed);
}

#[test]
fn a_failed_processor_without_an_allocation_stays_failed() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.set_failed("1", true);
    fleet.request("first", "1", "d");
    fleet.advance_ms(5_001);
    assert_failed(&fleet, "first", Reason::RequestExpired);
    assert_eq!(fleet.placement("first").recovery_host, None);
    assert!(
        fleet.demand().is_empty(),
        "it stays failed and has no demand"
    );
}

#[test]
fn a_forced_restart_succeeds_when_the_stop_is_ordered() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current_container("1");
    fleet.request("first", "1", "FORCE_RESTART_LAST_SEEN");
    assert_eq!(
        fleet.status("first"),
        (Succeeded, None),
        "it succeeds when the stop is ordered"
    );
    assert_eq!(fleet.phase("first"), Some(Phase::StopInProgress));
    assert_eq!(fleet.env.stops, std::slice::from_ref(&old));
    assert!(fleet.requests().is_empty());
    fleet.run_until_settled();
    assert_eq!(fleet.running_host("1").as_deref(), Some("c"));
    assert_ne!(fleet.current_container("1"), old);
}

#[test]
fn a_forced_restart_of_a_stopped_process_is_refused() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.request("first", "1", "FORCE_RESTART_LAST_SEEN");
    assert_refused(&fleet, "first", Reason::NotRunning);
}

#[test]
fn a_blocked_target_is_refused() {
    let mut fleet = TestFleet::standard();
    fleet.env.closed_hosts.insert(host("d"));
    fleet.request("first", "1", "d");
    assert_refused(&fleet, "first", Reason::DestinationBlocked);
}

#[test]
fn a_target_blocked_before_the_stop_fails_the_move() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    fleet.grant_requests();
    fleet.env.closed_hosts.insert(host("d"));
    fleet.advance();
    assert_failed(&fleet, "first", Reason::DestinationBlocked);
    assert!(fleet.env.stops.is_empty());
    assert_eq!(fleet.running_host("1").as_deref(), Some("c"));
    assert!(
        fleet
            .env
            .containers
            .values()
            .all(|it| it.state != LiveState::Held || it.ended)
    );
}

#[test]
fn a_target_blocked_after_the_stop_is_still_used() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    fleet.grant_on("d");
    fleet.env.closed_hosts.insert(host("d"));
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "d");
}

#[test]
fn a_failed_launch_with_a_blocked_source_recovers_on_any_host() {
    let mut fleet = TestFleet::standard();
    let successor = launch_successor(&mut fleet);
    fleet.env.closed_hosts.insert(host("c"));
    fleet.end_container(&successor);
    fleet.advance();
    assert_failed(&fleet, "first", Reason::LaunchFailed);
    assert_eq!(
        fleet.placement("first").recovery_host.as_deref(),
        Some("ANY_HOST")
    );
    fleet.run_until_settled();
    assert_ne!(fleet.running_host("1").as_deref(), Some("c"));
}

/// Checks that a process which ends without an action causes no request and no stop. Its permanent
/// demand alone restarts it.
fn assert_no_action(mut fleet: TestFleet, id: &str) {
    let other_before = fleet.current_container("1");
    let ended = fleet.current_container(id);
    fleet.end_container(&ended);
    fleet.advance_ms(3_600_000);
    assert!(fleet.requests().is_empty() && fleet.env.stops.is_empty());
    assert_eq!(
        fleet.placements.next_deadline(&LIMITS),
        None,
        "there is no deadline"
    );
    assert_eq!(fleet.current_container("1"), other_before);
    assert_eq!(
        fleet.demand(),
        [work(id)],
        "only the permanent demand remains"
    );
}

#[test]
fn a_process_with_a_spare_host_restarts_without_an_action() {
    assert_no_action(TestFleet::standard(), "0");
}

#[test]
fn a_process_without_a_spare_host_restarts_without_an_action() {
    let mut fleet = TestFleet::standard();
    fleet.env.capacity.insert(host("d"), 0);
    assert_no_action(fleet, "0");
}

#[test]
fn a_process_without_host_affinity_restarts_without_an_action() {
    let mut fleet = TestFleet::standard();
    fleet.set_host_affinity(false);
    assert_no_action(fleet, "0");
}

#[test]
fn a_lost_node_with_a_standby_needs_no_action() {
    assert_no_action(TestFleet::standard(), "0");
}

#[test]
fn a_lost_node_with_the_standby_down_needs_no_action() {
    let mut fleet = TestFleet::standard();
    fleet.set_failed("0-0", true);
    let standby = fleet.current_container("0-0");
    fleet.end_container(&standby);
    assert_no_action(fleet, "0");
}

#[test]
fn a_lost_node_without_a_last_host_needs_no_action() {
    let mut fleet = TestFleet::standard();
    fleet.env.last_hosts.clear();
    assert_no_action(fleet, "0");
}

#[test]
fn an_action_before_the_stop_fails_at_a_manager_restart() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    fleet.grant_requests();
    fleet.restart();
    assert_failed(&fleet, "first", Reason::ManagerRestarted);
    assert_eq!(fleet.running_host("1").as_deref(), Some("c"));
    assert!(fleet.env.stops.is_empty());
    assert!(
        fleet
            .env
            .containers
            .values()
            .all(|it| it.state != LiveState::Held || it.ended)
    );
}

#[test]
fn a_queued_request_continues_after_a_manager_restart() {
    let mut fleet = TestFleet::standard();
    fleet.submit("first", "1", "d", None).unwrap();
    fleet.restart();
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "d");
}

#[test]
fn an_action_continues_after_a_manager_restart_during_the_stop() {
    for has_stopped in [false, true] {
        let mut fleet = TestFleet::standard();
        fleet.request("first", "1", "d");
        fleet.grant_on("d");
        if has_stopped {
            let old = fleet.current_container("1");
            fleet.end_container(&old);
        }
        fleet.restart();
        fleet.run_until_settled();
        assert_succeeded(&fleet, "first", "1", "d");
        assert_eq!(fleet.env.stops.len(), 1, "the stop is ordered once");
    }
}

#[test]
fn a_rolling_restart_without_space_needs_force() {
    let mut fleet = TestFleet::new();
    fleet.env.capacity.insert(host("rackB-07"), 3);
    for id in ["4", "5", "6"] {
        fleet.add_active(id);
        fleet.add_running(id, "rackB-07");
    }
    let old = fleet.current_container("4");
    fleet
        .submit("first", "4", "LAST_SEEN", Some(30_000))
        .unwrap();
    fleet.advance();
    fleet.grant_requests();
    fleet.advance_ms(29_999);
    assert_eq!(fleet.status("first").0, InProgress);
    fleet.advance_ms(2);
    assert_failed(&fleet, "first", Reason::RequestExpired);
    assert!(fleet.env.stops.is_empty());
    fleet.request("second", "4", "FORCE_RESTART_LAST_SEEN");
    assert_eq!(fleet.status("second").0, Succeeded);
    fleet.run_until_settled();
    assert_eq!(fleet.running_host("4").as_deref(), Some("rackB-07"));
    assert_ne!(fleet.current_container("4"), old);
}

#[test]
fn a_crash_during_a_move_restarts_the_process_on_the_target_or_by_demand() {
    for is_granted in [true, false] {
        let mut fleet = TestFleet::new();
        fleet.env.capacity.insert(host("n21"), 1);
        fleet
            .env
            .capacity
            .insert(host("n40"), usize::from(is_granted));
        fleet.add_active("9");
        let old = fleet.add_running("9", "n21");
        fleet.request("first", "9", "n40");
        fleet.end_container(&old);
        fleet.advance();
        assert_eq!(fleet.phase("first"), Some(Phase::Stopped));
        assert!(
            fleet.demand().is_empty(),
            "the open request replaces the demand"
        );
        fleet.advance_ms(2_000);
        fleet.run_until_settled();
        if is_granted {
            assert_succeeded(&fleet, "first", "9", "n40");
        } else {
            fleet.advance_ms(3_001);
            assert_failed(&fleet, "first", Reason::RequestExpired);
            assert_eq!(fleet.demand(), [work("9")], "the demand applies again");
        }
    }
}

#[test]
fn a_takeover_with_two_standbys_moves_one() {
    let mut fleet = TestFleet::new();
    for name in ["a", "b", "c", "d"] {
        fleet.env.capacity.insert(host(name), 4);
    }
    fleet.add_active("2");
    fleet.add_standby("2", 0);
    fleet.add_standby("2", 1);
    fleet.add_running("2", "a");
    fleet.add_running("2-0", "b");
    fleet.add_running("2-1", "c");
    fleet.request("first", "2", "STANDBY");
    let mut exclude = fleet.placement("first.1").progress.exclude.clone();
    exclude.sort();
    assert_eq!(exclude, [host("a"), host("b"), host("c")]);
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "2", "b");
    assert_eq!(fleet.running_host("2-0").as_deref(), Some("d"));
    assert_eq!(fleet.running_host("2-1").as_deref(), Some("c"));
}

/// The other cause may be a drain, which starts a successor that it reserved first (decision 0020).
#[test]
fn a_container_started_by_another_cause_ends_the_action() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.add_running("1", "b");
    fleet.advance();
    let failed = (Status::Failed, Some(Reason::ConstraintAtLaunch));
    assert_eq!(fleet.status("first"), failed);
    assert!(fleet.requests().is_empty());
    assert_eq!(
        fleet.placement("first").recovery_host,
        None,
        "the process is up"
    );
    assert_eq!(fleet.running_host("1").as_deref(), Some("b"));
}

#[test]
fn a_host_outside_the_machines_of_the_service_is_refused_at_once() {
    let mut fleet = TestFleet::standard();
    fleet.env.machines = vec![host("a"), host("b"), host("c")];
    fleet.request("first", "1", "d");
    assert_refused(&fleet, "first", Reason::NotAListedMachine);
    let message = &fleet.placement("first").response_message;
    assert!(
        message.contains("(a, b, c)") && message.contains("`force`"),
        "{message}"
    );
    // The request is refused at once, although another action is in flight.
    fleet.request("second", "1", "ANY_HOST");
    fleet.request("third", "1", "d");
    assert_eq!(
        fleet.status("third"),
        (Status::BadRequest, Some(Reason::NotAListedMachine))
    );
    fleet.run_until_settled();
    assert_ne!(
        fleet.running_host("1").as_deref(),
        Some("c"),
        "the second request moved it"
    );
}

#[test]
fn a_move_or_restart_on_an_unlisted_host_needs_force() {
    let mut fleet = TestFleet::standard();
    fleet.env.machines = vec![host("a"), host("b"), host("c")];
    fleet.force = true;
    fleet.request("first", "1", "d");
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "d");
    fleet.request("second", "1", "LAST_SEEN");
    fleet.run_until_settled();
    assert_succeeded(&fleet, "second", "1", "d");
    fleet.force = false;
    fleet.request("third", "1", "LAST_SEEN");
    assert_eq!(
        fleet.status("third"),
        (Status::BadRequest, Some(Reason::NotAListedMachine))
    );
}

#[test]
fn a_takeover_of_an_unlisted_host_needs_force() {
    let mut fleet = TestFleet::standard();
    fleet.env.machines = vec![host("a"), host("c"), host("d")];
    fleet.request("first", "0", "STANDBY");
    assert_refused(&fleet, "first", Reason::NoStandby);
    fleet.force = true;
    fleet.request("second", "0", "STANDBY");
    fleet.run_until_settled();
    assert_succeeded(&fleet, "second", "0", "b");
}
