//! What holds whatever happens, in whatever order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::environment::{StandState, World};
use crate::placement::Placement;
use crate::status::Status;
use crate::test_fleet::{Trial, host, work};

#[derive(Debug, Clone)]
enum Act {
    Order(usize, usize),
    Serve,
    Everyday,
    Nodes,
    /// A process ends by itself.
    Crash(usize),
    /// A place that was granted is lost.
    Lose(usize),
    Pass(i64),
    Close(usize, bool),
    Restart,
    Fail(usize),
    Withdraw(usize),
}

const IDS: [&str; 5] = ["0", "0-0", "0-1", "1", "2"];
const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
const WORDS: [&str; 8] = [
    "a",
    "b",
    "c",
    "d",
    "ANY_HOST",
    "LAST_SEEN",
    "FORCE_RESTART_LAST_SEEN",
    "STANDBY",
];

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..IDS.len(), 0..WORDS.len()).prop_map(|(id, word)| Act::Order(id, word)),
        4 => Just(Act::Serve),
        3 => Just(Act::Everyday),
        5 => Just(Act::Nodes),
        2 => (0..IDS.len()).prop_map(Act::Crash),
        1 => (0..8_usize).prop_map(Act::Lose),
        2 => (1..4_000_i64).prop_map(Act::Pass),
        1 => (0..HOSTS.len(), any::<bool>()).prop_map(|(at, on)| Act::Close(at, on)),
        1 => Just(Act::Restart),
        1 => (0..IDS.len()).prop_map(Act::Fail),
        1 => (0..20_usize).prop_map(Act::Withdraw),
    ]
}

fn fleet(room: usize) -> Trial {
    let mut trial = Trial::new();
    for name in HOSTS {
        trial.fleet.room.insert(host(name), room);
    }
    trial.active("0");
    trial.standby("0", 0);
    trial.standby("0", 1);
    trial.active("1");
    trial.active("2");
    for (id, on) in [
        ("0", "a"),
        ("0-0", "b"),
        ("0-1", "c"),
        ("1", "d"),
        ("2", "a"),
    ] {
        trial.runs(id, on);
    }
    trial
}

fn run(trial: &mut Trial, at: usize, act: &Act) {
    match act {
        Act::Order(id, word) => {
            trial
                .submit(&format!("u{at}"), IDS[*id], WORDS[*word], None)
                .unwrap();
        }
        Act::Serve => drop(trial.serve()),
        Act::Everyday => trial.everyday(),
        Act::Nodes => trial.nodes_act(),
        Act::Crash(id) => {
            let up = trial.fleet.stands(&work(IDS[*id])).into_iter();
            if let Some(stand) = up.filter(|it| it.state != StandState::Held).last() {
                trial.ends(&stand.allocation);
            }
        }
        Act::Lose(nth) => {
            let places = trial.fleet.places.iter();
            let mut held = places.filter(|(_, it)| it.state == StandState::Held && !it.ended);
            if let Some(id) = held.nth(*nth).map(|(id, _)| id.clone()) {
                trial.ends(&id);
            }
        }
        Act::Pass(ms) => trial.fleet.now_ms += ms,
        Act::Close(at, true) => drop(trial.fleet.closed.insert(host(HOSTS[*at]))),
        Act::Close(at, false) => drop(trial.fleet.closed.remove(&host(HOSTS[*at]))),
        Act::Restart => trial.restart(),
        Act::Fail(id) => {
            if trial.fleet.stands(&work(IDS[*id])).is_empty() {
                trial.failed(IDS[*id], true);
            }
        }
        Act::Withdraw(nth) => drop(trial.machine.withdraw(&format!("u{nth}"))),
    }
    trial.tick();
}

fn check(trial: &Trial, finals: &mut BTreeMap<String, Placement>) {
    for id in IDS {
        let stands = trial.fleet.stands(&work(id));
        let up = stands
            .iter()
            .filter(|it| it.state != StandState::Held)
            .count();
        assert!(
            up <= 1,
            "{id}: a successor was started before its predecessor had ended"
        );
        let open = trial.machine.open().filter(|it| it.is_in_flight());
        let flying = open.filter(|it| it.processor_id == work(id)).count();
        assert!(flying <= 1, "{id}: {flying} actions in flight");
        // P1: one asking, or one up; never both, never none.
        let asks = trial.asking().contains(&work(id));
        let stands_in = trial.requests().values().any(|it| *it == work(id));
        let failed = trial.fleet.processors[&work(id)].failed;
        assert!(
            failed || up == 1 || asks != stands_in,
            "{id}: down, and nobody asks for it"
        );
        assert!(!(up == 1 && asks), "{id}: up, and asked for");
        let held = stands
            .iter()
            .filter(|it| it.state == StandState::Held)
            .count();
        assert!(held == 0 || stands_in, "{id}: held for nobody");
    }
    for placement in trial.machine.iter().filter(|it| it.status_code.is_final()) {
        let known = finals
            .entry(placement.uuid.clone())
            .or_insert_with(|| placement.clone());
        assert_eq!(known, placement, "what is final never changes");
        if placement.status_code == Status::BadRequest {
            assert_eq!(placement.hands.requests, 0, "it touched nothing");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn p1_one_in_flight_and_never_two_up(
        room in 2..4_usize,
        acts in proptest::collection::vec(act(), 1..60),
    ) {
        let mut trial = fleet(room);
        let mut finals = BTreeMap::new();
        for (at, act) in acts.iter().enumerate() {
            run(&mut trial, at, act);
            check(&trial, &mut finals);
        }
        // With room, open hosts and time, everything comes to its end.
        for name in HOSTS {
            trial.fleet.room.insert(host(name), 20);
        }
        trial.fleet.closed.clear();
        for _ in 0..acts.len() + 3 {
            trial.settle();
            trial.pass(60_001);
            check(&trial, &mut finals);
        }
        for id in IDS {
            let failed = trial.fleet.processors[&work(id)].failed;
            prop_assert!(failed || trial.is_on(id).is_some(), "{} never came back", id);
        }
        let open: Vec<_> = trial.machine.open().map(|it| it.response_message.clone()).collect();
        // What waits for a failed one that never comes back may wait; nothing else.
        let any_failed = IDS.iter().any(|id| trial.fleet.processors[&work(id)].failed);
        prop_assert!(open.is_empty() || any_failed, "{open:?}");
    }
}
