//! Scenarios 1 to 18 of the specification of placements, in its order: moves and restarts.

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
    assert_eq!(
        fleet.env.unreserved_stops, 0,
        "no stop without a reserved place"
    );
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
fn a_move_reserves_then_stops_then_starts() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current("1");
    fleet.request("u", "1", "d");
    assert_eq!(
        (fleet.status("u").0, fleet.phase("u")),
        (InProgress, Some(Phase::Running))
    );
    assert!(
        fleet.env.stops.is_empty(),
        "no stop before a place is reserved"
    );
    fleet.serve();
    fleet.tick();
    assert_eq!(fleet.phase("u"), Some(Phase::StopInProgress));
    assert_eq!(fleet.env.stops, std::slice::from_ref(&old));
    fleet.tick();
    assert_eq!(fleet.env.stops.len(), 1, "the stop is ordered once");
    fleet.end(&old);
    fleet.tick();
    assert_eq!(fleet.phase("u"), Some(Phase::Stopped));
    fleet.settle();
    done(&fleet, "u", "1", "d");
    assert_eq!(fleet.env.last_hosts[&work("1")], host("d"));
    assert_eq!(fleet.at("u").source_host, Some(host("c")));
}

#[test]
fn a_move_to_the_current_host_restarts_there() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current("1");
    fleet.request("u", "1", "c");
    fleet.serve();
    assert_eq!(
        fleet.env.containers.len(),
        4,
        "both containers are on one host for a moment"
    );
    fleet.settle();
    done(&fleet, "u", "1", "c");
    assert_ne!(fleet.current("1"), old);
}

#[test]
fn last_seen_restarts_a_running_process_on_its_host() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "LAST_SEEN");
    assert_eq!(fleet.at("u").resolved_host.as_deref(), Some("c"));
    fleet.settle();
    done(&fleet, "u", "1", "c");
}

#[test]
fn any_host_may_be_the_current_one() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "ANY_HOST");
    fleet.grant_on("c");
    fleet.settle();
    done(&fleet, "u", "1", "c");
    assert_eq!(fleet.at("u").resolved_host.as_deref(), Some("ANY_HOST"));
}

#[test]
fn without_affinity_the_target_is_ignored() {
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
fn a_request_that_is_never_granted_expires() {
    let mut fleet = TestFleet::standard();
    fleet.env.capacity.insert(host("d"), 0);
    fleet.request("u", "1", "d");
    fleet.serve();
    fleet.advance_ms(5_000);
    assert_eq!(
        fleet.status("u").0,
        InProgress,
        "it expires only after its time"
    );
    fleet.advance_ms(1);
    failed(&fleet, "u", Reason::RequestExpired);
    assert_eq!(fleet.host_of("1").as_deref(), Some("c"));
    assert!(fleet.env.stops.is_empty());
    assert_eq!(fleet.at("u").recovery_host, None);
}

#[test]
fn a_failed_stop_fails_the_move() {
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
    assert!(!held, "the reserved place is released");
}

/// A move whose successor was ordered to start.
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
fn a_failed_launch_on_the_target_fails_the_move() {
    let mut fleet = TestFleet::standard();
    let place = launched(&mut fleet);
    fleet.end(&place);
    fleet.tick();
    failed(&fleet, "u", Reason::LaunchFailed);
    assert_eq!(fleet.at("u").recovery_host.as_deref(), Some("c"));
    assert_eq!(fleet.demand(), [work("1")], "the demand applies again (P1)");
    fleet.settle();
    assert_eq!(fleet.host_of("1").as_deref(), Some("c"));
}

#[test]
fn a_failed_launch_without_affinity_recovers_anywhere() {
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
fn a_failed_restart_after_a_failed_launch_changes_no_status() {
    let mut fleet = TestFleet::standard();
    let place = launched(&mut fleet);
    fleet.end(&place);
    fleet.tick();
    let before = fleet.at("u").clone();
    fleet.serve_demand();
    let again = fleet.current("1");
    fleet.end(&again);
    fleet.tick();
    assert_eq!(*fleet.at("u"), before, "the status does not change");
    assert_eq!(fleet.demand(), [work("1")]);
}

#[test]
fn a_process_that_ends_before_the_grant_starts_on_the_target() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "d");
    let old = fleet.current("1");
    fleet.end(&old);
    fleet.tick();
    assert_eq!(fleet.phase("u"), Some(Phase::Stopped));
    assert!(
        fleet.demand().is_empty(),
        "the request replaces the demand of the process"
    );
    assert!(
        fleet.placements.replaces(&old),
        "its end does not count as a failure"
    );
    fleet.settle();
    done(&fleet, "u", "1", "d");
}

#[test]
fn a_process_that_ends_before_an_expired_request_is_restarted() {
    let mut fleet = TestFleet::standard();
    fleet.env.capacity.insert(host("d"), 0);
    fleet.request("u", "1", "d");
    let old = fleet.current("1");
    fleet.end(&old);
    fleet.advance_ms(5_001);
    failed(&fleet, "u", Reason::RequestExpired);
    assert_eq!(fleet.at("u").recovery_host.as_deref(), Some("c"));
    assert_eq!(fleet.demand(), [work("1")], "the demand applies again (P1)");
    fleet.settle();
    assert_eq!(fleet.host_of("1").as_deref(), Some("c"));
}

#[test]
fn a_place_lost_during_the_stop_is_requested_again() {
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
    assert_eq!(
        fleet.status("u").0,
        InProgress,
        "the new request has its full time"
    );
    fleet.settle();
    done(&fleet, "u", "1", "d");
}

#[test]
fn an_unknown_processor_is_refused() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "7", "d");
    refused(&fleet, "u", Reason::UnknownProcessor);
    fleet.request("w", "wp_1.0", "d");
    refused(&fleet, "w", Reason::PoolManaged);
}

#[test]
fn a_reused_uuid_is_refused_and_a_repeated_request_is_not() {
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
    assert_eq!(*fleet.at("u"), first, "the first outcome stays");
}

#[test]
fn an_ended_deployment_fails_its_requests() {
    let mut fleet = TestFleet::standard();
    fleet.request("u", "1", "d");
    fleet.submit("v", "1", "a", None).unwrap();
    fleet
        .env
        .ended_deployments
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
fn a_second_request_queues_or_is_rejected() {
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
fn a_request_waits_until_the_process_has_started() {
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
