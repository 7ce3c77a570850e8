//! Tests: the scenarios of the worker pool specification, in the order of that page.
//! `TestPlatform::running(6, 4)` is a pool of size 6 with the started workers `w1` to `w4`, and
//! `platform.counts()` returns the numbers of requested, launching and started workers.

use crate::test_platform::{TestPlatform, id};
use crate::{Caller, Ending, EventKind, Final, Mode, Refusal, Rules, State};

#[test]
fn a_first_connection_with_an_empty_list_requests_all_workers() {
    let mut platform = TestPlatform::with_size(6);
    assert_eq!(
        platform.pool.wanted_numbers().len(),
        0,
        "a pool without an owner requests no worker"
    );
    platform.connect(1, &[]).unwrap();
    assert_eq!(platform.counts(), (6, 0, 0));
    assert_eq!(platform.pool.wanted_numbers(), (1..=6).collect());
}

#[test]
fn workers_of_a_previous_attempt_are_recognised() {
    let mut platform = TestPlatform::running(6, 4);
    platform.restart();
    assert_eq!(platform.counts(), (2, 4, 0));
    let result = platform.connect(1, &[1, 2, 3, 4]).unwrap();
    assert_eq!(result.accepted.len(), 4);
    assert_eq!(platform.counts(), (2, 0, 4));
}

#[test]
fn an_unrecognised_worker_is_ignored_and_not_counted() {
    let mut platform = TestPlatform::with_size(6);
    platform.connect(1, &[]).unwrap();
    for worker in 1..=3 {
        platform.grant(worker);
    }
    platform.restart();
    let result = platform.connect(2, &[1, 2, 3, 9]).unwrap();
    assert_eq!((result.accepted.len(), result.foreign), (3, vec![id(9)]));
    assert_eq!(platform.counts(), (3, 0, 3));
    assert_eq!(platform.state(9), Some(State::Foreign));
}

#[test]
fn a_new_owner_with_an_empty_list_changes_no_count() {
    let mut platform = TestPlatform::running(6, 4);
    platform.grant(5);
    let before = platform.counts();
    platform.connect(2, &[]).unwrap();
    assert_eq!(platform.counts(), before);
    assert_eq!(before, (1, 1, 4));
}

#[test]
fn workers_register_again_with_a_new_owner() {
    let mut platform = TestPlatform::running(6, 4);
    platform.connect(2, &[]).unwrap();
    for worker in 1..=4 {
        assert_eq!(platform.start(worker), Ok(true));
    }
    platform.advance(platform.pool.rules.reregister_grace_ms * 2);
    assert_eq!(platform.counts(), (2, 0, 4));
}

#[test]
fn a_worker_may_be_reported_twice() {
    let mut platform = TestPlatform::running(2, 0);
    platform.grant(1);
    assert_eq!(platform.start(1), Ok(true));
    assert_eq!(platform.start(1), Ok(true));
    assert_eq!(platform.counts(), (1, 0, 1));
}

#[test]
fn an_unknown_worker_is_acknowledged_and_not_counted() {
    let mut platform = TestPlatform::running(2, 1);
    assert_eq!(platform.start(9), Ok(false));
    assert_eq!(platform.counts(), (1, 0, 1));
}

#[test]
fn removing_an_unknown_id_does_not_affect_a_later_worker() {
    let mut platform = TestPlatform::running(2, 0);
    assert_eq!(platform.remove(1), Err(Refusal::UnknownWorker(id(1))));
    platform.grant(1);
    assert_eq!(platform.start(1), Ok(true));
    assert_eq!(platform.state(1), Some(State::Started));
}

#[test]
fn a_larger_size_requests_exactly_the_difference() {
    let mut platform = TestPlatform::running(6, 4);
    assert_eq!(platform.counts(), (2, 0, 4));
    assert_eq!(platform.set_size(9).unwrap().requested_now, 3);
    assert_eq!(platform.counts(), (5, 0, 4));
}

#[test]
fn a_smaller_size_releases_no_worker() {
    let mut platform = TestPlatform::running(5, 4);
    platform.grant(5);
    let result = platform.set_size(2).unwrap();
    assert_eq!((result.released, result.withdrawn_now), (vec![], 0));
    assert_eq!(platform.counts(), (0, 1, 4));
}

#[test]
fn removing_workers_after_a_smaller_size_replaces_none() {
    let mut platform = TestPlatform::running(5, 5);
    platform.set_size(3).unwrap();
    platform.remove(1).unwrap();
    platform.remove(2).unwrap();
    assert_eq!(platform.pool.counts().returning, 2);
    platform.end(1, Ending::Intended);
    platform.end(2, Ending::Died);
    assert_eq!(platform.counts(), (0, 0, 3));
    // The owner gave both workers back itself, so their ends are no failures.
    assert_eq!(
        (platform.removed(), platform.pool.failed_so_far),
        (vec![], 0)
    );
}

#[test]
fn a_removed_worker_is_replaced_after_its_end() {
    let mut platform = TestPlatform::running(3, 3);
    platform.remove(2).unwrap();
    assert_eq!(platform.counts(), (0, 0, 2));
    platform.end(2, Ending::Intended);
    assert_eq!(platform.counts(), (1, 0, 2));
}

#[test]
fn a_dead_registered_worker_is_replaced_and_reported() {
    let mut platform = TestPlatform::running(3, 3);
    platform.end(2, Ending::Died);
    assert_eq!(platform.removed(), [id(2)]);
    assert_eq!(
        (platform.counts(), platform.pool.failed_so_far),
        ((1, 0, 2), 1)
    );
}

#[test]
fn a_dead_launching_worker_is_replaced() {
    let mut platform = TestPlatform::running(3, 2);
    platform.grant(3);
    platform.end(3, Ending::Died);
    assert!(platform.removed().is_empty());
    assert_eq!(
        (platform.counts(), platform.pool.failed_so_far),
        ((1, 0, 2), 1)
    );
}

#[test]
fn a_launch_refused_by_the_node_is_no_failure() {
    let mut platform = TestPlatform::running(3, 2);
    platform.grant(3);
    platform.end(3, Ending::Refused);
    assert_eq!(
        (platform.counts(), platform.pool.failed_so_far),
        ((1, 0, 2), 0)
    );
}

#[test]
fn the_pool_survives_the_tolerated_number_of_failures() {
    let mut platform = TestPlatform::running(2, 2);
    for worker in [1, 2] {
        platform.end(worker, Ending::Died);
    }
    assert_eq!(
        (platform.pool.failed_so_far, &platform.pool.stopped),
        (2, &None)
    );
    assert_eq!(platform.counts(), (2, 0, 0));
}

#[test]
fn one_failure_over_the_limit_stops_the_pool() {
    let mut platform = TestPlatform::running(2, 2);
    platform.end(1, Ending::Died);
    platform.end(2, Ending::Died);
    for worker in [3, 4] {
        platform.grant(worker);
        platform.start(worker).unwrap();
    }
    platform.end(3, Ending::Died);
    let stopped = platform.pool.stopped.clone().unwrap();
    assert_eq!(stopped.status, Some(Final::Failed));
    assert_eq!(platform.counts(), (0, 0, 0));
    assert!(platform.pool.wanted_numbers().is_empty());
    assert_eq!(platform.events.last().unwrap().kind, EventKind::PoolFailed);
    // The owner did not give worker 4 back, so it gets an event for this worker too.
    platform.end(4, Ending::Intended);
    assert_eq!(platform.removed(), [1, 2, 3, 4].map(id));
    assert_eq!(platform.set_size(5), Err(Refusal::Stopped));
}

#[test]
fn an_unneeded_grant_is_returned() {
    let mut platform = TestPlatform::running(3, 3);
    platform.grant(4);
    assert_eq!(platform.state(4), Some(State::Returning));
    assert_eq!(platform.counts(), (0, 0, 3));
    assert!(!platform.pool.wanted_numbers().contains(&4));
    platform.end(4, Ending::Intended);
    assert_eq!((platform.state(4), platform.pool.failed_so_far), (None, 0));
}

#[test]
fn a_pool_without_an_owner_requests_nothing() {
    let mut platform = TestPlatform::running(3, 3);
    platform.restart();
    // Calls of the owner are refused meanwhile.
    assert_eq!(platform.set_size(9), Err(Refusal::NotConnected));
    platform.advance(3_600_000);
    assert_eq!(platform.pool.wanted_numbers().len(), 3);
    platform.connect(1, &[1, 2, 3]).unwrap();
    assert_eq!(platform.counts(), (0, 0, 3));
}

#[test]
fn a_worker_that_died_meanwhile_is_replaced_after_the_reconnect() {
    let mut platform = TestPlatform::running(10, 10);
    let ended = id(7);
    let held = platform.pool.workers.keys().filter(|id| **id != ended);
    let held = held.cloned().collect();
    platform.pool.recover(&held, platform.now);
    platform.connect(1, &[1, 2, 3, 4, 5, 6, 8, 9, 10]).unwrap();
    assert_eq!(platform.counts(), (1, 0, 9));
    // The platform reported no end of the worker, so there is no failure.
    assert_eq!(platform.pool.failed_so_far, 0);
}

#[test]
fn a_standalone_pool_only_stores_the_size() {
    let mut platform = TestPlatform::new(Mode::Standalone, 0, None, Rules::default());
    platform.connect(1, &[]).unwrap();
    assert_eq!(platform.set_size(5).unwrap().requested_now, 0);
    assert_eq!((platform.pool.designated, platform.pool.missing()), (5, 5));
    assert!(platform.pool.wanted_numbers().is_empty());
    // A standalone pool accepts every worker, and a removal only forgets the id.
    assert_eq!(platform.start(1), Ok(true));
    assert_eq!(platform.connect(2, &[1, 2]).unwrap().accepted.len(), 2);
    assert_eq!(platform.pool.missing(), 3);
    platform.remove(1).unwrap();
    assert_eq!((platform.state(1), platform.pool.missing()), (None, 4));
    platform
        .pool
        .stop(platform.owner(), Final::Succeeded, "", platform.now)
        .unwrap();
    assert_eq!(platform.pool.stopped.clone().unwrap().status, None);
    assert_eq!(platform.state(2), Some(State::Started), "the process stays");
}

#[test]
fn a_stop_with_an_owner_returns_all_workers() {
    let mut platform = TestPlatform::running(4, 2);
    platform.grant(3);
    let stop = |platform: &mut TestPlatform| {
        let from = platform.owner();
        let stopped = platform
            .pool
            .stop(from, Final::Succeeded, "done", platform.now);
        platform.take_events();
        stopped
    };
    assert_eq!(stop(&mut platform), Ok(true));
    // Unregistered workers are given back too.
    assert_eq!(platform.pool.counts().returning, 3);
    assert!(platform.pool.wanted_numbers().is_empty());
    let stopped = platform.pool.stopped.clone().unwrap();
    assert_eq!(stopped.status, Some(Final::Succeeded));
    assert_eq!(stop(&mut platform), Ok(false), "a repeat changes nothing");
    for worker in 1..=3 {
        platform.end(worker, Ending::Died);
    }
    assert_eq!(
        (platform.removed(), platform.pool.failed_so_far),
        (vec![], 0)
    );
}

#[test]
fn a_stop_without_an_owner_returns_all_workers() {
    let mut platform = TestPlatform::running(4, 2);
    platform.pool.leave(1).unwrap();
    let stopped = platform
        .pool
        .stop(Caller::Operator, Final::Killed, "", platform.now);
    assert_eq!(stopped, Ok(true));
    assert!(platform.pool.wanted_numbers().is_empty());
}

#[test]
fn a_size_is_never_negative() {
    // The type excludes negative sizes, and the route refuses them with 422.
    let mut platform = TestPlatform::running(3, 3);
    assert_eq!(platform.set_size(0).unwrap().withdrawn_now, 0);
    assert_eq!(platform.pool.designated, 0);
    assert_eq!(platform.pool.progress_milli(), 1_000);
}

#[test]
fn an_old_connection_is_refused_and_the_binding_stays() {
    let mut platform = TestPlatform::running(3, 3);
    let former = platform.owner();
    platform.connect(1, &[1, 2, 3]).unwrap();
    let before = platform.pool.clone();
    let refused = platform.pool.check(former, platform.now);
    assert_eq!(
        refused,
        Err(Refusal::StaleConnection {
            received: 1,
            current: 2
        })
    );
    assert_eq!(platform.pool, before);
    assert_eq!(platform.set_size(3).unwrap().requested_now, 0);
}

#[test]
fn a_recovered_worker_that_never_registers_is_released_at_the_deadline() {
    let mut platform = TestPlatform::running(2, 1);
    platform.grant(2);
    platform.restart();
    platform.connect(1, &[1]).unwrap();
    platform.advance(platform.pool.rules.register_deadline_ms - 1);
    assert_eq!(platform.counts(), (0, 1, 1));
    platform.advance(1);
    assert_eq!(platform.state(2), Some(State::Returning));
    assert_eq!(platform.counts(), (1, 0, 1));
}

#[test]
fn repeated_failed_starts_pause_the_requests() {
    let rules = Rules {
        start_failures_per_min: 4,
        ..Rules::default()
    };
    let mut platform = TestPlatform::new(Mode::Managed, 2, Some(-1), rules);
    platform.connect(1, &[]).unwrap();
    for worker in 1..=5 {
        platform.grant(worker);
        platform.end(worker, Ending::Refused);
        platform.advance(100);
    }
    assert_eq!(
        platform.counts(),
        (1, 0, 0),
        "the fifth worker is not requested again"
    );
    assert_eq!(platform.pool.missing(), 1);
    platform.advance(rules.cooldown_ms);
    assert_eq!(
        platform.counts(),
        (2, 0, 0),
        "after the cooldown the fifth worker is requested again"
    );
}
