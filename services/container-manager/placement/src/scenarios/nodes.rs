//! Actions whose node is lost, removed or returns: in every phase the action ends and the process
//! runs.

use super::*;
use crate::test_fleet::RULES;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Lost,
    Forgotten,
    Back,
}

/// How far a move of `1` from `c` to `d` is when the node is lost.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Queued,
    Requested,
    Granted,
    Stopping,
    Stopped,
    Starting,
    StopFailed,
    Over,
}

const STAGES: [Stage; 8] = [
    Stage::Queued,
    Stage::Requested,
    Stage::Granted,
    Stage::Stopping,
    Stage::Stopped,
    Stage::Starting,
    Stage::StopFailed,
    Stage::Over,
];

fn at(stage: Stage) -> TestFleet {
    let mut fleet = TestFleet::standard();
    let old = fleet.current("1");
    match stage {
        Stage::Queued => {
            fleet.request("u", "1", "d");
            fleet.request("v", "1", "b");
            assert_eq!(fleet.status("v").0, Created);
            return fleet;
        }
        _ => fleet.request("u", "1", "d"),
    }
    if matches!(stage, Stage::Requested) {
        return fleet;
    }
    fleet.serve();
    if matches!(stage, Stage::Granted) {
        return fleet;
    }
    fleet.tick();
    assert_eq!(fleet.phase("u"), Some(Phase::StopInProgress));
    match stage {
        Stage::Stopped => {
            fleet.end(&old);
        }
        Stage::Starting => {
            fleet.end(&old);
            fleet.tick();
        }
        Stage::StopFailed => {
            let late = i64::try_from(RULES.stop_timeout_ms).unwrap() + 1;
            fleet.advance_ms(late);
            assert_eq!(fleet.status("u"), (Failed, Some(Reason::StopFailed)));
        }
        Stage::Over => fleet.settle(),
        _ => {}
    }
    fleet
}

/// Ends the containers on the node and leaves it without capacity.
fn lose(fleet: &mut TestFleet, name: &str, fate: Fate) {
    let places = fleet.env.containers.iter();
    let there = places.filter(|(_, it)| it.host == host(name) && !it.ended);
    let there: Vec<_> = there.map(|(id, _)| id.clone()).collect();
    for id in there {
        fleet.end(&id);
    }
    let capacity = fleet.env.capacity.insert(host(name), 0);
    if fate == Fate::Forgotten {
        fleet.env.capacity.remove(&host(name));
    }
    fleet.settle();
    if fate == Fate::Back {
        fleet.env.capacity.insert(host(name), capacity.unwrap());
    }
}

#[test]
fn every_action_ends_whatever_happens_to_its_nodes() {
    for stage in STAGES {
        for name in ["c", "d"] {
            for fate in [Fate::Lost, Fate::Forgotten, Fate::Back] {
                let mut fleet = at(stage);
                lose(&mut fleet, name, fate);
                for _ in 0..4 {
                    fleet.settle();
                    fleet.advance_ms(60_001);
                }
                fleet.settle();
                let open: Vec<_> = fleet.placements.open().collect();
                assert!(open.is_empty(), "{stage:?} {name} {fate:?}: {open:?}");
                assert!(fleet.requests().is_empty() && fleet.demand().is_empty());
                assert!(fleet.host_of("1").is_some(), "{stage:?} {name} {fate:?}");
            }
        }
    }
}
