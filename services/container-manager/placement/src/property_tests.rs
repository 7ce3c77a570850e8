//! Property test: the invariants of placement actions hold after every event of a random sequence.
//!
//! Start state: processor `0` with its standbys `0-0` and `0-1`, and processors `1` and `2`, on the
//! four hosts `a` to `d`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::container_access::{Environment, LiveState};
use crate::placement::Placement;
use crate::status::Status;
use crate::test_fleet::{TestFleet, host, work};

/// An event of the fleet. Numbers are indices into the tables below.
#[derive(Debug, Clone)]
enum Event {
    SubmitRequest {
        processor: usize,
        destination: usize,
    },
    /// The scheduler grants the requests of actions.
    GrantRequests,
    /// The scheduler restarts the processors that are down.
    GrantDemand,
    /// All nodes carry out their orders.
    RunNodes,
    /// A process ends by itself.
    CrashProcess(usize),
    /// A granted container that is still held is lost.
    LoseGrant(usize),
    /// Milliseconds pass.
    AdvanceTime(i64),
    SetHostClosed {
        host: usize,
        is_closed: bool,
    },
    RestartManager,
    /// A processor that is down is declared failed.
    FailProcessor(usize),
    /// The request that the event with this index submitted is withdrawn.
    WithdrawRequest(usize),
}

const PROCESSORS: [&str; 5] = ["0", "0-0", "0-1", "1", "2"];
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

fn any_event() -> impl Strategy<Value = Event> {
    // The numbers on the left are weights: frequent events have a high weight.
    prop_oneof![
        4 => (0..PROCESSORS.len(), 0..DESTINATIONS.len())
            .prop_map(|(processor, destination)| Event::SubmitRequest {
            processor,
            destination,
        }),
        4 => Just(Event::GrantRequests),
        3 => Just(Event::GrantDemand),
        5 => Just(Event::RunNodes),
        2 => (0..PROCESSORS.len()).prop_map(Event::CrashProcess),
        1 => (0..8_usize).prop_map(Event::LoseGrant),
        2 => (1..4_000_i64).prop_map(Event::AdvanceTime),
        1 => (0..HOSTS.len(), any::<bool>())
            .prop_map(|(host, is_closed)| Event::SetHostClosed { host, is_closed }),
        1 => Just(Event::RestartManager),
        1 => (0..PROCESSORS.len()).prop_map(Event::FailProcessor),
        1 => (0..20_usize).prop_map(Event::WithdrawRequest),
    ]
}

fn new_fleet(capacity: usize) -> TestFleet {
    let mut fleet = TestFleet::new();
    for name in HOSTS {
        fleet.env.capacity.insert(host(name), capacity);
    }
    fleet.add_active("0");
    fleet.add_standby("0", 0);
    fleet.add_standby("0", 1);
    fleet.add_active("1");
    fleet.add_active("2");
    for (id, host) in [
        ("0", "a"),
        ("0-0", "b"),
        ("0-1", "c"),
        ("1", "d"),
        ("2", "a"),
    ] {
        fleet.add_running(id, host);
    }
    fleet
}

fn apply(fleet: &mut TestFleet, index: usize, event: &Event) {
    match event {
        Event::SubmitRequest {
            processor,
            destination,
        } => {
            fleet
                .submit(
                    &format!("u{index}"),
                    PROCESSORS[*processor],
                    DESTINATIONS[*destination],
                    None,
                )
                .unwrap();
        }
        Event::GrantRequests => drop(fleet.grant_requests()),
        Event::GrantDemand => fleet.grant_demand(),
        Event::RunNodes => fleet.run_nodes(),
        Event::CrashProcess(id) => {
            let live = fleet
                .env
                .live_containers(&work(PROCESSORS[*id]))
                .into_iter();
            if let Some(container) = live.filter(|it| it.state != LiveState::Held).last() {
                fleet.end_container(&container.allocation);
            }
        }
        Event::LoseGrant(index) => {
            let containers = fleet.env.containers.iter();
            let mut held = containers.filter(|(_, it)| it.state == LiveState::Held && !it.ended);
            if let Some(id) = held.nth(*index).map(|(id, _)| id.clone()) {
                fleet.end_container(&id);
            }
        }
        Event::AdvanceTime(ms) => fleet.env.now_ms += ms,
        Event::SetHostClosed {
            host: index,
            is_closed: true,
        } => drop(fleet.env.closed_hosts.insert(host(HOSTS[*index]))),
        Event::SetHostClosed {
            host: index,
            is_closed: false,
        } => drop(fleet.env.closed_hosts.remove(&host(HOSTS[*index]))),
        Event::RestartManager => fleet.restart(),
        Event::FailProcessor(id) => {
            if fleet.env.live_containers(&work(PROCESSORS[*id])).is_empty() {
                fleet.set_failed(PROCESSORS[*id], true);
            }
        }
        Event::WithdrawRequest(index) => drop(fleet.placements.withdraw(&format!("u{index}"))),
    }
    fleet.advance();
}

/// Checks the invariants. `final_placements` has all final placements that an earlier check saw.
fn check_invariants(fleet: &TestFleet, final_placements: &mut BTreeMap<String, Placement>) {
    for id in PROCESSORS {
        let live = fleet.env.live_containers(&work(id));
        let started = live.iter().filter(|it| it.state != LiveState::Held).count();
        assert!(
            started <= 1,
            "{id}: a successor was started before its predecessor had ended"
        );
        let open = fleet.placements.open().filter(|it| it.is_in_flight());
        let in_flight = open.filter(|it| it.processor_id == work(id)).count();
        assert!(in_flight <= 1, "{id}: {in_flight} actions in flight");
        // A processor that has not failed has exactly one of: a started container, an open request,
        // a demand (P1).
        let has_demand = fleet.demand().contains(&work(id));
        let has_request = fleet.requests().values().any(|it| *it == work(id));
        let failed = fleet.env.processors[&work(id)].failed;
        assert!(
            failed || started == 1 || has_demand != has_request,
            "{id}: down, with neither or both of a request and a demand"
        );
        assert!(!(started == 1 && has_demand), "{id}: started and in demand");
        let held = live.iter().filter(|it| it.state == LiveState::Held).count();
        assert!(held == 0 || has_request, "{id}: held without a request");
    }
    for placement in fleet
        .placements
        .iter()
        .filter(|it| it.status_code.is_final())
    {
        let first_version = final_placements
            .entry(placement.uuid.clone())
            .or_insert_with(|| placement.clone());
        assert_eq!(first_version, placement, "a final placement never changes");
        if placement.status_code == Status::BadRequest {
            assert_eq!(
                placement.progress.request_count, 0,
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
        events in proptest::collection::vec(any_event(), 1..60),
    ) {
        let mut fleet = new_fleet(capacity);
        let mut final_placements = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            apply(&mut fleet, index, event);
            check_invariants(&fleet, &mut final_placements);
        }
        // Every action ends once all hosts have capacity and are open, and time has passed.
        for name in HOSTS {
            fleet.env.capacity.insert(host(name), 20);
        }
        fleet.env.closed_hosts.clear();
        for _ in 0..events.len() + 3 {
            fleet.run_until_settled();
            fleet.advance_ms(60_001);
            check_invariants(&fleet, &mut final_placements);
        }
        for id in PROCESSORS {
            let failed = fleet.env.processors[&work(id)].failed;
            prop_assert!(failed || fleet.running_host(id).is_some(), "{} does not run again", id);
        }
        let open: Vec<_> = fleet
            .placements
            .open()
            .map(|it| it.response_message.clone())
            .collect();
        // Requests may still wait only if a processor has failed.
        let any_failed = PROCESSORS.iter().any(|id| fleet.env.processors[&work(id)].failed);
        prop_assert!(open.is_empty() || any_failed, "{open:?}");
    }
}
