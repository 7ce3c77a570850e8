//! Moves and restarts of a processor without standbys. These are scenarios 1 to 18 of the
//! specification of placements, in the same order.
//!
//! Start state: hosts `a` to `d`. Processor `0` runs on `a`, its standby `0-0` on `b`, and
//! processor `1` on `c`; `d` is free.
//! `fleet.request(uuid, processor, destination)` submits a request. The uuids of the requests are
//! `first`, `second` and so on.

mod failures_and_restarts;
mod node_loss;
mod standbys;

use crate::container_access::LiveState;
use crate::status::{Phase, QueueReason, Reason, Status};
use crate::submission::{Refusal, Submitted};
use crate::test_fleet::{TestFleet, host, work};

use Status::{BadRequest, Created, Failed, InProgress, Succeeded};

fn assert_succeeded(fleet: &TestFleet, uuid: &str, id: &str, host_name: &str) {
    assert_eq!(
        fleet.status(uuid),
        (Succeeded, None),
        "{}",
        fleet.placement(uuid).response_message
    );
    assert_eq!(fleet.running_host(id).as_deref(), Some(host_name));
    assert_eq!(fleet.placement(uuid).final_host, Some(host(host_name)));
    assert_eq!(
        fleet.env.unreserved_stops, 0,
        "no process was stopped without a reserved successor"
    );
}

fn assert_failed(fleet: &TestFleet, uuid: &str, reason: Reason) {
    assert_eq!(fleet.status(uuid), (Failed, Some(reason)));
    assert!(fleet.requests().is_empty(), "its request is withdrawn");
}

fn assert_refused(fleet: &TestFleet, uuid: &str, reason: Reason) {
    assert_eq!(fleet.status(uuid), (BadRequest, Some(reason)));
    assert!(fleet.env.stops.is_empty() && fleet.requests().is_empty());
}

#[test]
fn a_move_reserves_then_stops_then_starts() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current_container("1");
    fleet.request("first", "1", "d");
    assert_eq!(
        (fleet.status("first").0, fleet.phase("first")),
        (InProgress, Some(Phase::Running))
    );
    assert!(
        fleet.env.stops.is_empty(),
        "no stop before a successor is reserved"
    );
    fleet.grant_requests();
    fleet.advance();
    assert_eq!(fleet.phase("first"), Some(Phase::StopInProgress));
    assert_eq!(fleet.env.stops, std::slice::from_ref(&old));
    fleet.advance();
    assert_eq!(fleet.env.stops.len(), 1, "the stop is ordered once");
    fleet.end_container(&old);
    fleet.advance();
    assert_eq!(fleet.phase("first"), Some(Phase::Stopped));
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "d");
    assert_eq!(fleet.env.last_hosts[&work("1")], host("d"));
    assert_eq!(fleet.placement("first").source_host, Some(host("c")));
}

#[test]
fn a_move_to_the_current_host_restarts_there() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current_container("1");
    fleet.request("first", "1", "c");
    fleet.grant_requests();
    assert_eq!(
        fleet.env.containers.len(),
        4,
        "both containers are on one host until the first has ended"
    );
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "c");
    assert_ne!(fleet.current_container("1"), old);
}

#[test]
fn last_seen_restarts_a_running_process_on_its_host() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "LAST_SEEN");
    assert_eq!(fleet.placement("first").resolved_host.as_deref(), Some("c"));
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "c");
}

#[test]
fn any_host_may_be_the_current_one() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "ANY_HOST");
    fleet.grant_on("c");
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "c");
    assert_eq!(
        fleet.placement("first").resolved_host.as_deref(),
        Some("ANY_HOST")
    );
}

#[test]
fn without_host_affinity_the_target_is_ignored() {
    let mut fleet = TestFleet::standard();
    fleet.set_host_affinity(false);
    fleet.request("first", "1", "d");
    assert_eq!(
        fleet.placement("first").resolved_host.as_deref(),
        Some("ANY_HOST")
    );
    assert_eq!(fleet.placement("first").destination_host.to_string(), "d");
    fleet.grant_on("a");
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "a");
}

#[test]
fn a_request_that_is_never_granted_expires() {
    let mut fleet = TestFleet::standard();
    fleet.env.capacity.insert(host("d"), 0);
    fleet.request("first", "1", "d");
    fleet.grant_requests();
    fleet.advance_ms(5_000);
    assert_eq!(
        fleet.status("first").0,
        InProgress,
        "it does not expire before its time limit"
    );
    fleet.advance_ms(1);
    assert_failed(&fleet, "first", Reason::RequestExpired);
    assert_eq!(fleet.running_host("1").as_deref(), Some("c"));
    assert!(fleet.env.stops.is_empty());
    assert_eq!(fleet.placement("first").recovery_host, None);
}

#[test]
fn a_failed_stop_fails_the_move() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    fleet.grant_requests();
    fleet.advance();
    fleet.advance_ms(60_001);
    assert_failed(&fleet, "first", Reason::StopFailed);
    let has_held = fleet
        .env
        .containers
        .values()
        .any(|it| it.state == LiveState::Held && !it.ended);
    assert!(!has_held, "the reserved successor is released");
}

/// Moves `1` to `d` until its successor is ordered to start.
fn launch_successor(fleet: &mut TestFleet) -> hayward_vocabulary::AllocationId {
    fleet.request("first", "1", "d");
    let successor = fleet.grant_on("d");
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.advance();
    assert_eq!(fleet.env.containers[&successor].state, LiveState::Pending);
    successor
}

#[test]
fn a_failed_launch_on_the_target_fails_the_move() {
    let mut fleet = TestFleet::standard();
    let successor = launch_successor(&mut fleet);
    fleet.end_container(&successor);
    fleet.advance();
    assert_failed(&fleet, "first", Reason::LaunchFailed);
    assert_eq!(fleet.placement("first").recovery_host.as_deref(), Some("c"));
    assert_eq!(fleet.demand(), [work("1")], "the demand applies again (P1)");
    fleet.run_until_settled();
    assert_eq!(fleet.running_host("1").as_deref(), Some("c"));
}

#[test]
fn a_failed_launch_without_host_affinity_recovers_on_any_host() {
    let mut fleet = TestFleet::standard();
    fleet.set_host_affinity(false);
    let successor = launch_successor(&mut fleet);
    fleet.end_container(&successor);
    fleet.advance();
    assert_failed(&fleet, "first", Reason::LaunchFailed);
    assert_eq!(
        fleet.placement("first").recovery_host.as_deref(),
        Some("ANY_HOST")
    );
    fleet.run_until_settled();
    assert!(fleet.running_host("1").is_some());
}

#[test]
fn a_failed_restart_after_a_failed_launch_changes_no_status() {
    let mut fleet = TestFleet::standard();
    let successor = launch_successor(&mut fleet);
    fleet.end_container(&successor);
    fleet.advance();
    let before = fleet.placement("first").clone();
    fleet.grant_demand();
    let restarted = fleet.current_container("1");
    fleet.end_container(&restarted);
    fleet.advance();
    assert_eq!(
        *fleet.placement("first"),
        before,
        "the status does not change"
    );
    assert_eq!(fleet.demand(), [work("1")]);
}

#[test]
fn a_process_that_ends_before_the_grant_starts_on_the_target() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.advance();
    assert_eq!(fleet.phase("first"), Some(Phase::Stopped));
    assert!(
        fleet.demand().is_empty(),
        "the request replaces the demand of the process"
    );
    assert!(
        fleet.placements.replaces(&old),
        "its end does not count as a failure"
    );
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "d");
}

#[test]
fn a_process_that_ends_before_an_expired_request_is_restarted() {
    let mut fleet = TestFleet::standard();
    fleet.env.capacity.insert(host("d"), 0);
    fleet.request("first", "1", "d");
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.advance_ms(5_001);
    assert_failed(&fleet, "first", Reason::RequestExpired);
    assert_eq!(fleet.placement("first").recovery_host.as_deref(), Some("c"));
    assert_eq!(fleet.demand(), [work("1")], "the demand applies again (P1)");
    fleet.run_until_settled();
    assert_eq!(fleet.running_host("1").as_deref(), Some("c"));
}

#[test]
fn an_allocation_lost_during_the_stop_is_requested_again() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    let successor = fleet.grant_on("d");
    let first: Vec<String> = fleet.requests().into_keys().collect();
    fleet.env.now_ms += 4_000;
    fleet.end_container(&successor);
    fleet.advance();
    assert_eq!(fleet.status("first").0, InProgress);
    assert_ne!(
        fleet.requests().into_keys().collect::<Vec<_>>(),
        first,
        "a new request"
    );
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.advance_ms(4_000);
    assert_eq!(
        fleet.status("first").0,
        InProgress,
        "the new request has its full time"
    );
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "d");
}

#[test]
fn an_unknown_processor_or_a_pool_worker_is_refused() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "7", "d");
    assert_refused(&fleet, "first", Reason::UnknownProcessor);
    fleet.request("third", "wp_1.0", "d");
    assert_refused(&fleet, "third", Reason::PoolManaged);
}

#[test]
fn a_reused_uuid_is_refused_and_a_repeated_request_is_not() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    let first = fleet.placement("first").clone();
    assert_eq!(
        fleet.submit("first", "1", "a", None),
        Err(Refusal::UuidReused)
    );
    assert_eq!(
        fleet.submit("first", "1", "d", Some(7)),
        Err(Refusal::UuidReused)
    );
    let repeated = fleet.submit("first", "1", "d", None);
    assert_eq!(repeated, Ok(Submitted::Repeated(first.clone())));
    assert_eq!(
        *fleet.placement("first"),
        first,
        "the first outcome does not change"
    );
}

#[test]
fn an_ended_deployment_fails_its_requests() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    fleet.submit("second", "1", "a", None).unwrap();
    fleet
        .env
        .ended_deployments
        .insert(crate::test_fleet::DEPLOYMENT.to_owned());
    fleet.env.processors.clear();
    fleet.advance();
    assert_eq!(fleet.status("first"), (Failed, Some(Reason::JobEnded)));
    assert_eq!(
        fleet.status("second"),
        (BadRequest, Some(Reason::StaleDeployment))
    );
    assert!(fleet.env.stops.is_empty() && fleet.requests().is_empty());
}

#[test]
fn a_second_request_queues_or_is_rejected() {
    let mut fleet = TestFleet::standard();
    fleet.request("first", "1", "d");
    fleet.env.now_ms += 1;
    fleet.request("second", "1", "a");
    assert_eq!(
        (fleet.status("second").0, fleet.queue_reason("second")),
        (Created, Some(QueueReason::SelfInFlight))
    );
    fleet.run_until_settled();
    assert_eq!(fleet.status("first").0, Succeeded);
    assert_succeeded(&fleet, "second", "1", "a");
    let mut request = fleet.new_request("third", "1", "b", None);
    request.reject_if_busy = true;
    fleet.request("fourth", "1", "c");
    let busy = fleet.placements.submit(request, &fleet.env);
    assert_eq!(busy, Err(Refusal::Busy("fourth".to_owned())));
}

#[test]
fn a_request_waits_until_the_process_has_started() {
    let mut fleet = TestFleet::standard();
    let old = fleet.current_container("1");
    fleet.end_container(&old);
    fleet.request("first", "1", "d");
    assert_eq!(
        fleet.queue_reason("first"),
        Some(QueueReason::NotRunningYet)
    );
    fleet.grant_demand();
    fleet.advance();
    assert_eq!(
        fleet.queue_reason("first"),
        Some(QueueReason::NotRunningYet)
    );
    fleet.run_until_settled();
    assert_succeeded(&fleet, "first", "1", "d");
}
