//! The scenarios of the specification (13) and its worked examples (18), by number.
//!
//! 35–40 speak of processes without an action: their preferred host, their failover. Those are
//! decided by the rungs above; what is held here is that the machine keeps out of it.

mod nodes;
mod others;
mod standbys;

use crate::environment::LiveState;
use crate::model::{Refusal, Submitted};
use crate::status::{Phase, QueueReason, Reason, Status};
use crate::test_fleet::{TestFleet, host, work};

use Status::{BadRequest, Created, Failed, InProgress, Succeeded};

fn done(fleet: &TestFleet, uuid: &str, id: &str, on: &str) {
    assert_eq!(
        fleet.status(uuid),
        (Succeeded, None),
        "{}",
        fleet.at(uuid).response_message
    );
    assert_eq!(fleet.host_of(id).as_deref(), Some(on));
    assert_eq!(fleet.at(uuid).final_host, Some(host(on)));
    assert_eq!(fleet.env.unreserved_stops, 0, "no place, no stop");
}

fn failed(fleet: &TestFleet, uuid: &str, reason: Reason) {
    assert_eq!(fleet.status(uuid), (Failed, Some(reason)));
    assert!(fleet.requests().is_empty(), "its request is withdrawn");
}

fn refused(fleet: &TestFleet, uuid: &str, reason: Reason) {
    assert_eq!(fleet.status(uuid), (BadRequest, Some(reason)));
    assert!(fleet.env.stops.is_empty() && fleet.requests().is_empty());
}

#[test]
fn s01_move_to_a_free_host() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current("1");
    fleet.request("u", "1", "d");
    assert_eq!(
        (fleet.status("u").0, fleet.phase("u")),
        (InProgress, Some(Phase::Running))
    );
    assert!(fleet.env.stops.is_empty(), "no place yet, no stop");
    fleet.serve();
    fleet.tick();
    assert_eq!(fleet.phase("u"), Some(Phase::StopInProgress));
    assert_eq!(fleet.env.stops, std::slice::from_ref(&old));
    fleet.tick();
    assert_eq!(fleet.env.stops.len(), 1, "nothing is sent again");
    fleet.end(&old);
    fleet.tick();
    assert_eq!(fleet.phase("u"), Some(Phase::Stopped));
    fleet.settle();
    done(&fleet, "u", "1", "d");
    assert_eq!(fleet.env.last_hosts[&work("1")], host("d"));
    assert_eq!(fleet.at("u").source_host, Some(host("c")));
}

#[test]
fn s02_move_to_the_current_host() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current("1");
    fleet.request("u", "1", "c");
    fleet.serve();
    assert_eq!(
        fleet.env.containers.len(),
        4,
        "two places on one host for a moment"
    );
    fleet.settle();
    done(&fleet, "u", "1", "c");
    assert_ne!(fleet.current("1"), old);
}

#[test]
fn s03_last_seen_of_what_runs() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "LAST_SEEN");
    assert_eq!(fleet.at("u").resolved_host.as_deref(), Some("c"));
    fleet.settle();
    done(&fleet, "u", "1", "c");
}

#[test]
fn s04_any_host_may_be_the_same() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "ANY_HOST");
    fleet.grant_on("c");
    fleet.settle();
    done(&fleet, "u", "1", "c");
    assert_eq!(fleet.at("u").resolved_host.as_deref(), Some("ANY_HOST"));
}

#[test]
fn s05_without_affinity_the_target_is_ignored() {
    let mut fleet = TestFleet::standard();
    fleet.affinity(false);
    fleet.request("u", "1", "d");
    assert_eq!(fleet.at("u").resolved_host.as_deref(), Some("ANY_HOST"));
    assert_eq!(fleet.at("u").destination_host.to_string(), "d");
    fleet.grant_on("a");
    fleet.settle();
    done(&fleet, "u", "1", "a");
}

#[test]
fn s06_a_target_never_granted_expires() {
    let mut fleet = TestFleet::standard();
    fleet.env.capacity.insert(host("d"), 0);
    fleet.request("u", "1", "d");
    fleet.serve();
    fleet.advance_ms(5_000);
    assert_eq!(
        fleet.status("u").0,
        InProgress,
        "strictly later than its time"
    );
    fleet.advance_ms(1);
    failed(&fleet, "u", Reason::RequestExpired);
    assert_eq!(fleet.host_of("1").as_deref(), Some("c"));
    assert!(fleet.env.stops.is_empty());
    assert_eq!(fleet.at("u").recovery_host, None);
}

#[test]
fn s07_the_stop_of_the_old_one_fails() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "d");
    fleet.serve();
    fleet.tick();
    fleet.advance_ms(60_001);
    failed(&fleet, "u", Reason::StopFailed);
    let held = fleet
        .env
        .containers
        .values()
        .any(|it| it.state == LiveState::Held && !it.ended);
    assert!(!held, "what was held is surplus");
}

/// Up to where the successor is told to start.
fn launched(fleet: &mut TestFleet) -> hayward_vocabulary::AllocationId {
    fleet.request("u", "1", "d");
    let place = fleet.grant_on("d");
    let old = fleet.current("1");
    fleet.end(&old);
    fleet.tick();
    assert_eq!(fleet.env.containers[&place].state, LiveState::Pending);
    place
}

#[test]
fn s08_the_launch_on_the_target_fails() {
    let mut fleet = TestFleet::standard();
    let place = launched(&mut fleet);
    fleet.end(&place);
    fleet.tick();
    failed(&fleet, "u", Reason::LaunchFailed);
    assert_eq!(fleet.at("u").recovery_host.as_deref(), Some("c"));
    assert_eq!(fleet.demand(), [work("1")], "exactly one asking (P1)");
    fleet.settle();
    assert_eq!(fleet.host_of("1").as_deref(), Some("c"));
}

#[test]
fn s09_as_8_without_affinity() {
    let mut fleet = TestFleet::standard();
    fleet.affinity(false);
    let place = launched(&mut fleet);
    fleet.end(&place);
    fleet.tick();
    failed(&fleet, "u", Reason::LaunchFailed);
    assert_eq!(fleet.at("u").recovery_host.as_deref(), Some("ANY_HOST"));
    fleet.settle();
    assert!(fleet.host_of("1").is_some());
}

#[test]
fn s10_as_8_and_the_source_fails_too() {
    let mut fleet = TestFleet::standard();
    let place = launched(&mut fleet);
    fleet.end(&place);
    fleet.tick();
    let said = fleet.at("u").clone();
    fleet.serve_demand();
    let again = fleet.current("1");
    fleet.end(&again);
    fleet.tick();
    assert_eq!(*fleet.at("u"), said, "no second status");
    assert_eq!(fleet.demand(), [work("1")]);
}

#[test]
fn s11_it_dies_while_a_place_is_sought() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "d");
    let old = fleet.current("1");
    fleet.end(&old);
    fleet.tick();
    assert_eq!(fleet.phase("u"), Some(Phase::Stopped));
    assert!(
        fleet.demand().is_empty(),
        "the request stands in for the everyday restart"
    );
    assert!(
        fleet.placements.replaces(&old),
        "so its end counts as no failure"
    );
    fleet.settle();
    done(&fleet, "u", "1", "d");
}

#[test]
fn s12_as_11_and_the_request_expires() {
    let mut fleet = TestFleet::standard();
    fleet.env.capacity.insert(host("d"), 0);
    fleet.request("u", "1", "d");
    let old = fleet.current("1");
    fleet.end(&old);
    fleet.advance_ms(5_001);
    failed(&fleet, "u", Reason::RequestExpired);
    assert_eq!(fleet.at("u").recovery_host.as_deref(), Some("c"));
    assert_eq!(fleet.demand(), [work("1")], "P1");
    fleet.settle();
    assert_eq!(fleet.host_of("1").as_deref(), Some("c"));
}

#[test]
fn s13_the_reserved_place_is_lost_during_the_stop() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "d");
    let place = fleet.grant_on("d");
    let first: Vec<String> = fleet.requests().into_keys().collect();
    fleet.env.now_ms += 4_000;
    fleet.end(&place);
    fleet.tick();
    assert_eq!(fleet.status("u").0, InProgress);
    assert_ne!(
        fleet.requests().into_keys().collect::<Vec<_>>(),
        first,
        "a new request"
    );
    let old = fleet.current("1");
    fleet.end(&old);
    fleet.advance_ms(4_000);
    assert_eq!(fleet.status("u").0, InProgress, "its clock began anew");
    fleet.settle();
    done(&fleet, "u", "1", "d");
}

#[test]
fn s14_an_unknown_processor() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "7", "d");
    refused(&fleet, "u", Reason::UnknownProcessor);
    fleet.request("w", "wp_1.0", "d");
    refused(&fleet, "w", Reason::PoolManaged);
}

#[test]
fn s15_a_uuid_used_again() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "d");
    let first = fleet.at("u").clone();
    assert_eq!(fleet.submit("u", "1", "a", None), Err(Refusal::UuidReused));
    assert_eq!(
        fleet.submit("u", "1", "d", Some(7)),
        Err(Refusal::UuidReused)
    );
    let replay = fleet.submit("u", "1", "d", None);
    assert_eq!(replay, Ok(Submitted::Repeated(first.clone())));
    assert_eq!(*fleet.at("u"), first, "the first outcome is kept");
}

#[test]
fn s16_a_dead_deployment() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "d");
    fleet.submit("v", "1", "a", None).unwrap();
    fleet
        .env
        .dead
        .insert(crate::test_fleet::DEPLOYMENT.to_owned());
    fleet.env.processors.clear();
    fleet.tick();
    assert_eq!(fleet.status("u"), (Failed, Some(Reason::JobEnded)));
    assert_eq!(
        fleet.status("v"),
        (BadRequest, Some(Reason::StaleDeployment))
    );
    assert!(fleet.env.stops.is_empty() && fleet.requests().is_empty());
}

#[test]
fn s17_a_second_request_waits_its_turn() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "d");
    fleet.env.now_ms += 1;
    fleet.request("v", "1", "a");
    assert_eq!(
        (fleet.status("v").0, fleet.queue_reason("v")),
        (Created, Some(QueueReason::SelfInFlight))
    );
    fleet.settle();
    assert_eq!(fleet.status("u").0, Succeeded);
    done(&fleet, "v", "1", "a");
    let mut request = fleet.new_request("w", "1", "b", None);
    request.reject_if_busy = true;
    fleet.request("x", "1", "c");
    let busy = fleet.placements.submit(request, &fleet.env);
    assert_eq!(busy, Err(Refusal::Busy("x".to_owned())));
}

#[test]
fn s18_a_request_while_it_is_being_started() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current("1");
    fleet.end(&old);
    fleet.request("u", "1", "d");
    assert_eq!(fleet.queue_reason("u"), Some(QueueReason::NotRunningYet));
    fleet.serve_demand();
    fleet.tick();
    assert_eq!(fleet.queue_reason("u"), Some(QueueReason::NotRunningYet));
    fleet.settle();
    done(&fleet, "u", "1", "d");
}
