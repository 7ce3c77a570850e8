//! 19–27: an active and what stands by for it.

use super::{done, failed, refused};
use crate::status::{Queued, Reason, Status};
use crate::test_fleet::{Trial, host};

use Status::{BadRequest, Failed, Succeeded};

#[test]
fn s19_an_active_to_its_standbys_host() {
    let mut trial = Trial::usual();
    trial.order("u", "0", "b");
    refused(&trial, "u", Reason::StandbyConstraint);
}

#[test]
fn s20_a_standby_to_its_actives_host() {
    let mut trial = Trial::usual();
    trial.order("u", "0-0", "a");
    refused(&trial, "u", Reason::StandbyConstraint);
}

#[test]
fn s21_an_active_while_its_standby_moves() {
    let mut trial = Trial::usual();
    trial.order("u", "0-0", "d");
    trial.order("v", "0", "c");
    assert_eq!(trial.waits("v"), Some(Queued::StandbyInFlight));
    trial.settle();
    done(&trial, "v", "0", "c");
}

#[test]
fn s22_a_standby_while_its_active_moves() {
    let mut trial = Trial::usual();
    trial.order("u", "0", "d");
    trial.order("v", "0-0", "c");
    assert_eq!(trial.waits("v"), Some(Queued::ActiveInFlight));
    trial.settle();
    done(&trial, "v", "0-0", "c");
}

#[test]
fn s23_two_siblings_to_one_host() {
    let mut trial = Trial::usual();
    trial.standby("0", 1);
    trial.runs("0-1", "c");
    trial.order("u", "0-0", "d");
    trial.order("v", "0-1", "d");
    assert_eq!(
        trial.status("v"),
        (BadRequest, Some(Reason::StandbyConstraint))
    );
    trial.settle();
    done(&trial, "u", "0-0", "d");
    assert_eq!(trial.is_on("0-1").as_deref(), Some("c"));
}

#[test]
fn s24_the_constraint_broken_after_the_stop() {
    let mut trial = Trial::usual();
    trial.order("u", "0", "d");
    trial.grant_on("d");
    let (old, standby) = (trial.standing("0"), trial.standing("0-0"));
    trial.ends(&old);
    trial.ends(&standby);
    trial.runs("0-0", "d");
    trial.tick();
    failed(&trial, "u", Reason::ConstraintAtLaunch);
    assert_eq!(trial.at("u").recovery_host.as_deref(), Some("a"));
    trial.settle();
    assert_eq!(trial.is_on("0").as_deref(), Some("a"));
}

#[test]
fn s24_found_before_the_stop_where_it_can_be() {
    let mut trial = Trial::usual();
    trial.order("u", "0", "ANY_HOST");
    let bad = trial.grant_on("b");
    assert!(
        trial.fleet.stops.is_empty(),
        "a healthy process is left alone"
    );
    assert!(trial.fleet.places[&bad].ended);
    assert_eq!(trial.at("u").hands.exclude, [host("b")]);
    trial.settle();
    assert_eq!(trial.status("u").0, Succeeded);
    assert_ne!(trial.is_on("0").as_deref(), Some("b"));
}

#[test]
fn s25_standby_takes_over_the_standbys_host() {
    let mut trial = Trial::usual();
    trial.order("u", "0", "STANDBY");
    trial.order("v", "0", "d");
    assert_eq!(
        trial.waits("v"),
        Some(Queued::SelfInFlight),
        "nothing slips in between"
    );
    assert_eq!(trial.at("u.1").destination_host.to_string(), "ANY_HOST");
    for _ in 0..3 {
        trial.serve();
        trial.nodes_act();
    }
    trial.machine.withdraw("v").unwrap();
    trial.settle();
    done(&trial, "u", "0", "b");
    assert_eq!(trial.status("u.1").0, Succeeded);
    assert_eq!(trial.status("u.2").0, Succeeded);
    assert_ne!(trial.is_on("0-0").as_deref(), Some("a"));
}

#[test]
fn s26_standby_without_one() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "STANDBY");
    refused(&trial, "u", Reason::NoStandby);
    trial.order("v", "0-0", "STANDBY");
    refused(&trial, "v", Reason::NoStandby);
}

#[test]
fn s27_standby_whose_first_child_expires() {
    let mut trial = Trial::usual();
    trial.order("u", "0", "STANDBY");
    trial.pass(5_001);
    failed(&trial, "u", Reason::RequestExpired);
    assert_eq!(trial.status("u.1"), (Failed, Some(Reason::RequestExpired)));
    assert!(trial.machine.get("u.2").is_none() && trial.fleet.stops.is_empty());
    assert_eq!(
        (trial.is_on("0"), trial.is_on("0-0")),
        (Some("a".into()), Some("b".into()))
    );
}
