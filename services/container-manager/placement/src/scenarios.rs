//! The scenarios of the specification (13) and its worked examples (18), by number.
//!
//! 35–40 speak of processes without an action: their preferred host, their failover. Those are
//! decided by the rungs above; what is held here is that the machine keeps out of it.

mod nodes;
mod others;
mod standbys;

use crate::environment::StandState;
use crate::model::{Refusal, Submitted};
use crate::status::{Phase, Queued, Reason, Status};
use crate::test_fleet::{Trial, host, work};

use Status::{BadRequest, Created, Failed, InProgress, Succeeded};

fn done(trial: &Trial, uuid: &str, id: &str, on: &str) {
    assert_eq!(
        trial.status(uuid),
        (Succeeded, None),
        "{}",
        trial.at(uuid).response_message
    );
    assert_eq!(trial.is_on(id).as_deref(), Some(on));
    assert_eq!(trial.at(uuid).final_host, Some(host(on)));
    assert_eq!(trial.fleet.bare_stops, 0, "no place, no stop");
}

fn failed(trial: &Trial, uuid: &str, reason: Reason) {
    assert_eq!(trial.status(uuid), (Failed, Some(reason)));
    assert!(trial.requests().is_empty(), "its request is withdrawn");
}

fn refused(trial: &Trial, uuid: &str, reason: Reason) {
    assert_eq!(trial.status(uuid), (BadRequest, Some(reason)));
    assert!(trial.fleet.stops.is_empty() && trial.requests().is_empty());
}

#[test]
fn s01_move_to_a_free_host() {
    let mut trial = Trial::usual();
    let old = trial.standing("1");
    trial.order("u", "1", "d");
    assert_eq!(
        (trial.status("u").0, trial.phase("u")),
        (InProgress, Some(Phase::Running))
    );
    assert!(trial.fleet.stops.is_empty(), "no place yet, no stop");
    trial.serve();
    trial.tick();
    assert_eq!(trial.phase("u"), Some(Phase::StopInProgress));
    assert_eq!(trial.fleet.stops, std::slice::from_ref(&old));
    trial.tick();
    assert_eq!(trial.fleet.stops.len(), 1, "nothing is sent again");
    trial.ends(&old);
    trial.tick();
    assert_eq!(trial.phase("u"), Some(Phase::Stopped));
    trial.settle();
    done(&trial, "u", "1", "d");
    assert_eq!(trial.fleet.last[&work("1")], host("d"));
    assert_eq!(trial.at("u").source_host, Some(host("c")));
}

#[test]
fn s02_move_to_the_current_host() {
    let mut trial = Trial::usual();
    let old = trial.standing("1");
    trial.order("u", "1", "c");
    trial.serve();
    assert_eq!(
        trial.fleet.places.len(),
        4,
        "two places on one host for a moment"
    );
    trial.settle();
    done(&trial, "u", "1", "c");
    assert_ne!(trial.standing("1"), old);
}

#[test]
fn s03_last_seen_of_what_runs() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "LAST_SEEN");
    assert_eq!(trial.at("u").resolved_host.as_deref(), Some("c"));
    trial.settle();
    done(&trial, "u", "1", "c");
}

#[test]
fn s04_any_host_may_be_the_same() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "ANY_HOST");
    trial.grant_on("c");
    trial.settle();
    done(&trial, "u", "1", "c");
    assert_eq!(trial.at("u").resolved_host.as_deref(), Some("ANY_HOST"));
}

#[test]
fn s05_without_affinity_the_target_is_ignored() {
    let mut trial = Trial::usual();
    trial.affinity(false);
    trial.order("u", "1", "d");
    assert_eq!(trial.at("u").resolved_host.as_deref(), Some("ANY_HOST"));
    assert_eq!(trial.at("u").destination_host.to_string(), "d");
    trial.grant_on("a");
    trial.settle();
    done(&trial, "u", "1", "a");
}

#[test]
fn s06_a_target_never_granted_expires() {
    let mut trial = Trial::usual();
    trial.fleet.room.insert(host("d"), 0);
    trial.order("u", "1", "d");
    trial.serve();
    trial.pass(5_000);
    assert_eq!(
        trial.status("u").0,
        InProgress,
        "strictly later than its time"
    );
    trial.pass(1);
    failed(&trial, "u", Reason::RequestExpired);
    assert_eq!(trial.is_on("1").as_deref(), Some("c"));
    assert!(trial.fleet.stops.is_empty());
    assert_eq!(trial.at("u").recovery_host, None);
}

#[test]
fn s07_the_stop_of_the_old_one_fails() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    trial.serve();
    trial.tick();
    trial.pass(60_001);
    failed(&trial, "u", Reason::StopFailed);
    let held = trial
        .fleet
        .places
        .values()
        .any(|it| it.state == StandState::Held && !it.ended);
    assert!(!held, "what was held is surplus");
}

/// Up to where the successor is told to start.
fn launched(trial: &mut Trial) -> hayward_vocabulary::AllocationId {
    trial.order("u", "1", "d");
    let place = trial.grant_on("d");
    let old = trial.standing("1");
    trial.ends(&old);
    trial.tick();
    assert_eq!(trial.fleet.places[&place].state, StandState::Pending);
    place
}

#[test]
fn s08_the_launch_on_the_target_fails() {
    let mut trial = Trial::usual();
    let place = launched(&mut trial);
    trial.ends(&place);
    trial.tick();
    failed(&trial, "u", Reason::LaunchFailed);
    assert_eq!(trial.at("u").recovery_host.as_deref(), Some("c"));
    assert_eq!(trial.asking(), [work("1")], "exactly one asking (P1)");
    trial.settle();
    assert_eq!(trial.is_on("1").as_deref(), Some("c"));
}

#[test]
fn s09_as_8_without_affinity() {
    let mut trial = Trial::usual();
    trial.affinity(false);
    let place = launched(&mut trial);
    trial.ends(&place);
    trial.tick();
    failed(&trial, "u", Reason::LaunchFailed);
    assert_eq!(trial.at("u").recovery_host.as_deref(), Some("ANY_HOST"));
    trial.settle();
    assert!(trial.is_on("1").is_some());
}

#[test]
fn s10_as_8_and_the_source_fails_too() {
    let mut trial = Trial::usual();
    let place = launched(&mut trial);
    trial.ends(&place);
    trial.tick();
    let said = trial.at("u").clone();
    trial.everyday();
    let again = trial.standing("1");
    trial.ends(&again);
    trial.tick();
    assert_eq!(*trial.at("u"), said, "no second status");
    assert_eq!(trial.asking(), [work("1")]);
}

#[test]
fn s11_it_dies_while_a_place_is_sought() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    let old = trial.standing("1");
    trial.ends(&old);
    trial.tick();
    assert_eq!(trial.phase("u"), Some(Phase::Stopped));
    assert!(
        trial.asking().is_empty(),
        "the request stands in for the everyday restart"
    );
    assert!(
        trial.machine.replaces(&old),
        "so its end counts as no failure"
    );
    trial.settle();
    done(&trial, "u", "1", "d");
}

#[test]
fn s12_as_11_and_the_request_expires() {
    let mut trial = Trial::usual();
    trial.fleet.room.insert(host("d"), 0);
    trial.order("u", "1", "d");
    let old = trial.standing("1");
    trial.ends(&old);
    trial.pass(5_001);
    failed(&trial, "u", Reason::RequestExpired);
    assert_eq!(trial.at("u").recovery_host.as_deref(), Some("c"));
    assert_eq!(trial.asking(), [work("1")], "P1");
    trial.settle();
    assert_eq!(trial.is_on("1").as_deref(), Some("c"));
}

#[test]
fn s13_the_reserved_place_is_lost_during_the_stop() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    let place = trial.grant_on("d");
    let first: Vec<String> = trial.requests().into_keys().collect();
    trial.fleet.now_ms += 4_000;
    trial.ends(&place);
    trial.tick();
    assert_eq!(trial.status("u").0, InProgress);
    assert_ne!(
        trial.requests().into_keys().collect::<Vec<_>>(),
        first,
        "a new request"
    );
    let old = trial.standing("1");
    trial.ends(&old);
    trial.pass(4_000);
    assert_eq!(trial.status("u").0, InProgress, "its clock began anew");
    trial.settle();
    done(&trial, "u", "1", "d");
}

#[test]
fn s14_an_unknown_processor() {
    let mut trial = Trial::usual();
    trial.order("u", "7", "d");
    refused(&trial, "u", Reason::UnknownProcessor);
    trial.order("w", "wp_1.0", "d");
    refused(&trial, "w", Reason::PoolManaged);
}

#[test]
fn s15_a_uuid_used_again() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    let first = trial.at("u").clone();
    assert_eq!(trial.submit("u", "1", "a", None), Err(Refusal::OtherBody));
    assert_eq!(
        trial.submit("u", "1", "d", Some(7)),
        Err(Refusal::OtherBody)
    );
    let replay = trial.submit("u", "1", "d", None);
    assert_eq!(replay, Ok(Submitted::Replay(first.clone())));
    assert_eq!(*trial.at("u"), first, "the first outcome is kept");
}

#[test]
fn s16_a_dead_deployment() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    trial.submit("v", "1", "a", None).unwrap();
    trial
        .fleet
        .dead
        .insert(crate::test_fleet::DEPLOYMENT.to_owned());
    trial.fleet.processors.clear();
    trial.tick();
    assert_eq!(trial.status("u"), (Failed, Some(Reason::JobEnded)));
    assert_eq!(
        trial.status("v"),
        (BadRequest, Some(Reason::StaleDeployment))
    );
    assert!(trial.fleet.stops.is_empty() && trial.requests().is_empty());
}

#[test]
fn s17_a_second_request_waits_its_turn() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    trial.fleet.now_ms += 1;
    trial.order("v", "1", "a");
    assert_eq!(
        (trial.status("v").0, trial.waits("v")),
        (Created, Some(Queued::SelfInFlight))
    );
    trial.settle();
    assert_eq!(trial.status("u").0, Succeeded);
    done(&trial, "v", "1", "a");
    let mut order = trial.an_order("w", "1", "b", None);
    order.reject_if_busy = true;
    trial.order("x", "1", "c");
    let busy = trial.machine.submit(order, &trial.fleet);
    assert_eq!(busy, Err(Refusal::Busy("x".to_owned())));
}

#[test]
fn s18_a_request_while_it_is_being_started() {
    let mut trial = Trial::usual();
    let old = trial.standing("1");
    trial.ends(&old);
    trial.order("u", "1", "d");
    assert_eq!(trial.waits("u"), Some(Queued::NotRunningYet));
    trial.everyday();
    trial.tick();
    assert_eq!(trial.waits("u"), Some(Queued::NotRunningYet));
    trial.settle();
    done(&trial, "u", "1", "d");
}
