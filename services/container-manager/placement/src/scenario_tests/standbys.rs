//! Moves of an active and its standbys, which must not share a host. These are scenarios 19 to 27
//! of the specification of placements.
//!
//! Start state: hosts `a` to `d`. Processor `0` runs on `a`, its standby `0-0` on `b`, and
//! processor `1` on `c`; `d` is free. `fleet.request(uuid, processor, destination)` submits a
//! request.

use super::{assert_failed, assert_refused, assert_succeeded};
use crate::status::{QueueReason, Reason, Status};
use crate::test_fleet::{TestFleet, host};

use Status::{BadRequest, Failed, Succeeded};

#[test]
fn an_active_may_not_move_to_the_host_of_its_standby() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "0", "b");
    assert_refused(&fleet, "first", Reason::StandbyConstraint);
}

#[test]
fn a_standby_may_not_move_to_the_host_of_its_active() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "0-0", "a");
    assert_refused(&fleet, "first", Reason::StandbyConstraint);
}

#[test]
fn an_active_waits_while_its_standby_moves() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "0-0", "d");
    fleet.request("second", "0", "c");
    assert_eq!(
        fleet.queue_reason("second"),
        Some(QueueReason::StandbyInFlight)
    );
    fleet.run_until_settled();
    assert_succeeded(&fleet, "second", "0", "c");
}

#[test]
fn a_standby_waits_while_its_active_moves() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "0", "d");
    fleet.request("second", "0-0", "c");
    assert_eq!(
        fleet.queue_reason("second"),
        Some(QueueReason::ActiveInFlight)
    );
    fleet.run_until_settled();
    assert_succeeded(&fleet, "second", "0-0", "c");
}

#[test]
fn two_standbys_may_not_move_to_one_host() {
    let mut fleet = TestFleet::standard();
    fleet.add_standby("0", 1);
    fleet.add_running("0-1", "c");
    fleet.request("first", "0-0", "d");
    fleet.request("second", "0-1", "d");
    assert_eq!(
        fleet.status("second"),
        (BadRequest, Some(Reason::StandbyConstraint))
    );
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "0-0", "d");
    assert_eq!(fleet.running_host("0-1").as_deref(), Some("c"));
}

#[test]
fn a_shared_host_found_after_the_stop_fails_the_move() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "0", "d");
    fleet.grant_on("d");
    let (old, standby) = (fleet.current_container("0"), fleet.current_container("0-0"));
    fleet.end_container(&old);
    fleet.end_container(&standby);
    fleet.add_running("0-0", "d");
    fleet.advance();
    assert_failed(&fleet, "first", Reason::ConstraintAtLaunch);
    assert_eq!(fleet.placement("first").recovery_host.as_deref(), Some("a"));
    fleet.run_until_settled();
    assert_eq!(fleet.running_host("0").as_deref(), Some("a"));
}

#[test]
fn a_shared_host_found_before_the_stop_leads_to_another_request() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "0", "ANY_HOST");
    let shared = fleet.grant_on("b");
    assert!(
        fleet.env.stops.is_empty(),
        "a healthy process is not stopped"
    );
    assert!(fleet.env.containers[&shared].ended);
    assert_eq!(fleet.placement("first").progress.exclude, [host("b")]);
    fleet.run_until_settled();
    assert_eq!(fleet.status("first").0, Succeeded);
    assert_ne!(fleet.running_host("0").as_deref(), Some("b"));
}

#[test]
fn an_active_takes_over_the_host_of_its_standby() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "0", "STANDBY");
    fleet.request("second", "0", "d");
    assert_eq!(
        fleet.queue_reason("second"),
        Some(QueueReason::SelfInFlight),
        "no other action starts in between"
    );
    assert_eq!(
        fleet.placement("first.1").destination_host.to_string(),
        "ANY_HOST"
    );
    for _ in 0..3 {
        fleet.grant_requests();
        fleet.run_nodes();
    }
    fleet.placements.withdraw("second").unwrap();
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "0", "b");
    assert_eq!(fleet.status("first.1").0, Succeeded);
    assert_eq!(fleet.status("first.2").0, Succeeded);
    assert_ne!(fleet.running_host("0-0").as_deref(), Some("a"));
}

#[test]
fn a_takeover_without_a_standby_is_refused() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "STANDBY");
    assert_refused(&fleet, "first", Reason::NoStandby);
    fleet.request("second", "0-0", "STANDBY");
    assert_refused(&fleet, "second", Reason::NoStandby);
}

#[test]
fn a_takeover_fails_when_its_first_move_expires() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "0", "STANDBY");
    fleet.advance_ms(5_001);
    assert_failed(&fleet, "first", Reason::RequestExpired);
    assert_eq!(
        fleet.status("first.1"),
        (Failed, Some(Reason::RequestExpired))
    );
    assert!(fleet.placements.get("first.2").is_none() && fleet.env.stops.is_empty());
    assert_eq!(
        (fleet.running_host("0"), fleet.running_host("0-0")),
        (Some("a".into()), Some("b".into()))
    );
}
