//! Tables, races and worked examples of the specification beside its scenarios.

use crate::test_platform::{Trial, id, ids};
use crate::{
    Connect, Ending, Kind, MOST_FOREIGN, Mode, Now, Pool, Refusal, Rules, Speaker, State, Told,
    Wish, Worker,
};

fn counted(designated: u64, started: u64, launching: u64, requested: u64) -> Trial {
    let mut trial = Trial::of(0);
    trial.connect(1, &[]).unwrap();
    for number in 1..=started + launching {
        let state = if number <= started {
            State::Started
        } else {
            State::Launching
        };
        trial.pool.workers.insert(id(number), Worker::new(state));
    }
    trial.pool.requested = (100..100 + requested).collect();
    trial.pool.last_number = 200;
    trial.pool.designated = designated;
    trial
}

#[test]
fn section_6_requests_exactly_what_is_missing() {
    for (numbers, asked) in [
        ((8, 0, 0, 0), 8),
        ((8, 3, 2, 3), 0),
        ((12, 3, 2, 3), 4),
        ((2, 3, 2, 3), 0),
        ((8, 7, 0, 0), 1),
    ] {
        let (designated, started, launching, requested) = numbers;
        let mut trial = counted(designated, started, launching, requested);
        let (from, now) = (trial.owner(), trial.now);
        let first = trial.pool.check(from, now).unwrap();
        assert_eq!(
            (first.missing, first.requested_now),
            (asked, asked),
            "{numbers:?}"
        );
        let again = trial.pool.check(from, now).unwrap();
        assert_eq!((again.missing, again.requested_now), (0, 0), "{numbers:?}");
        assert_eq!(trial.numbers(), (requested + asked, launching, started));
    }
}

#[test]
fn section_10_lowering_withdraws_requests_and_nothing_else() {
    let mut trial = counted(8, 3, 2, 3);
    let done = trial.size(2).unwrap();
    assert_eq!((done.withdrawn_now, trial.numbers()), (3, (0, 2, 3)));
    let mut trial = counted(8, 3, 2, 3);
    assert_eq!(trial.size(7).unwrap().withdrawn_now, 1);
}

#[test]
fn section_15_4_releases_in_its_order_until_it_fits() {
    // w1–w3 started, w4–w5 launching, 3 requested.
    for (size, unwanted, withdrawn, released) in [
        (7, vec![2], 0, vec![2]),
        (5, vec![2], 2, vec![2]),
        (4, vec![], 3, vec![5]),
        (3, vec![1], 3, vec![1, 5]),
        (1, vec![], 3, vec![5, 4, 3, 2]),
        (8, vec![1, 2, 3], 0, vec![]),
    ] {
        let mut trial = counted(8, 3, 2, 3);
        let done = trial
            .resize(&Wish {
                size,
                release: true,
                unwanted: ids(&unwanted).into_iter().collect(),
                if_version: None,
            })
            .unwrap();
        let released: Vec<_> = released.into_iter().map(id).collect();
        assert_eq!(
            (done.withdrawn_now, done.released),
            (withdrawn, released),
            "{size}"
        );
        assert_eq!(trial.pool.counts().available(), size);
    }
}

#[test]
fn race_10_an_old_size_is_refused_by_its_version() {
    let mut trial = Trial::running(3, 0);
    let wish = |size| Wish {
        size,
        if_version: Some(1),
        ..Wish::default()
    };
    trial.resize(&wish(5)).unwrap();
    let refused = trial.resize(&wish(4));
    assert_eq!(refused, Err(Refusal::OtherVersion { given: 1, known: 2 }));
    assert_eq!(trial.pool.designated, 5);
}

#[test]
fn race_11_a_call_of_the_old_leader_is_refused_by_its_epoch() {
    let mut trial = Trial::running(3, 3);
    let old = trial.owner();
    trial.connect(2, &[1, 2, 3]).unwrap();
    let before = trial.pool.clone();
    let stale = Refusal::StaleEpoch { given: 1, known: 2 };
    let wish = Wish::default();
    assert_eq!(
        trial.pool.set_size(old, &wish, trial.now),
        Err(stale.clone())
    );
    assert_eq!(
        trial.pool.remove(old, &id(1), trial.now),
        Err(stale.clone())
    );
    assert_eq!(trial.connect(1, &[]).unwrap_err(), stale);
    assert_eq!(trial.pool.leave(1), Err(stale));
    assert_eq!(trial.pool, before);
}

#[test]
fn race_3_a_late_reconnect_does_not_cut_a_newer_connection() {
    // E3: the failure of a call on connection 1 is noticed after connection 2 was made.
    let mut trial = Trial::running(3, 3);
    trial.restart();
    trial.connect(1, &[1, 2, 3]).unwrap();
    let late = Connect {
        epoch: 1,
        connection: Some(1),
        ..Connect::default()
    };
    let refused = trial.pool.connect(&late, trial.now);
    assert_eq!(
        refused,
        Err(Refusal::StaleConnection { given: 1, known: 2 })
    );
    assert!(trial.pool.bound());
}

#[test]
fn race_5_a_stranger_that_is_known_to_be_dead_is_told_of_at_once() {
    let mut trial = Trial::running(2, 0);
    trial.grant(1);
    trial.end(1, Ending::Died);
    assert!(trial.removed().is_empty());
    assert_eq!(trial.start(1), Ok(false));
    assert_eq!((trial.removed(), trial.state(1)), (vec![id(1)], None));
}

#[test]
fn race_12_what_the_list_is_too_old_for_comes_after_its_number() {
    let mut trial = Trial::running(3, 3);
    trial.end(2, Ending::Died);
    let answer = trial.connect(2, &[1, 2, 3]).unwrap();
    assert_eq!(answer.foreign, [id(2)]);
    let after = trial.news.iter().filter(|news| news.seq > answer.event_seq);
    let told: Vec<_> = after.map(|news| (news.kind, news.worker.clone())).collect();
    assert_eq!(told, [(Kind::ResourceRemoved, Some(id(2)))]);
}

#[test]
fn race_13_more_grants_than_requests() {
    let mut trial = Trial::running(1, 0);
    trial.pool.requested.clear();
    trial.grant(1);
    trial.grant(2);
    assert_eq!(trial.numbers(), (0, 1, 0));
    assert_eq!(trial.state(2), Some(State::Returning));
}

#[test]
fn race_14_owner_and_scheduler_both_restart() {
    let mut trial = Trial::running(3, 3);
    trial.restart();
    trial.connect(2, &[]).unwrap();
    assert_eq!(trial.numbers(), (0, 3, 0));
    for worker in 1..=3 {
        trial.start(worker).unwrap();
    }
    assert_eq!(trial.numbers(), (0, 0, 3));
}

#[test]
fn e2_shrinking_in_the_wrong_order_ends_at_the_same_size() {
    for completion_first in [false, true] {
        let mut trial = Trial::running(7, 7);
        trial.remove(3).unwrap();
        if completion_first {
            trial.end(3, Ending::Intended);
            trial.size(6).unwrap();
        } else {
            trial.size(6).unwrap();
            trial.end(3, Ending::Intended);
        }
        assert_eq!(trial.numbers(), (0, 0, 6), "{completion_first}");
    }
}

#[test]
fn a_worker_a_new_owner_never_reports_is_counted_for_a_while_and_then_released() {
    let mut trial = Trial::running(2, 2);
    trial.connect(2, &[1]).unwrap();
    trial.pass(trial.pool.rules.reregister_grace_ms - 1);
    assert_eq!(trial.numbers(), (0, 0, 2));
    trial.pass(1);
    assert_eq!(trial.numbers(), (0, 1, 1));
    trial.pass(trial.pool.rules.register_deadline_ms);
    assert_eq!(trial.state(2), Some(State::Returning));
    // It was registered once and its owner did not give it up (W8).
    trial.end(2, Ending::Intended);
    assert_eq!(trial.removed(), [id(2)]);
}

#[test]
fn no_deadline_runs_while_nobody_could_report() {
    let mut trial = Trial::running(3, 2);
    trial.grant(3);
    trial.pool.leave(1).unwrap();
    trial.pass(10 * trial.pool.rules.register_deadline_ms);
    assert_eq!(trial.numbers(), (0, 1, 2));
    trial.end(1, Ending::Died);
    assert_eq!(
        trial.numbers(),
        (0, 1, 1),
        "nothing is asked for that nobody owns"
    );
    trial.connect(2, &[2]).unwrap();
    assert_eq!(trial.numbers(), (1, 1, 1));
}

#[test]
fn a_silent_owner_is_unbound() {
    let mut trial = Trial::running(1, 1);
    trial.now.monotonic_ms += trial.pool.rules.owner_lease_ms - 1;
    trial.pool.tick(trial.now);
    assert!(trial.pool.bound());
    trial.size(1).unwrap();
    trial.now.monotonic_ms += trial.pool.rules.owner_lease_ms;
    trial.pool.tick(trial.now);
    assert!(!trial.pool.bound());
    assert_eq!(trial.size(1), Err(Refusal::NotConnected));
}

#[test]
fn what_the_platform_takes_off_is_replaced_at_once_told_when_gone_and_no_failure() {
    let mut trial = Trial::running(3, 3);
    trial.told(Told::Leaving {
        id: id(2),
        text: "node n1 is evacuated".into(),
    });
    assert_eq!(trial.numbers(), (1, 0, 2));
    assert!(trial.removed().is_empty());
    trial.end(2, Ending::Died);
    assert_eq!(
        (trial.removed(), trial.pool.failed_so_far),
        (vec![id(2)], 0)
    );
    assert_eq!(trial.numbers(), (1, 0, 2));
}

#[test]
fn a_successor_under_the_same_number_takes_the_place_of_a_request() {
    // The planner may grant the successor of a worker that leaves in the round that told it to go.
    let mut trial = Trial::running(1, 1);
    let number = trial.pool.workers[&id(1)].number.unwrap();
    let leaving = Told::Leaving {
        id: id(1),
        text: "evacuated".into(),
    };
    let granted = Told::Granted {
        id: id(2),
        number,
        node: "n2".parse().unwrap(),
    };
    trial.pool.told([leaving, granted], trial.now);
    assert_eq!(trial.numbers(), (0, 1, 0));
    assert_eq!(trial.pool.wants(), [number].into());
}

#[test]
fn failures_are_forgotten_after_their_window() {
    let rules = Rules {
        failure_window_ms: 10_000,
        ..Rules::default()
    };
    let mut trial = Trial::with(Mode::Managed, 1, Some(1), rules);
    trial.connect(1, &[]).unwrap();
    for worker in 1..=5 {
        trial.grant(worker);
        trial.start(worker).unwrap();
        trial.end(worker, Ending::Died);
        assert_eq!(trial.pool.failed_so_far, 1, "{worker}");
        trial.pass(10_000);
    }
    assert_eq!((trial.pool.failed_so_far, &trial.pool.stopped), (0, &None));
}

#[test]
fn the_death_of_a_registered_worker_does_not_mark_the_rate_of_starts() {
    let rules = Rules {
        start_failures_per_min: 0,
        ..Rules::default()
    };
    let mut trial = Trial::with(Mode::Managed, 1, Some(-1), rules);
    trial.connect(1, &[]).unwrap();
    trial.grant(1);
    trial.start(1).unwrap();
    trial.end(1, Ending::Died);
    assert_eq!(trial.numbers(), (1, 0, 0));
    trial.grant(2);
    trial.end(2, Ending::Died);
    assert_eq!(trial.numbers(), (0, 0, 0), "a start that failed does");
}

#[test]
fn it_is_ready_when_all_have_registered_or_the_time_is_over() {
    let rules = Rules {
        recovery_timeout_ms: 5_000,
        ..Rules::default()
    };
    let mut trial = Trial::with(Mode::Managed, 1, None, rules);
    trial.connect(1, &[]).unwrap();
    trial.grant(1);
    assert!(
        trial.pool.ready(trial.now),
        "it waits for nobody before a restart"
    );
    trial.restart();
    assert!(!trial.pool.ready(trial.now));
    let later = Now {
        monotonic_ms: trial.now.monotonic_ms + 5_000,
        ..trial.now
    };
    assert!(trial.pool.ready(later));
    trial.connect(1, &[1]).unwrap();
    assert!(trial.pool.ready(trial.now));
}

#[test]
fn what_an_operator_gives_up_is_told_to_the_owner() {
    let mut trial = Trial::running(2, 2);
    trial
        .pool
        .remove(Speaker::Operator, &id(1), trial.now)
        .unwrap();
    trial.end(1, Ending::Intended);
    assert_eq!(trial.removed(), [id(1)]);
}

#[test]
fn the_limit_of_failures_is_the_initial_size_unless_it_is_named() {
    let limit = |named| Pool::new(Mode::Managed, 4, named, Rules::default()).max_failed;
    assert_eq!(
        [limit(None), limit(Some(9)), limit(Some(-1))],
        [Some(4), Some(9), None]
    );
}

#[test]
fn standalone_keeps_as_many_as_it_has_room_for_and_says_which_it_does_not() {
    let mut trial = Trial::with(Mode::Standalone, 0, None, Rules::default());
    let workers: Vec<u64> = (0..=MOST_FOREIGN as u64).collect();
    let answer = trial.connect(1, &workers).unwrap();
    assert_eq!(answer.accepted.len(), MOST_FOREIGN);
    assert_eq!(answer.foreign.len(), 1);
    assert_eq!(trial.start(900_000), Ok(false));
    assert_eq!(trial.start(1), Ok(true), "known before");
}

#[test]
fn w8_what_an_operator_takes_off_a_standalone_list_is_told() {
    let mut trial = Trial::with(Mode::Standalone, 0, None, Rules::default());
    trial.connect(1, &[1, 2]).unwrap();
    let now = trial.now;
    trial.pool.remove(Speaker::Operator, &id(1), now).unwrap();
    trial.remove(2).unwrap();
    trial.hear();
    assert_eq!(trial.removed(), [id(1)]);
}
