//! I4: an exclusive process is never there twice, by whatever road it leaves.
//!
//! The decisions are those of this ledger; the scheduler above and the nodes below are pretended,
//! and everything between them takes as long as it likes: orders, ends, reports and news of ends.
//! The scheduler is a bad one: it grants a successor as soon as the process is told to leave, and
//! does not always name what it takes over from.

mod fixture;

use proptest::prelude::*;

use super::*;
use fixture::{Fleet, NODES};

/// How a process comes to leave.
#[derive(Debug, Clone, Copy)]
enum Road {
    NodeEvacuated,
    WorkerEvacuated,
    BlockedForJob,
    EvacuatedByAndBy,
    Drained,
    DrainDeadline,
    Preempted,
    FailedOver,
    DeployedAnew,
    Moved,
    Restarted,
    RestartedByForce,
    EndedByItself,
}

const ROADS: [Road; 13] = [
    Road::NodeEvacuated,
    Road::WorkerEvacuated,
    Road::BlockedForJob,
    Road::EvacuatedByAndBy,
    Road::Drained,
    Road::DrainDeadline,
    Road::Preempted,
    Road::FailedOver,
    Road::DeployedAnew,
    Road::Moved,
    Road::Restarted,
    Road::RestartedByForce,
    Road::EndedByItself,
];

#[derive(Debug, Clone)]
enum Act {
    /// The process leaves, and its successor may name it.
    Leave(Road, bool),
    /// What is asked for or missing is granted, and may name what it takes over from.
    Grant(usize, bool),
    /// The scheduler hears which containers have ended.
    Hear,
    Bury,
    Poll(usize),
    Obey(usize),
    /// What was told to end does.
    End(usize),
    Report(usize),
    Deliver(usize),
    /// Nothing passes between the node and the others.
    Cut(usize),
    LeaseRunsOut(usize),
    GiveUp(usize),
    Heal(usize),
    RestartManager,
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let node = || 0..NODES;
    prop_oneof![
        4 => (0..ROADS.len(), any::<bool>()).prop_map(|(at, named)| Act::Leave(ROADS[at], named)),
        5 => (node(), any::<bool>()).prop_map(|(at, named)| Act::Grant(at, named)),
        3 => Just(Act::Hear),
        1 => Just(Act::Bury),
        6 => node().prop_map(Act::Poll),
        6 => node().prop_map(Act::Obey),
        4 => node().prop_map(Act::End),
        5 => node().prop_map(Act::Report),
        5 => node().prop_map(Act::Deliver),
        1 => node().prop_map(Act::Cut),
        1 => node().prop_map(Act::LeaseRunsOut),
        1 => node().prop_map(Act::GiveUp),
        1 => node().prop_map(Act::Heal),
        1 => Just(Act::RestartManager),
        2 => (1..4_000_u64).prop_map(Act::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_exclusive_process_is_never_there_twice_by_whatever_road_it_leaves(
        acts in proptest::collection::vec(act(), 1..80),
    ) {
        let mut fleet = Fleet::new();
        for act in &acts {
            fleet.does(act);
            prop_assert!(fleet.alive() <= 1, "two at once after {act:?}");
        }
        fleet.settle();
        prop_assert_eq!(fleet.alive(), 1, "it is always there again in the end");
    }
}
