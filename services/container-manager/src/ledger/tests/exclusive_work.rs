//! Property test: an exclusive process never runs twice at once, for every cause of vacating (I4).
//!
//! The ledger is the production code. The scheduler and the nodes are simulated, and messages
//! between them may take any time. The scheduler is adverse: it grants a successor as soon as the
//! process is ordered to leave, and does not always name the predecessor.

mod simulated_fleet;
mod simulated_node;

use proptest::prelude::*;

use super::*;
use simulated_fleet::{NODE_COUNT, SimulatedFleet};

/// Why a process must leave its node.
#[derive(Debug, Clone, Copy, PartialEq)]
enum VacateCause {
    NodeEvacuated,
    WorkerEvacuated,
    BlockedForJob,
    NodeEvacuatedGracefully,
    NodeDrained,
    DrainDeadlineReached,
    Preempted,
    FailedOver,
    Redeployed,
    Moved,
    Restarted,
    RestartedByForce,
    EndedByItself,
}

const CAUSES: [VacateCause; 13] = [
    VacateCause::NodeEvacuated,
    VacateCause::WorkerEvacuated,
    VacateCause::BlockedForJob,
    VacateCause::NodeEvacuatedGracefully,
    VacateCause::NodeDrained,
    VacateCause::DrainDeadlineReached,
    VacateCause::Preempted,
    VacateCause::FailedOver,
    VacateCause::Redeployed,
    VacateCause::Moved,
    VacateCause::Restarted,
    VacateCause::RestartedByForce,
    VacateCause::EndedByItself,
];

/// An event of the scheduler, of a node or of container-manager. Nodes are given by their index.
#[derive(Debug, Clone)]
enum Event {
    /// The scheduler orders the process to leave. If `names_predecessor` is true, the allocation of
    /// its successor names the process as predecessor.
    VacateProcess {
        cause: VacateCause,
        names_predecessor: bool,
    },
    /// The scheduler grants an open request or a missing process on a node.
    GrantAllocation {
        node: usize,
        names_predecessor: bool,
    },
    /// The scheduler learns which containers have ended.
    LearnEnds,
    /// The scheduler removes ended allocations.
    RemoveEndedAllocations,
    /// The node receives its desired set.
    PollDesiredSet(usize),
    /// The node starts and stops processes according to its desired set.
    ApplyDesiredSet(usize),
    /// All stopping processes on the node end.
    EndStoppingProcesses(usize),
    SendReport(usize),
    /// container-manager receives the oldest report of the node.
    DeliverReport(usize),
    /// The node is partitioned from the network.
    PartitionNode(usize),
    ExpireLease(usize),
    DeclareNodeLost(usize),
    /// The node is connected again.
    ReconnectNode(usize),
    RestartManager,
    /// Milliseconds pass.
    AdvanceTime(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let node = || 0..NODE_COUNT;
    let any_cause = proptest::sample::select(CAUSES.to_vec());
    let vacate_process =
        (any_cause, any::<bool>()).prop_map(|(cause, names_predecessor)| Event::VacateProcess {
            cause,
            names_predecessor,
        });
    let grant_allocation =
        (node(), any::<bool>()).prop_map(|(node, names_predecessor)| Event::GrantAllocation {
            node,
            names_predecessor,
        });
    // The numbers on the left are weights: frequent events have a high weight.
    prop_oneof![
        4 => vacate_process,
        5 => grant_allocation,
        3 => Just(Event::LearnEnds),
        1 => Just(Event::RemoveEndedAllocations),
        6 => node().prop_map(Event::PollDesiredSet),
        6 => node().prop_map(Event::ApplyDesiredSet),
        4 => node().prop_map(Event::EndStoppingProcesses),
        5 => node().prop_map(Event::SendReport),
        5 => node().prop_map(Event::DeliverReport),
        1 => node().prop_map(Event::PartitionNode),
        1 => node().prop_map(Event::ExpireLease),
        1 => node().prop_map(Event::DeclareNodeLost),
        1 => node().prop_map(Event::ReconnectNode),
        1 => Just(Event::RestartManager),
        2 => (1..4_000_u64).prop_map(Event::AdvanceTime),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_exclusive_process_runs_at_most_once_for_every_cause_of_vacating(
        events in proptest::collection::vec(any_event(), 1..80),
    ) {
        let mut fleet = SimulatedFleet::new();
        for event in &events {
            fleet.apply(event);
            prop_assert!(fleet.live_count() <= 1, "two processes run at once after {event:?}");
        }
        fleet.run_until_settled();
        prop_assert_eq!(fleet.live_count(), 1, "the process runs again in the end");
    }
}
