//! Property test: an exclusive process never runs twice at once, for every cause of leaving (I4).
//!
//! The ledger is the production code. The scheduler and the nodes are simulated, and messages
//! between them may take any time. The scheduler is adverse: it grants a successor as soon as the
//! process is ordered to leave, and does not always name the predecessor.

mod fixture;

use proptest::prelude::*;

use super::*;
use fixture::{Fleet, NODES};

/// Why a process leaves.
#[derive(Debug, Clone, Copy)]
enum Cause {
    NodeEvacuated,
    WorkerEvacuated,
    BlockedForJob,
    EvacuatedGradually,
    Drained,
    DrainDeadline,
    Preempted,
    FailedOver,
    Redeployed,
    Moved,
    Restarted,
    RestartedByForce,
    EndedByItself,
}

const CAUSES: [Cause; 13] = [
    Cause::NodeEvacuated,
    Cause::WorkerEvacuated,
    Cause::BlockedForJob,
    Cause::EvacuatedGradually,
    Cause::Drained,
    Cause::DrainDeadline,
    Cause::Preempted,
    Cause::FailedOver,
    Cause::Redeployed,
    Cause::Moved,
    Cause::Restarted,
    Cause::RestartedByForce,
    Cause::EndedByItself,
];

#[derive(Debug, Clone)]
enum Event {
    /// The process leaves. `names_predecessor`: its successor names the process as predecessor.
    Leave {
        cause: Cause,
        names_predecessor: bool,
    },
    /// An open request or a missing process is granted on a node.
    Grant {
        node: usize,
        names_predecessor: bool,
    },
    /// The scheduler learns which containers have ended.
    LearnEnds,
    /// The scheduler removes ended allocations.
    RemoveEnded,
    /// The node receives its desired set.
    Poll(usize),
    /// The node carries out its orders.
    CarryOut(usize),
    /// Stopping containers end.
    End(usize),
    /// The node sends a report.
    Report(usize),
    /// container-manager receives the oldest report of the node.
    Deliver(usize),
    /// The node is partitioned from the network.
    Partition(usize),
    ExpireLease(usize),
    /// The node is declared lost.
    DeclareLost(usize),
    /// The node is connected again.
    Reconnect(usize),
    RestartManager,
    /// Milliseconds pass.
    AdvanceTime(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let node = || 0..NODES;
    prop_oneof![
        4 => (0..CAUSES.len(), any::<bool>()).prop_map(|(index, names_predecessor)| Event::Leave {
            cause: CAUSES[index],
            names_predecessor,
        }),
        5 => (node(), any::<bool>()).prop_map(|(node, names_predecessor)| Event::Grant {
            node,
            names_predecessor,
        }),
        3 => Just(Event::LearnEnds),
        1 => Just(Event::RemoveEnded),
        6 => node().prop_map(Event::Poll),
        6 => node().prop_map(Event::CarryOut),
        4 => node().prop_map(Event::End),
        5 => node().prop_map(Event::Report),
        5 => node().prop_map(Event::Deliver),
        1 => node().prop_map(Event::Partition),
        1 => node().prop_map(Event::ExpireLease),
        1 => node().prop_map(Event::DeclareLost),
        1 => node().prop_map(Event::Reconnect),
        1 => Just(Event::RestartManager),
        2 => (1..4_000_u64).prop_map(Event::AdvanceTime),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_exclusive_process_runs_at_most_once_for_every_cause_of_leaving(
        events in proptest::collection::vec(any_event(), 1..80),
    ) {
        let mut fleet = Fleet::new();
        for event in &events {
            fleet.apply(event);
            prop_assert!(fleet.live_count() <= 1, "two processes run at once after {event:?}");
        }
        fleet.run_until_settled();
        prop_assert_eq!(fleet.live_count(), 1, "the process runs again in the end");
    }
}
