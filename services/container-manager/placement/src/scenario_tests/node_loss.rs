//! A node of a move is lost, removed or returns. At every stage of the move, the action ends and
//! the process runs again.
//!
//! Start state: hosts `a` to `d`. Processor `1` runs on `c`, and the request `first` moves it to
//! `d`.

use super::*;
use crate::test_fleet::LIMITS;

/// Event of a node that takes part in the move. Each event ends all containers on the node.
#[derive(Debug, Clone, Copy, PartialEq)]
enum NodeEvent {
    /// The node remains without capacity.
    Lost,
    /// The node is removed from the fleet.
    Removed,
    /// The node is lost, and then has its capacity again.
    Returned,
}

/// Stage of a move of `1` from `c` to `d` when the node is lost.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Queued,
    Requested,
    Granted,
    Stopping,
    Stopped,
    Starting,
    StopFailed,
    Finished,
}

const STAGES: [Stage; 8] = [
    Stage::Queued,
    Stage::Requested,
    Stage::Granted,
    Stage::Stopping,
    Stage::Stopped,
    Stage::Starting,
    Stage::StopFailed,
    Stage::Finished,
];

/// Creates a fleet with a move at this stage.
fn fleet_in_stage(stage: Stage) -> TestFleet {
    let mut fleet = TestFleet::standard();
    let old = fleet.current_container("1");
    match stage {
        Stage::Queued => {
            fleet.request("first", "1", "d");
            fleet.request("second", "1", "b");
            assert_eq!(fleet.status("second").0, Created);
            return fleet;
        }
        _ => fleet.request("first", "1", "d"),
    }
    if matches!(stage, Stage::Requested) {
        return fleet;
    }
    fleet.grant_requests();
    if matches!(stage, Stage::Granted) {
        return fleet;
    }
    fleet.advance();
    assert_eq!(fleet.phase("first"), Some(Phase::StopInProgress));
    match stage {
        Stage::Stopped => {
            fleet.end_container(&old);
        }
        Stage::Starting => {
            fleet.end_container(&old);
            fleet.advance();
        }
        Stage::StopFailed => {
            let timeout_ms = i64::try_from(LIMITS.stop_timeout_ms).unwrap();
            fleet.advance_ms(timeout_ms + 1);
            assert_eq!(fleet.status("first"), (Failed, Some(Reason::StopFailed)));
        }
        Stage::Finished => fleet.run_until_settled(),
        _ => {}
    }
    fleet
}

/// Ends the containers on the node and leaves it without capacity.
fn lose_node(fleet: &mut TestFleet, name: &str, event: NodeEvent) {
    let containers = fleet.env.containers.iter();
    let on_node = containers.filter(|(_, it)| it.host == host(name) && !it.ended);
    let on_node: Vec<_> = on_node.map(|(id, _)| id.clone()).collect();
    for id in on_node {
        fleet.end_container(&id);
    }
    let capacity = fleet.env.capacity.insert(host(name), 0);
    if event == NodeEvent::Removed {
        fleet.env.capacity.remove(&host(name));
    }
    fleet.run_until_settled();
    if event == NodeEvent::Returned {
        fleet.env.capacity.insert(host(name), capacity.unwrap());
    }
}

#[test]
fn every_action_ends_after_a_loss_removal_or_return_of_its_nodes() {
    for stage in STAGES {
        for name in ["c", "d"] {
            for event in [NodeEvent::Lost, NodeEvent::Removed, NodeEvent::Returned] {
                let mut fleet = fleet_in_stage(stage);
                lose_node(&mut fleet, name, event);
                for _ in 0..4 {
                    fleet.run_until_settled();
                    fleet.advance_ms(60_001);
                }
                fleet.run_until_settled();
                let open: Vec<_> = fleet.placements.open().collect();
                assert!(open.is_empty(), "{stage:?} {name} {event:?}: {open:?}");
                assert!(fleet.requests().is_empty() && fleet.demand().is_empty());
                assert!(
                    fleet.running_host("1").is_some(),
                    "{stage:?} {name} {event:?}"
                );
            }
        }
    }
}
