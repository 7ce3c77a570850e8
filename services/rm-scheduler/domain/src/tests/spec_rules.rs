//! Rules of the specification that scenario files cannot express: sizes of grants, purges, and the
//! state between rounds.

use hayward_vocabulary::Size;

use super::fixture::{Fixture, GIB, node_name, share};
use crate::{
    input::{settings::Settings, snapshot::BlockEffect},
    output::plan::{Vacate, VacateReason},
};

/// Returns a fleet without nodes, with the reference settings. They switch off all improvements on
/// the specification.
fn reference_fixture() -> Fixture {
    let mut fixture = Fixture::eager();
    let tunables = &mut fixture.snapshot.tunables;
    tunables.settings = Settings::reference();
    tunables.fragmentation_threshold = 2;
    fixture
}

/// A process of 5 GiB gets two quanta of 4 GiB (R-4.3).
#[test]
fn a_process_is_granted_its_size_in_whole_quanta() {
    let mut fixture = reference_fixture();
    fixture.snapshot.quantum.0 = Size::memory(4 * GIB);
    fixture.node_in("default", "n00", 12);
    fixture.job("j", "a", 5).max_processes = 1;
    let plan = fixture.plan();
    assert_eq!(plan.grants[0].quanta, 2);
    assert_eq!(plan.grants[0].size.memory_bytes, 8 * GIB);
}

/// Job `j` is pinned to `n02` and leaves 3 quanta there. Job `w` is entitled to 2 processes of 4
/// quanta. It gets only one, and is needy. Needy work is placed first in the next round, so `w`
/// gets the new node `n00`, which reservation `r` also wants. With two processes, `w` has
/// enough to be a donor, so its new grant is transferred to `r`, with the whole node (R-12.12).
#[test]
fn a_new_grant_is_transferred_to_a_reservation_as_a_whole_node() {
    let mut fixture = reference_fixture().nodes(&[]);
    for (name, quanta) in [("n01", 4), ("n02", 5), ("n03", 1)] {
        fixture.node_in("default", name, quanta);
    }
    let pinned = fixture.job("j", "b", 1);
    (pinned.max_processes, pinned.node_list) = (2, [node_name("n02")].into());
    fixture.job("w", "a", 4).max_processes = 2;
    let plan = fixture.step();
    assert_eq!(
        (share(&plan, "w").counted, share(&plan, "w").current),
        (2, 1)
    );
    fixture.node_in("default", "n00", 4);
    fixture.reservation("r", "c", 4);
    let plan = fixture.step();
    assert_eq!(share(&plan, "w").current, 1);
    assert_eq!(plan.grants.len(), 1);
    let grant = &plan.grants[0];
    assert_eq!((grant.work.as_str(), grant.node.as_str()), ("r", "n00"));
    assert_eq!(grant.size, fixture.snapshot.nodes["n00"].capacity);
}

/// Recovery purges allocations on an unknown node at once (R-7.5).
#[test]
fn allocations_on_an_unknown_node_are_purged() {
    let mut fixture = reference_fixture().nodes(&[2]);
    fixture.job("j", "a", 1);
    fixture.step();
    fixture.snapshot.nodes.remove("n00");
    let plan = fixture.plan();
    assert_eq!(plan.vacates.len(), 2);
    let is_lost = |vacate: &Vacate| vacate.purge && vacate.reason == VacateReason::NodeLost;
    assert!(plan.vacates.iter().all(is_lost), "{plan:#?}");
    assert_eq!(share(&plan, "j").current, 0);
}

/// Condition of the node of an allocation in the next round.
#[derive(Debug, Clone, Copy, PartialEq)]
enum NodeCondition {
    Lost,
    Removed,
    Responding,
}

/// An allocation and its node, before the node is lost.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the test covers every combination"
)]
struct AllocationCase {
    /// Id of the work: `j` is a job, `s` a service, and `r` a reservation.
    work: &'static str,
    leaving: bool,
    withdrawn: bool,
    fixed: bool,
    block: Option<BlockEffect>,
    offline: bool,
}

/// Returns all combinations of the fields.
fn all_cases() -> Vec<AllocationCase> {
    let mut all = Vec::new();
    for work in ["j", "s", "r"] {
        for number in 0..16 {
            let [leaving, withdrawn, fixed, offline] = [1, 2, 4, 8].map(|bit| number & bit != 0);
            for block in [None, Some(BlockEffect::Mark), Some(BlockEffect::Evacuate)] {
                let case = AllocationCase {
                    work,
                    leaving,
                    withdrawn,
                    fixed,
                    block,
                    offline,
                };
                all.push(case);
            }
        }
    }
    all
}

/// Returns whether the next round purges the allocation.
fn is_purged(case: AllocationCase, condition: NodeCondition) -> bool {
    let mut fixture = Fixture::eager().nodes(&[4]);
    let demand = match case.work {
        "j" => fixture.job("j", "a", 1),
        "s" => fixture.service("s", "a", 1),
        _ => fixture.reservation("r", "a", 4),
    };
    demand.max_processes = 1;
    if case.fixed && case.work == "j" {
        demand.class = Some("fixed".into());
    }
    fixture.step();
    let snapshot = &mut fixture.snapshot;
    let allocation = snapshot.allocations.values_mut().next();
    let allocation = allocation.unwrap_or_else(|| panic!("nothing is granted: {case:?}"));
    allocation.leaving = case.leaving;
    if case.withdrawn {
        snapshot.demand.clear();
    }
    let node = fixture.node("n00");
    (node.offline, node.lost) = (case.offline, condition == NodeCondition::Lost);
    if let Some(effect) = case.block {
        fixture.block("n00", effect);
    }
    if condition == NodeCondition::Removed {
        fixture.snapshot.nodes.remove("n00");
    }
    fixture.plan().vacates.iter().any(|vacate| vacate.purge)
}

/// A reservation ends only when its owner withdraws it (I12).
#[test]
fn every_allocation_on_a_lost_node_is_purged_except_a_wanted_reservation() {
    for case in all_cases() {
        let stays = case.work == "r" && !case.withdrawn;
        for condition in [NodeCondition::Lost, NodeCondition::Removed] {
            assert_eq!(is_purged(case, condition), !stays, "{case:?} {condition:?}");
        }
        assert!(
            !is_purged(case, NodeCondition::Responding),
            "{case:?}: its node responds"
        );
    }
}

/// Only allocations survive a restart. Reservation `r` requested 3 quanta and got a node of 4, so
/// it counts 4 and gets no second node. The service and the job count their own quanta (R-14.2).
#[test]
fn a_restart_reads_the_size_of_a_reservation_from_its_allocation() {
    let mut fixture = reference_fixture().nodes(&[4, 3]);
    fixture.snapshot.tunables.reserve_overage_bytes = Some(GIB);
    fixture.node("n01").takes_work = false;
    fixture.reservation("r", "a", 3);
    fixture.step();
    fixture.node("n01").takes_work = true;
    fixture.service("s", "b", 1).class = Some("fixed".into());
    fixture.job("j", "c", 1);
    fixture.step();
    let before = fixture.plan();
    fixture.snapshot.carried = crate::input::snapshot::Carried::default();
    let plan = fixture.plan();
    let reservation = share(&plan, "r");
    assert_eq!(
        (reservation.quanta, reservation.counted, reservation.current),
        (4, 1, 1)
    );
    assert_eq!((plan.grants.len(), plan.vacates.len()), (0, 0));
    assert_eq!(plan.shares, before.shares);
    assert_eq!(
        (share(&plan, "s").quanta, share(&plan, "j").current),
        (1, 2)
    );
}
