//! 28–42: failed processors, forced restarts, blocks, processes without an action, new managers;
//! and the worked examples.

use super::{done, failed, launched, refused};
use crate::environment::StandState;
use crate::status::{Phase, Reason, Status};
use crate::test_fleet::{RULES, Trial, host, work};

use Status::{InProgress, Succeeded};

#[test]
fn s28_a_failed_processor_is_brought_back() {
    let mut trial = Trial::usual();
    let old = trial.standing("1");
    trial.ends(&old);
    trial.failed("1", true);
    trial.order("u", "1", "d");
    assert_eq!(trial.phase("u"), Some(Phase::Stopped), "nothing to stop");
    trial.settle();
    done(&trial, "u", "1", "d");
    assert!(!trial.fleet.processors[&work("1")].failed);
}

#[test]
fn s29_a_failed_processor_and_no_place() {
    let mut trial = Trial::usual();
    let old = trial.standing("1");
    trial.ends(&old);
    trial.failed("1", true);
    trial.order("u", "1", "d");
    trial.pass(5_001);
    failed(&trial, "u", Reason::RequestExpired);
    assert_eq!(trial.at("u").recovery_host, None);
    assert!(
        trial.asking().is_empty(),
        "it stays failed, and nobody asks for it"
    );
}

#[test]
fn s30_forced_restart_of_what_runs() {
    let mut trial = Trial::usual();
    let old = trial.standing("1");
    trial.order("u", "1", "FORCE_RESTART_LAST_SEEN");
    assert_eq!(
        trial.status("u"),
        (Succeeded, None),
        "that it was told to stop is all"
    );
    assert_eq!(trial.phase("u"), Some(Phase::StopInProgress));
    assert_eq!(trial.fleet.stops, std::slice::from_ref(&old));
    assert!(trial.requests().is_empty());
    trial.settle();
    assert_eq!(trial.is_on("1").as_deref(), Some("c"));
    assert_ne!(trial.standing("1"), old);
}

#[test]
fn s31_forced_restart_of_what_does_not_run() {
    let mut trial = Trial::usual();
    let old = trial.standing("1");
    trial.ends(&old);
    trial.order("u", "1", "FORCE_RESTART_LAST_SEEN");
    refused(&trial, "u", Reason::NotRunning);
}

#[test]
fn s32_a_blocked_target() {
    let mut trial = Trial::usual();
    trial.fleet.closed.insert(host("d"));
    trial.order("u", "1", "d");
    refused(&trial, "u", Reason::DestinationBlocked);
}

#[test]
fn s33_a_target_blocked_before_the_stop() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    trial.serve();
    trial.fleet.closed.insert(host("d"));
    trial.tick();
    failed(&trial, "u", Reason::DestinationBlocked);
    assert!(trial.fleet.stops.is_empty());
    assert_eq!(trial.is_on("1").as_deref(), Some("c"));
    assert!(
        trial
            .fleet
            .places
            .values()
            .all(|it| it.state != StandState::Held || it.ended)
    );
}

#[test]
fn s33b_a_target_blocked_after_the_stop() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    trial.grant_on("d");
    trial.fleet.closed.insert(host("d"));
    trial.settle();
    done(&trial, "u", "1", "d");
}

#[test]
fn s34_the_source_is_blocked_when_the_launch_fails() {
    let mut trial = Trial::usual();
    let place = launched(&mut trial);
    trial.fleet.closed.insert(host("c"));
    trial.ends(&place);
    trial.tick();
    failed(&trial, "u", Reason::LaunchFailed);
    assert_eq!(trial.at("u").recovery_host.as_deref(), Some("ANY_HOST"));
    trial.settle();
    assert_ne!(trial.is_on("1").as_deref(), Some("c"));
}

/// The machine asks for nothing and touches nothing of a process no action is about.
fn keeps_out(mut trial: Trial, id: &str) {
    let other = trial.standing("1");
    let down = trial.standing(id);
    trial.ends(&down);
    trial.pass(3_600_000);
    assert!(trial.requests().is_empty() && trial.fleet.stops.is_empty());
    assert_eq!(
        trial.machine.deadline(&RULES),
        None,
        "and it looks at no clock"
    );
    assert_eq!(trial.standing("1"), other);
    assert_eq!(
        trial.asking(),
        [work(id)],
        "everyday demand is its one request"
    );
}

#[test]
fn s35_a_preferred_host_that_expires_with_a_spare_is_everyday() {
    keeps_out(Trial::usual(), "0");
}

#[test]
fn s36_a_preferred_host_that_expires_without_a_spare_is_everyday() {
    let mut trial = Trial::usual();
    trial.fleet.room.insert(host("d"), 0);
    keeps_out(trial, "0");
}

#[test]
fn s37_without_affinity_an_everyday_request_just_waits() {
    let mut trial = Trial::usual();
    trial.affinity(false);
    keeps_out(trial, "0");
}

#[test]
fn s38_a_lost_node_with_a_standby_is_a_failover() {
    keeps_out(Trial::usual(), "0");
}

#[test]
fn s39_a_lost_node_with_the_standby_down_is_a_failover() {
    let mut trial = Trial::usual();
    trial.failed("0-0", true);
    let standby = trial.standing("0-0");
    trial.ends(&standby);
    keeps_out(trial, "0");
}

#[test]
fn s40_a_lost_node_and_nothing_known_is_a_failover() {
    let mut trial = Trial::usual();
    trial.fleet.last.clear();
    keeps_out(trial, "0");
}

#[test]
fn s41_a_manager_restarted_while_a_place_is_sought() {
    let mut trial = Trial::usual();
    trial.order("u", "1", "d");
    trial.serve();
    trial.restart();
    failed(&trial, "u", Reason::ManagerRestarted);
    assert_eq!(trial.is_on("1").as_deref(), Some("c"));
    assert!(trial.fleet.stops.is_empty());
    assert!(
        trial
            .fleet
            .places
            .values()
            .all(|it| it.state != StandState::Held || it.ended)
    );
}

#[test]
fn s41_what_waits_is_looked_at_by_the_next_manager() {
    let mut trial = Trial::usual();
    trial.submit("u", "1", "d", None).unwrap();
    trial.restart();
    trial.settle();
    done(&trial, "u", "1", "d");
}

#[test]
fn s42_a_manager_restarted_after_the_stop() {
    for stopped in [false, true] {
        let mut trial = Trial::usual();
        trial.order("u", "1", "d");
        trial.grant_on("d");
        if stopped {
            let old = trial.standing("1");
            trial.ends(&old);
        }
        trial.restart();
        trial.settle();
        done(&trial, "u", "1", "d");
        assert_eq!(trial.fleet.stops.len(), 1, "nothing is sent again");
    }
}

#[test]
fn e1_a_rolling_restart_where_there_is_no_room() {
    let mut trial = Trial::new();
    trial.fleet.room.insert(host("rackB-07"), 3);
    for id in ["4", "5", "6"] {
        trial.active(id);
        trial.runs(id, "rackB-07");
    }
    let old = trial.standing("4");
    trial.submit("u", "4", "LAST_SEEN", Some(30_000)).unwrap();
    trial.tick();
    trial.serve();
    trial.pass(29_999);
    assert_eq!(trial.status("u").0, InProgress);
    trial.pass(2);
    failed(&trial, "u", Reason::RequestExpired);
    assert!(trial.fleet.stops.is_empty());
    trial.order("v", "4", "FORCE_RESTART_LAST_SEEN");
    assert_eq!(trial.status("v").0, Succeeded);
    trial.settle();
    assert_eq!(trial.is_on("4").as_deref(), Some("rackB-07"));
    assert_ne!(trial.standing("4"), old);
}

#[test]
fn e2_a_move_overtaken_by_a_crash() {
    for granted in [true, false] {
        let mut trial = Trial::new();
        trial.fleet.room.insert(host("n21"), 1);
        trial.fleet.room.insert(host("n40"), usize::from(granted));
        trial.active("9");
        let old = trial.runs("9", "n21");
        trial.order("u", "9", "n40");
        trial.ends(&old);
        trial.tick();
        assert_eq!(trial.phase("u"), Some(Phase::Stopped));
        assert!(trial.asking().is_empty(), "no request for n21");
        trial.pass(2_000);
        trial.settle();
        if granted {
            done(&trial, "u", "9", "n40");
        } else {
            trial.pass(3_001);
            failed(&trial, "u", Reason::RequestExpired);
            assert_eq!(trial.asking(), [work("9")], "and one for n21 appears");
        }
    }
}

#[test]
fn e3_standby_with_three_replicas() {
    let mut trial = Trial::new();
    for name in ["a", "b", "c", "d"] {
        trial.fleet.room.insert(host(name), 4);
    }
    trial.active("2");
    trial.standby("2", 0);
    trial.standby("2", 1);
    trial.runs("2", "a");
    trial.runs("2-0", "b");
    trial.runs("2-1", "c");
    trial.order("u", "2", "STANDBY");
    let mut exclude = trial.at("u.1").hands.exclude.clone();
    exclude.sort();
    assert_eq!(exclude, [host("a"), host("b"), host("c")]);
    trial.settle();
    done(&trial, "u", "2", "b");
    assert_eq!(trial.is_on("2-0").as_deref(), Some("d"));
    assert_eq!(trial.is_on("2-1").as_deref(), Some("c"));
}

/// Beside a drain, whose next place was there first (0020).
#[test]
fn what_was_started_beside_an_action_ends_it() {
    let mut trial = Trial::usual();
    trial.order("u1", "1", "d");
    let old = trial.standing("1");
    trial.ends(&old);
    trial.runs("1", "b");
    trial.tick();
    let failed = (Status::Failed, Some(Reason::ConstraintAtLaunch));
    assert_eq!(trial.status("u1"), failed);
    assert!(trial.requests().is_empty());
    assert_eq!(trial.at("u1").recovery_host, None, "it is up");
    assert_eq!(trial.is_on("1").as_deref(), Some("b"));
}

#[test]
fn a_host_outside_the_machines_of_the_service_is_refused_at_once() {
    let mut trial = Trial::usual();
    trial.fleet.machines = vec![host("a"), host("b"), host("c")];
    trial.order("u", "1", "d");
    refused(&trial, "u", Reason::NotAListedMachine);
    let said = &trial.at("u").response_message;
    assert!(
        said.contains("(a, b, c)") && said.contains("`force`"),
        "{said}"
    );
    // Nor does it wait for its turn first.
    trial.order("v", "1", "ANY_HOST");
    trial.order("w", "1", "d");
    assert_eq!(
        trial.status("w"),
        (Status::BadRequest, Some(Reason::NotAListedMachine))
    );
    trial.settle();
    assert_ne!(trial.is_on("1").as_deref(), Some("c"), "v moved it");
}

#[test]
fn by_force_it_is_moved_there_and_restarted_there_by_force_alone() {
    let mut trial = Trial::usual();
    trial.fleet.machines = vec![host("a"), host("b"), host("c")];
    trial.force = true;
    trial.order("u", "1", "d");
    trial.settle();
    done(&trial, "u", "1", "d");
    trial.order("v", "1", "LAST_SEEN");
    trial.settle();
    done(&trial, "v", "1", "d");
    trial.force = false;
    trial.order("w", "1", "LAST_SEEN");
    assert_eq!(
        trial.status("w"),
        (Status::BadRequest, Some(Reason::NotAListedMachine))
    );
}

#[test]
fn a_standby_outside_the_machines_gives_its_host_by_force_alone() {
    let mut trial = Trial::usual();
    trial.fleet.machines = vec![host("a"), host("c"), host("d")];
    trial.order("u", "0", "STANDBY");
    refused(&trial, "u", Reason::NoStandby);
    trial.force = true;
    trial.order("v", "0", "STANDBY");
    trial.settle();
    done(&trial, "v", "0", "b");
}
