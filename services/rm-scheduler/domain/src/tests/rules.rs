//! Rules that a scenario cannot express: sizes of grants, purges, and the state between rounds.

use hayward_vocabulary::Size;

use super::fixture::{Fixture, GIB, node_name, share};
use crate::{
    input::{settings::Settings, snapshot::BlockEffect},
    output::plan::VacateReason,
};

fn reference() -> Fixture {
    let mut fixture = Fixture::eager();
    let tunables = &mut fixture.snapshot.tunables;
    tunables.settings = Settings::reference();
    tunables.fragmentation_threshold = 2;
    fixture
}

/// (R-4.3)
#[test]
fn a_process_is_granted_its_size_in_whole_quanta() {
    let mut fixture = reference();
    fixture.snapshot.quantum.0 = Size::memory(4 * GIB);
    fixture.node_in("default", "n00", 12);
    fixture.job("j", "a", 5).max_processes = 1;
    let plan = fixture.plan();
    assert_eq!(plan.grants[0].order, 2);
    assert_eq!(plan.grants[0].size.memory_bytes, 8 * GIB);
}

/// Job `j` is pinned to n02 and leaves 3 quanta there. Job `w` needs 4 quanta, is entitled to 2
/// processes, gets one, and is needy. In the next round it is placed first, on the new node n00,
/// which is reserved for `r`. With two processes `w` is rich, so its new grant is transferred to
/// `r`, with the whole node (R-12.12).
#[test]
fn a_new_grant_is_handed_to_a_reservation_as_a_whole_node() {
    let mut fixture = reference().nodes(&[]);
    for (name, order) in [("n01", 4), ("n02", 5), ("n03", 1)] {
        fixture.node_in("default", name, order);
    }
    let pinned = fixture.job("j", "b", 1);
    (pinned.max_processes, pinned.machines) = (2, [node_name("n02")].into());
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
    let mut fixture = reference().nodes(&[2]);
    fixture.job("j", "a", 1);
    fixture.step();
    fixture.snapshot.nodes.remove("n00");
    let plan = fixture.plan();
    assert_eq!(plan.vacates.len(), 2);
    let gone = |it: &crate::output::plan::Vacate| it.purge && it.reason == VacateReason::NodeLost;
    assert!(plan.vacates.iter().all(gone), "{plan:#?}");
    assert_eq!(share(&plan, "j").current, 0);
}

/// The state of a node in the next round.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Lost,
    Forgotten,
    Back,
}

/// An allocation and its node, before the node is lost.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the walk takes every combination of them"
)]
struct Before {
    work: &'static str,
    leaving: bool,
    withdrawn: bool,
    fixed: bool,
    block: Option<BlockEffect>,
    offline: bool,
}

fn allocations() -> Vec<Before> {
    let mut all = Vec::new();
    for work in ["j", "s", "r"] {
        for number in 0..16 {
            let [leaving, withdrawn, fixed, offline] = [1, 2, 4, 8].map(|bit| number & bit != 0);
            for block in [None, Some(BlockEffect::Mark), Some(BlockEffect::Evacuate)] {
                let before = Before {
                    work,
                    leaving,
                    withdrawn,
                    fixed,
                    block,
                    offline,
                };
                all.push(before);
            }
        }
    }
    all
}

/// Returns whether the allocation is purged in the round after the fate of the node.
fn given_up(before: Before, fate: Fate) -> bool {
    let mut fixture = Fixture::eager().nodes(&[4]);
    let demand = match before.work {
        "j" => fixture.job("j", "a", 1),
        "s" => fixture.service("s", "a", 1),
        _ => fixture.reservation("r", "a", 4),
    };
    demand.max_processes = 1;
    if before.fixed && before.work == "j" {
        demand.class = Some("fixed".into());
    }
    fixture.step();
    let snapshot = &mut fixture.snapshot;
    let held = snapshot.allocations.values_mut().next();
    let held = held.unwrap_or_else(|| panic!("nothing is granted: {before:?}"));
    held.leaving = before.leaving;
    if before.withdrawn {
        snapshot.demand.clear();
    }
    let node = fixture.node("n00");
    (node.offline, node.lost) = (before.offline, fate == Fate::Lost);
    if let Some(effect) = before.block {
        fixture.block("n00", effect);
    }
    if fate == Fate::Forgotten {
        fixture.snapshot.nodes.remove("n00");
    }
    fixture.plan().vacates.iter().any(|it| it.purge)
}

/// The owner of a reservation ends it by withdrawing it (I12).
#[test]
fn every_allocation_on_a_lost_node_is_purged_except_a_wanted_reservation() {
    for before in allocations() {
        let stays = before.work == "r" && !before.withdrawn;
        for fate in [Fate::Lost, Fate::Forgotten] {
            assert_eq!(given_up(before, fate), !stays, "{before:?} {fate:?}");
        }
        assert!(
            !given_up(before, Fate::Back),
            "{before:?}: its node answers"
        );
    }
}

/// Only allocations survive a restart. Reservation `r` requested 3 quanta and got a node of 4, so
/// it counts 4 and gets no second node. The service and the job count their own quanta (R-14.2).
#[test]
fn a_restart_reads_the_size_of_a_reservation_from_its_allocation() {
    let mut fixture = reference().nodes(&[4, 3]);
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
    let r = share(&plan, "r");
    assert_eq!((r.order, r.counted, r.current), (4, 1, 1));
    assert_eq!((plan.grants.len(), plan.vacates.len()), (0, 0));
    assert_eq!(plan.shares, before.shares);
    assert_eq!((share(&plan, "s").order, share(&plan, "j").current), (1, 2));
}
