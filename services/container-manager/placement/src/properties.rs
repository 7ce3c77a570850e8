//! Invariants under random sequences of events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::environment::{Environment, LiveState};
use crate::placement::Placement;
use crate::status::Status;
use crate::test_fleet::{TestFleet, host, work};

#[derive(Debug, Clone)]
enum Act {
    Submit(usize, usize),
    Serve,
    ServeDemand,
    Nodes,
    /// A process ends by itself.
    Crash(usize),
    /// A granted place is lost.
    Lose(usize),
    Pass(i64),
    Close(usize, bool),
    Restart,
    Fail(usize),
    Withdraw(usize),
}

const IDS: [&str; 5] = ["0", "0-0", "0-1", "1", "2"];
const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
const DESTINATIONS: [&str; 8] = [
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
        4 => (0..IDS.len(), 0..DESTINATIONS.len()).prop_map(|(id, to)| Act::Submit(id, to)),
        4 => Just(Act::Serve),
        3 => Just(Act::ServeDemand),
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

fn full_fleet(capacity: usize) -> TestFleet {
    let mut fleet = TestFleet::new();
    for name in HOSTS {
        fleet.env.capacity.insert(host(name), capacity);
    }
    fleet.active("0");
    fleet.standby("0", 0);
    fleet.standby("0", 1);
    fleet.active("1");
    fleet.active("2");
    for (id, on) in [
        ("0", "a"),
        ("0-0", "b"),
        ("0-1", "c"),
        ("1", "d"),
        ("2", "a"),
    ] {
        fleet.runs(id, on);
    }
    fleet
}

fn run(fleet: &mut TestFleet, at: usize, act: &Act) {
    match act {
        Act::Submit(id, destination) => {
            fleet
                .submit(
                    &format!("u{at}"),
                    IDS[*id],
                    DESTINATIONS[*destination],
                    None,
                )
                .unwrap();
        }
        Act::Serve => drop(fleet.serve()),
        Act::ServeDemand => fleet.serve_demand(),
        Act::Nodes => fleet.run_nodes(),
        Act::Crash(id) => {
            let up = fleet.env.live_containers(&work(IDS[*id])).into_iter();
            if let Some(container) = up.filter(|it| it.state != LiveState::Held).last() {
                fleet.end(&container.allocation);
            }
        }
        Act::Lose(nth) => {
            let places = fleet.env.containers.iter();
            let mut held = places.filter(|(_, it)| it.state == LiveState::Held && !it.ended);
            if let Some(id) = held.nth(*nth).map(|(id, _)| id.clone()) {
                fleet.end(&id);
            }
        }
        Act::Pass(ms) => fleet.env.now_ms += ms,
        Act::Close(at, true) => drop(fleet.env.closed.insert(host(HOSTS[*at]))),
        Act::Close(at, false) => drop(fleet.env.closed.remove(&host(HOSTS[*at]))),
        Act::Restart => fleet.restart(),
        Act::Fail(id) => {
            if fleet.env.live_containers(&work(IDS[*id])).is_empty() {
                fleet.failed(IDS[*id], true);
            }
        }
        Act::Withdraw(nth) => drop(fleet.placements.withdraw(&format!("u{nth}"))),
    }
    fleet.tick();
}

fn check(fleet: &TestFleet, finals: &mut BTreeMap<String, Placement>) {
    for id in IDS {
        let live = fleet.env.live_containers(&work(id));
        let up = live.iter().filter(|it| it.state != LiveState::Held).count();
        assert!(
            up <= 1,
            "{id}: a successor was started before its predecessor had ended"
        );
        let open = fleet.placements.open().filter(|it| it.is_in_flight());
        let in_flight = open.filter(|it| it.processor_id == work(id)).count();
        assert!(in_flight <= 1, "{id}: {in_flight} actions in flight");
        // Exactly one of: a running container, a request, the demand (P1).
        let has_demand = fleet.demand().contains(&work(id));
        let has_request = fleet.requests().values().any(|it| *it == work(id));
        let failed = fleet.env.processors[&work(id)].failed;
        assert!(
            failed || up == 1 || has_demand != has_request,
            "{id}: down without a request or demand"
        );
        assert!(!(up == 1 && has_demand), "{id}: up and in demand");
        let held = live.iter().filter(|it| it.state == LiveState::Held).count();
        assert!(held == 0 || has_request, "{id}: held without a request");
    }
    for placement in fleet
        .placements
        .iter()
        .filter(|it| it.status_code.is_final())
    {
        let known = finals
            .entry(placement.uuid.clone())
            .or_insert_with(|| placement.clone());
        assert_eq!(known, placement, "a final placement never changes");
        if placement.status_code == Status::BadRequest {
            assert_eq!(
                placement.progress.requests, 0,
                "a refused request changed nothing"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn one_action_is_in_flight_and_one_container_runs_at_most(
        capacity in 2..4_usize,
        acts in proptest::collection::vec(act(), 1..60),
    ) {
        let mut fleet = full_fleet(capacity);
        let mut finals = BTreeMap::new();
        for (at, act) in acts.iter().enumerate() {
            run(&mut fleet, at, act);
            check(&fleet, &mut finals);
        }
        // With capacity, open hosts and time, every action ends.
        for name in HOSTS {
            fleet.env.capacity.insert(host(name), 20);
        }
        fleet.env.closed.clear();
        for _ in 0..acts.len() + 3 {
            fleet.settle();
            fleet.advance_ms(60_001);
            check(&fleet, &mut finals);
        }
        for id in IDS {
            let failed = fleet.env.processors[&work(id)].failed;
            prop_assert!(failed || fleet.host_of(id).is_some(), "{} never came back", id);
        }
        let open: Vec<_> = fleet.placements.open().map(|it| it.response_message.clone()).collect();
        // Only requests behind a failed processor may still wait.
        let any_failed = IDS.iter().any(|id| fleet.env.processors[&work(id)].failed);
        prop_assert!(open.is_empty() || any_failed, "{open:?}");
    }
}
