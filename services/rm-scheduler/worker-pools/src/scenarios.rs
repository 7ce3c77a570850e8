//! The scenario table of the specification, section 21, by number.

use crate::test_platform::{Trial, id};
use crate::{Ending, Final, Kind, Mode, Refusal, Rules, Speaker, State};

#[test]
fn s01_first_connect_with_an_empty_list_requests_all() {
    let mut trial = Trial::of(6);
    assert_eq!(trial.pool.wants().len(), 0, "nobody owns it yet");
    trial.connect(1, &[]).unwrap();
    assert_eq!(trial.numbers(), (6, 0, 0));
    assert_eq!(trial.pool.wants(), (1..=6).collect());
}

#[test]
fn s02_workers_of_a_previous_attempt_are_recognised() {
    let mut trial = Trial::running(6, 4);
    trial.restart();
    assert_eq!(trial.numbers(), (2, 4, 0));
    let answer = trial.connect(1, &[1, 2, 3, 4]).unwrap();
    assert_eq!(answer.accepted.len(), 4);
    assert_eq!(trial.numbers(), (2, 0, 4));
}

#[test]
fn s03_one_that_is_not_recognised_is_left_alone_and_not_counted() {
    let mut trial = Trial::of(6);
    trial.connect(1, &[]).unwrap();
    for worker in 1..=3 {
        trial.grant(worker);
    }
    trial.restart();
    let answer = trial.connect(2, &[1, 2, 3, 9]).unwrap();
    assert_eq!((answer.accepted.len(), answer.foreign), (3, vec![id(9)]));
    assert_eq!(trial.numbers(), (3, 0, 3));
    assert_eq!(trial.state(9), Some(State::Foreign));
}

#[test]
fn s04_a_new_owner_that_knows_nobody_changes_no_count() {
    let mut trial = Trial::running(6, 4);
    trial.grant(5);
    let before = trial.numbers();
    trial.connect(2, &[]).unwrap();
    assert_eq!(trial.numbers(), before);
    assert_eq!(before, (1, 1, 4));
}

#[test]
fn s05_then_its_workers_register_again() {
    let mut trial = Trial::running(6, 4);
    trial.connect(2, &[]).unwrap();
    for worker in 1..=4 {
        assert_eq!(trial.start(worker), Ok(true));
    }
    trial.pass(trial.pool.rules.reregister_grace_ms * 2);
    assert_eq!(trial.numbers(), (2, 0, 4));
}

#[test]
fn s06_a_worker_may_be_reported_twice() {
    let mut trial = Trial::running(2, 0);
    trial.grant(1);
    assert_eq!(trial.start(1), Ok(true));
    assert_eq!(trial.start(1), Ok(true));
    assert_eq!(trial.numbers(), (1, 0, 1));
}

#[test]
fn s07_a_stranger_is_acknowledged_and_not_counted() {
    let mut trial = Trial::running(2, 1);
    assert_eq!(trial.start(9), Ok(false));
    assert_eq!(trial.numbers(), (1, 0, 1));
}

#[test]
fn s08_removing_an_unknown_id_spoils_nothing_for_it() {
    let mut trial = Trial::running(2, 0);
    assert_eq!(trial.remove(1), Err(Refusal::UnknownWorker(id(1))));
    trial.grant(1);
    assert_eq!(trial.start(1), Ok(true));
    assert_eq!(trial.state(1), Some(State::Started));
}

#[test]
fn s09_growing_requests_exactly_the_difference() {
    let mut trial = Trial::running(6, 4);
    assert_eq!(trial.numbers(), (2, 0, 4));
    assert_eq!(trial.size(9).unwrap().requested_now, 3);
    assert_eq!(trial.numbers(), (5, 0, 4));
}

#[test]
fn s10_shrinking_releases_nothing() {
    let mut trial = Trial::running(5, 4);
    trial.grant(5);
    let done = trial.size(2).unwrap();
    assert_eq!((done.released, done.withdrawn_now), (vec![], 0));
    assert_eq!(trial.numbers(), (0, 1, 4));
}

#[test]
fn s11_shrinking_and_removing_two_replaces_none() {
    let mut trial = Trial::running(5, 5);
    trial.size(3).unwrap();
    trial.remove(1).unwrap();
    trial.remove(2).unwrap();
    assert_eq!(trial.pool.counts().returning, 2);
    trial.end(1, Ending::Intended);
    trial.end(2, Ending::Died);
    assert_eq!(trial.numbers(), (0, 0, 3));
    // The owner gave them up itself, and race 9: it was no failure.
    assert_eq!((trial.removed(), trial.pool.failed_so_far), (vec![], 0));
}

#[test]
fn s12_removing_without_shrinking_replaces_after_the_completion() {
    let mut trial = Trial::running(3, 3);
    trial.remove(2).unwrap();
    assert_eq!(trial.numbers(), (0, 0, 2));
    trial.end(2, Ending::Intended);
    assert_eq!(trial.numbers(), (1, 0, 2));
}

#[test]
fn s13_a_registered_worker_dies() {
    let mut trial = Trial::running(3, 3);
    trial.end(2, Ending::Died);
    assert_eq!(trial.removed(), [id(2)]);
    assert_eq!((trial.numbers(), trial.pool.failed_so_far), ((1, 0, 2), 1));
}

#[test]
fn s14_a_launching_worker_dies() {
    let mut trial = Trial::running(3, 2);
    trial.grant(3);
    trial.end(3, Ending::Died);
    assert!(trial.removed().is_empty());
    assert_eq!((trial.numbers(), trial.pool.failed_so_far), ((1, 0, 2), 1));
}

#[test]
fn s15_a_launch_that_the_node_refuses_is_no_failure() {
    let mut trial = Trial::running(3, 2);
    trial.grant(3);
    trial.end(3, Ending::Refused);
    assert_eq!((trial.numbers(), trial.pool.failed_so_far), ((1, 0, 2), 0));
}

#[test]
fn s16_as_many_failures_as_tolerated() {
    let mut trial = Trial::running(2, 2);
    for worker in [1, 2] {
        trial.end(worker, Ending::Died);
    }
    assert_eq!((trial.pool.failed_so_far, &trial.pool.stopped), (2, &None));
    assert_eq!(trial.numbers(), (2, 0, 0));
}

#[test]
fn s17_one_failure_too_many_stops_the_pool() {
    let mut trial = Trial::running(2, 2);
    trial.end(1, Ending::Died);
    trial.end(2, Ending::Died);
    for worker in [3, 4] {
        trial.grant(worker);
        trial.start(worker).unwrap();
    }
    trial.end(3, Ending::Died);
    let stopped = trial.pool.stopped.clone().unwrap();
    assert_eq!(stopped.status, Some(Final::Failed));
    assert_eq!(trial.numbers(), (0, 0, 0));
    assert!(trial.pool.wants().is_empty());
    assert_eq!(trial.news.last().unwrap().kind, Kind::PoolFailed);
    // The owner did not order it, so it hears of the last one too.
    trial.end(4, Ending::Intended);
    assert_eq!(trial.removed(), [1, 2, 3, 4].map(id));
    assert_eq!(trial.size(5), Err(Refusal::Stopped));
}

#[test]
fn s18_a_grant_that_is_not_needed_any_more_is_returned() {
    let mut trial = Trial::running(3, 3);
    trial.grant(4);
    assert_eq!(trial.state(4), Some(State::Returning));
    assert_eq!(trial.numbers(), (0, 0, 3));
    assert!(!trial.pool.wants().contains(&4));
    trial.end(4, Ending::Intended);
    assert_eq!((trial.state(4), trial.pool.failed_so_far), (None, 0));
}

#[test]
fn s19_without_a_pool_the_job_is_as_it_was() {
    let mut trial = Trial::running(3, 3);
    trial.restart();
    // Whatever the owner asks meanwhile is refused, and nothing is taken from the job.
    assert_eq!(trial.size(9), Err(Refusal::NotConnected));
    trial.pass(3_600_000);
    assert_eq!(trial.pool.wants().len(), 3);
    trial.connect(1, &[1, 2, 3]).unwrap();
    assert_eq!(trial.numbers(), (0, 0, 3));
}

#[test]
fn s20_a_worker_that_died_meanwhile_is_refilled_after_the_reconnect() {
    let mut trial = Trial::running(10, 10);
    let gone = [7].map(id);
    let held = trial.pool.workers.keys().filter(|id| **id != gone[0]);
    let held = held.cloned().collect();
    trial.pool.restarted(&held, trial.now);
    trial.connect(1, &[1, 2, 3, 4, 5, 6, 8, 9, 10]).unwrap();
    assert_eq!(trial.numbers(), (1, 0, 9));
    // E1: no completion was delivered.
    assert_eq!(trial.pool.failed_so_far, 0);
}

#[test]
fn s21_standalone_stores_the_size_and_does_nothing() {
    let mut trial = Trial::with(Mode::Standalone, 0, None, Rules::default());
    trial.connect(1, &[]).unwrap();
    assert_eq!(trial.size(5).unwrap().requested_now, 0);
    assert_eq!((trial.pool.designated, trial.pool.missing()), (5, 5));
    assert!(trial.pool.wants().is_empty());
    // Section 11: it accepts everything, and removing forgets the id.
    assert_eq!(trial.start(1), Ok(true));
    assert_eq!(trial.connect(2, &[1, 2]).unwrap().accepted.len(), 2);
    assert_eq!(trial.pool.missing(), 3);
    trial.remove(1).unwrap();
    assert_eq!((trial.state(1), trial.pool.missing()), (None, 4));
    trial
        .pool
        .stop(trial.owner(), (Final::Succeeded, ""), trial.now)
        .unwrap();
    assert_eq!(trial.pool.stopped.clone().unwrap().status, None);
    assert_eq!(trial.state(2), Some(State::Started), "the process stays");
}

#[test]
fn s22_stop_with_an_owner_bound() {
    let mut trial = Trial::running(4, 2);
    trial.grant(3);
    let stop = |trial: &mut Trial| {
        let from = trial.owner();
        let stopped = trial.pool.stop(from, (Final::Succeeded, "done"), trial.now);
        trial.hear();
        stopped
    };
    assert_eq!(stop(&mut trial), Ok(true));
    // Also what has not registered is given back.
    assert_eq!(trial.pool.counts().returning, 3);
    assert!(trial.pool.wants().is_empty());
    let stopped = trial.pool.stopped.clone().unwrap();
    assert_eq!(stopped.status, Some(Final::Succeeded));
    assert_eq!(stop(&mut trial), Ok(false), "a repeat changes nothing");
    for worker in 1..=3 {
        trial.end(worker, Ending::Died);
    }
    assert_eq!((trial.removed(), trial.pool.failed_so_far), (vec![], 0));
}

#[test]
fn s23_stop_without_an_owner() {
    let mut trial = Trial::running(4, 2);
    trial.pool.leave(1).unwrap();
    let stopped = trial
        .pool
        .stop(Speaker::Operator, (Final::Killed, ""), trial.now);
    assert_eq!(stopped, Ok(true));
    assert!(trial.pool.wants().is_empty());
}

#[test]
fn s24_a_size_is_never_negative() {
    // The type has no negative sizes; the route answers 422 before it gets here
    // (`a_negative_size_is_refused` of the service's tests).
    let mut trial = Trial::running(3, 3);
    assert_eq!(trial.size(0).unwrap().withdrawn_now, 0);
    assert_eq!(trial.pool.designated, 0);
    assert_eq!(trial.pool.progress_milli(), 1_000);
}

#[test]
fn s25_an_old_connection_is_refused_and_the_binding_stays() {
    let mut trial = Trial::running(3, 3);
    let old = trial.owner();
    trial.connect(1, &[1, 2, 3]).unwrap();
    let before = trial.pool.clone();
    let refused = trial.pool.check(old, trial.now);
    assert_eq!(
        refused,
        Err(Refusal::StaleConnection { given: 1, known: 2 })
    );
    assert_eq!(trial.pool, before);
    assert_eq!(trial.size(3).unwrap().requested_now, 0);
}

#[test]
fn s26_a_recovered_worker_that_never_registers_is_released_at_the_deadline() {
    let mut trial = Trial::running(2, 1);
    trial.grant(2);
    trial.restart();
    trial.connect(1, &[1]).unwrap();
    trial.pass(trial.pool.rules.register_deadline_ms - 1);
    assert_eq!(trial.numbers(), (0, 1, 1));
    trial.pass(1);
    assert_eq!(trial.state(2), Some(State::Returning));
    assert_eq!(trial.numbers(), (1, 0, 1));
}

#[test]
fn s27_failed_starts_in_a_row_make_a_pause() {
    let rules = Rules {
        start_failures_per_min: 4,
        ..Rules::default()
    };
    let mut trial = Trial::with(Mode::Managed, 2, Some(-1), rules);
    trial.connect(1, &[]).unwrap();
    for worker in 1..=5 {
        trial.grant(worker);
        trial.end(worker, Ending::Refused);
        trial.pass(100);
    }
    assert_eq!(
        trial.numbers(),
        (1, 0, 0),
        "the fifth is not asked for anew"
    );
    assert_eq!(trial.pool.missing(), 1);
    trial.pass(rules.cooldown_ms);
    assert_eq!(trial.numbers(), (2, 0, 0), "and then it is");
}
