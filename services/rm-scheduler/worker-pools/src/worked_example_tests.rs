//! Tests: the worked examples and races of the worker pool specification.
//! `TestPlatform::running(6, 4)` is a pool of size 6 with the started workers `w1` to `w4`, and
//! `platform.counts()` returns the numbers of requested, launching and started workers.

use crate::test_platform::{TestPlatform, id, ids};
use crate::{
    Caller, Connect, Ending, EventKind, MAX_FOREIGN, Mode, Now, PlatformEvent, Pool, Refusal,
    Rules, SizeRequest, State, Worker,
};

/// Creates a pool of the size `designated` with these numbers of workers and requests.
fn platform_with_counts(
    designated: u64,
    started: u64,
    launching: u64,
    requested: u64,
) -> TestPlatform {
    let mut platform = TestPlatform::with_size(0);
    platform.connect(1, &[]).unwrap();
    for number in 1..=started + launching {
        let state = if number <= started {
            State::Started
        } else {
            State::Launching
        };
        platform.pool.workers.insert(id(number), Worker::new(state));
    }
    platform.pool.requested = (100..100 + requested).collect();
    platform.pool.last_number = 200;
    platform.pool.designated = designated;
    platform
}

#[test]
fn a_check_requests_exactly_the_missing_workers() {
    // Designated size, started, launching and requested workers, and the expected missing workers.
    for (numbers, missing) in [
        ((8, 0, 0, 0), 8),
        ((8, 3, 2, 3), 0),
        ((12, 3, 2, 3), 4),
        ((2, 3, 2, 3), 0),
        ((8, 7, 0, 0), 1),
    ] {
        let (designated, started, launching, requested) = numbers;
        let mut platform = platform_with_counts(designated, started, launching, requested);
        let (from, now) = (platform.owner(), platform.now);
        let first = platform.pool.check(from, now).unwrap();
        assert_eq!(
            (first.missing, first.requested_now),
            (missing, missing),
            "{numbers:?}"
        );
        let second = platform.pool.check(from, now).unwrap();
        assert_eq!(
            (second.missing, second.requested_now),
            (0, 0),
            "{numbers:?}"
        );
        assert_eq!(platform.counts(), (requested + missing, launching, started));
    }
}

#[test]
fn a_lower_size_only_withdraws_requests() {
    let mut platform = platform_with_counts(8, 3, 2, 3);
    let result = platform.set_size(2).unwrap();
    assert_eq!((result.withdrawn_now, platform.counts()), (3, (0, 2, 3)));
    let mut platform = platform_with_counts(8, 3, 2, 3);
    assert_eq!(platform.set_size(7).unwrap().withdrawn_now, 1);
}

#[test]
fn surplus_is_released_in_order_until_the_size_fits() {
    // The workers w1 to w3 are started, w4 and w5 are launching, and three more are requested. Each
    // case has the new size, the unwanted workers, the number of withdrawn requests, and the
    // released workers in order.
    for (size, unwanted, withdrawn, released) in [
        (7, vec![2], 0, vec![2]),
        (5, vec![2], 2, vec![2]),
        (4, vec![], 3, vec![5]),
        (3, vec![1], 3, vec![1, 5]),
        (1, vec![], 3, vec![5, 4, 3, 2]),
        (8, vec![1, 2, 3], 0, vec![]),
    ] {
        let mut platform = platform_with_counts(8, 3, 2, 3);
        let result = platform
            .resize(&SizeRequest {
                size,
                release: true,
                unwanted: ids(&unwanted).into_iter().collect(),
                if_version: None,
            })
            .unwrap();
        let released: Vec<_> = released.into_iter().map(id).collect();
        assert_eq!(
            (result.withdrawn_now, result.released),
            (withdrawn, released),
            "{size}"
        );
        assert_eq!(platform.pool.counts().available(), size);
    }
}

#[test]
fn an_outdated_size_is_refused_by_its_version() {
    let mut platform = TestPlatform::running(3, 0);
    let request = |size| SizeRequest {
        size,
        if_version: Some(1),
        ..SizeRequest::default()
    };
    platform.resize(&request(5)).unwrap();
    let refused = platform.resize(&request(4));
    assert_eq!(
        refused,
        Err(Refusal::OtherVersion {
            received: 1,
            current: 2
        })
    );
    assert_eq!(platform.pool.designated, 5);
}

#[test]
fn a_call_of_a_former_owner_is_refused_by_its_epoch() {
    let mut platform = TestPlatform::running(3, 3);
    let former = platform.owner();
    platform.connect(2, &[1, 2, 3]).unwrap();
    let before = platform.pool.clone();
    let stale = Refusal::StaleEpoch {
        received: 1,
        current: 2,
    };
    let request = SizeRequest::default();
    assert_eq!(
        platform.pool.set_size(former, &request, platform.now),
        Err(stale.clone())
    );
    assert_eq!(
        platform.pool.remove(former, &id(1), platform.now),
        Err(stale.clone())
    );
    assert_eq!(platform.connect(1, &[]).unwrap_err(), stale);
    assert_eq!(platform.pool.leave(1), Err(stale));
    assert_eq!(platform.pool, before);
}

#[test]
fn a_late_reconnect_does_not_replace_a_newer_connection() {
    // The failure of a call on connection 1 is noticed after connection 2 was made.
    let mut platform = TestPlatform::running(3, 3);
    platform.restart();
    platform.connect(1, &[1, 2, 3]).unwrap();
    let late = Connect {
        epoch: 1,
        connection: Some(1),
        ..Connect::default()
    };
    let refused = platform.pool.connect(&late, platform.now);
    assert_eq!(
        refused,
        Err(Refusal::StaleConnection {
            received: 1,
            current: 2
        })
    );
    assert!(platform.pool.is_bound());
}

#[test]
fn a_reported_worker_that_is_dead_is_reported_as_removed_at_once() {
    let mut platform = TestPlatform::running(2, 0);
    platform.grant(1);
    platform.end(1, Ending::Died);
    assert!(platform.removed().is_empty());
    assert_eq!(platform.start(1), Ok(false));
    assert_eq!((platform.removed(), platform.state(1)), (vec![id(1)], None));
}

#[test]
fn events_newer_than_the_list_have_a_higher_number() {
    let mut platform = TestPlatform::running(3, 3);
    platform.end(2, Ending::Died);
    let result = platform.connect(2, &[1, 2, 3]).unwrap();
    assert_eq!(result.foreign, [id(2)]);
    let after = platform
        .events
        .iter()
        .filter(|event| event.seq > result.event_seq);
    let reported: Vec<_> = after
        .map(|event| (event.kind, event.worker.clone()))
        .collect();
    assert_eq!(reported, [(EventKind::ResourceRemoved, Some(id(2)))]);
}

#[test]
fn surplus_grants_never_make_requests_negative() {
    let mut platform = TestPlatform::running(1, 0);
    platform.pool.requested.clear();
    platform.grant(1);
    platform.grant(2);
    assert_eq!(platform.counts(), (0, 1, 0));
    assert_eq!(platform.state(2), Some(State::Returning));
}

#[test]
fn a_pool_survives_a_restart_of_owner_and_scheduler() {
    let mut platform = TestPlatform::running(3, 3);
    platform.restart();
    platform.connect(2, &[]).unwrap();
    assert_eq!(platform.counts(), (0, 3, 0));
    for worker in 1..=3 {
        platform.start(worker).unwrap();
    }
    assert_eq!(platform.counts(), (0, 0, 3));
}

#[test]
fn removing_before_shrinking_ends_at_the_same_size() {
    for completion_first in [false, true] {
        let mut platform = TestPlatform::running(7, 7);
        platform.remove(3).unwrap();
        if completion_first {
            platform.end(3, Ending::Intended);
            platform.set_size(6).unwrap();
        } else {
            platform.set_size(6).unwrap();
            platform.end(3, Ending::Intended);
        }
        assert_eq!(platform.counts(), (0, 0, 6), "{completion_first}");
    }
}

#[test]
fn a_worker_unreported_by_a_new_owner_counts_for_a_while_and_is_then_released() {
    let mut platform = TestPlatform::running(2, 2);
    platform.connect(2, &[1]).unwrap();
    platform.advance(platform.pool.rules.reregister_grace_ms - 1);
    assert_eq!(platform.counts(), (0, 0, 2));
    platform.advance(1);
    assert_eq!(platform.counts(), (0, 1, 1));
    platform.advance(platform.pool.rules.register_deadline_ms);
    assert_eq!(platform.state(2), Some(State::Returning));
    // Worker 2 was registered once, and no owner gave it back (WP-8).
    platform.end(2, Ending::Intended);
    assert_eq!(platform.removed(), [id(2)]);
}

#[test]
fn no_deadline_runs_without_an_owner() {
    let mut platform = TestPlatform::running(3, 2);
    platform.grant(3);
    platform.pool.leave(1).unwrap();
    platform.advance(10 * platform.pool.rules.register_deadline_ms);
    assert_eq!(platform.counts(), (0, 1, 2));
    platform.end(1, Ending::Died);
    assert_eq!(
        platform.counts(),
        (0, 1, 1),
        "a pool without an owner requests no worker"
    );
    platform.connect(2, &[2]).unwrap();
    assert_eq!(platform.counts(), (1, 1, 1));
}

#[test]
fn a_silent_owner_is_unbound() {
    let mut platform = TestPlatform::running(1, 1);
    platform.now.monotonic_ms += platform.pool.rules.owner_lease_ms - 1;
    platform.pool.tick(platform.now);
    assert!(platform.pool.is_bound());
    platform.set_size(1).unwrap();
    platform.now.monotonic_ms += platform.pool.rules.owner_lease_ms;
    platform.pool.tick(platform.now);
    assert!(!platform.pool.is_bound());
    assert_eq!(platform.set_size(1), Err(Refusal::NotConnected));
}

#[test]
fn a_vacated_worker_is_replaced_at_once_and_is_no_failure() {
    let mut platform = TestPlatform::running(3, 3);
    platform.apply(PlatformEvent::Leaving {
        id: id(2),
        text: "node n1 is evacuated".into(),
    });
    assert_eq!(platform.counts(), (1, 0, 2));
    assert!(platform.removed().is_empty());
    platform.end(2, Ending::Died);
    assert_eq!(
        (platform.removed(), platform.pool.failed_so_far),
        (vec![id(2)], 0)
    );
    assert_eq!(platform.counts(), (1, 0, 2));
}

#[test]
fn a_successor_under_the_same_number_takes_the_place_of_a_request() {
    // The planner may grant a successor in the round that vacates the worker.
    let mut platform = TestPlatform::running(1, 1);
    let number = platform.pool.workers[&id(1)].number.unwrap();
    let leaving = PlatformEvent::Leaving {
        id: id(1),
        text: "evacuated".into(),
    };
    let granted = PlatformEvent::Granted {
        id: id(2),
        number,
        node: "n2".parse().unwrap(),
    };
    platform.pool.apply_events([leaving, granted], platform.now);
    assert_eq!(platform.counts(), (0, 1, 0));
    assert_eq!(platform.pool.wanted_numbers(), [number].into());
}

#[test]
fn failures_are_forgotten_after_their_window() {
    let rules = Rules {
        failure_window_ms: 10_000,
        ..Rules::default()
    };
    let mut platform = TestPlatform::new(Mode::Managed, 1, Some(1), rules);
    platform.connect(1, &[]).unwrap();
    for worker in 1..=5 {
        platform.grant(worker);
        platform.start(worker).unwrap();
        platform.end(worker, Ending::Died);
        assert_eq!(platform.pool.failed_so_far, 1, "{worker}");
        platform.advance(10_000);
    }
    assert_eq!(
        (platform.pool.failed_so_far, &platform.pool.stopped),
        (0, &None)
    );
}

#[test]
fn the_death_of_a_registered_worker_is_no_failed_start() {
    let rules = Rules {
        start_failures_per_min: 0,
        ..Rules::default()
    };
    let mut platform = TestPlatform::new(Mode::Managed, 1, Some(-1), rules);
    platform.connect(1, &[]).unwrap();
    platform.grant(1);
    platform.start(1).unwrap();
    platform.end(1, Ending::Died);
    assert_eq!(platform.counts(), (1, 0, 0));
    platform.grant(2);
    platform.end(2, Ending::Died);
    assert_eq!(
        platform.counts(),
        (0, 0, 0),
        "a failed start pauses the requests"
    );
}

#[test]
fn a_pool_is_ready_when_all_have_registered_or_time_is_up() {
    let rules = Rules {
        recovery_timeout_ms: 5_000,
        ..Rules::default()
    };
    let mut platform = TestPlatform::new(Mode::Managed, 1, None, rules);
    platform.connect(1, &[]).unwrap();
    platform.grant(1);
    assert!(
        platform.pool.is_ready(platform.now),
        "before a restart the pool waits for no worker"
    );
    platform.restart();
    assert!(!platform.pool.is_ready(platform.now));
    let later = Now {
        monotonic_ms: platform.now.monotonic_ms + 5_000,
        ..platform.now
    };
    assert!(platform.pool.is_ready(later));
    platform.connect(1, &[1]).unwrap();
    assert!(platform.pool.is_ready(platform.now));
}

#[test]
fn the_owner_gets_an_event_for_a_worker_removed_by_an_operator() {
    let mut platform = TestPlatform::running(2, 2);
    platform
        .pool
        .remove(Caller::Operator, &id(1), platform.now)
        .unwrap();
    platform.end(1, Ending::Intended);
    assert_eq!(platform.removed(), [id(1)]);
}

#[test]
fn the_failure_limit_defaults_to_the_initial_size() {
    let limit = |max_failed| Pool::new(Mode::Managed, 4, max_failed, Rules::default()).max_failed;
    assert_eq!(
        [limit(None), limit(Some(9)), limit(Some(-1))],
        [Some(4), Some(9), None]
    );
}

#[test]
fn a_standalone_pool_keeps_workers_up_to_its_limit_and_lists_the_others() {
    let mut platform = TestPlatform::new(Mode::Standalone, 0, None, Rules::default());
    let workers: Vec<u64> = (0..=MAX_FOREIGN as u64).collect();
    let result = platform.connect(1, &workers).unwrap();
    assert_eq!(result.accepted.len(), MAX_FOREIGN);
    assert_eq!(result.foreign.len(), 1);
    assert_eq!(platform.start(900_000), Ok(false));
    assert_eq!(platform.start(1), Ok(true), "the pool still knows worker 1");
}

#[test]
fn the_owner_of_a_standalone_pool_gets_an_event_for_a_removed_worker() {
    let mut platform = TestPlatform::new(Mode::Standalone, 0, None, Rules::default());
    platform.connect(1, &[1, 2]).unwrap();
    let now = platform.now;
    platform.pool.remove(Caller::Operator, &id(1), now).unwrap();
    platform.remove(2).unwrap();
    platform.take_events();
    assert_eq!(platform.removed(), [id(1)]);
}
