//! An exclusive process runs at most once, however it leaves (I4).
//!
//! The ledger is real; the scheduler and the nodes are simulated, and messages between them take
//! any time. The scheduler is adverse: it grants a successor as soon as the process is ordered to
//! leave, and does not always name the predecessor.

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
enum Act {
    /// The process leaves. True: its successor names it as predecessor.
    Leave(Cause, bool),
    /// An open request or missing process is granted. True: with the predecessor.
    Grant(usize, bool),
    /// The scheduler learns which containers have ended.
    LearnEnds,
    Bury,
    Poll(usize),
    Obey(usize),
    /// Stopping containers end.
    End(usize),
    Report(usize),
    Deliver(usize),
    /// The node is partitioned from the network.
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
        4 => (0..CAUSES.len(), any::<bool>()).prop_map(|(at, named)| Act::Leave(CAUSES[at], named)),
        5 => (node(), any::<bool>()).prop_map(|(at, named)| Act::Grant(at, named)),
        3 => Just(Act::LearnEnds),
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
    fn an_exclusive_process_runs_at_most_once_however_it_leaves(
        acts in proptest::collection::vec(act(), 1..80),
    ) {
        let mut fleet = Fleet::new();
        for act in &acts {
            fleet.apply(act);
            prop_assert!(fleet.alive() <= 1, "two run at once after {act:?}");
        }
        fleet.settle();
        prop_assert_eq!(fleet.alive(), 1, "it runs again in the end");
    }
}
