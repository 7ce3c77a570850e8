//! Nodes that are lost, offline, marked or evacuated.

use hayward_vocabulary::Size;

use super::fixture::{Fixture, share};
use crate::{
    input::snapshot::BlockEffect,
    output::plan::{Reason, VacateReason},
};

/// The processes of a lost node end at once, and successors start elsewhere (X30).
#[test]
fn a_lost_node_is_purged_and_used_again_when_it_returns() {
    let mut fixture = Fixture::new().nodes(&[5; 2]);
    fixture.job("j1", "a", 1);
    fixture.current_processes("j1", 5);
    fixture.node("n00").lost = true;
    let plan = fixture.step();
    assert_eq!(plan.vacates.len(), 5);
    assert!(
        plan.vacates
            .iter()
            .all(|vacate| vacate.purge && vacate.reason == VacateReason::NodeLost)
    );
    assert_eq!(share(&plan, "j1").current, 5);
    assert!(fixture.step().is_empty());
    fixture.node("n00").lost = false;
    assert_eq!(fixture.current_processes("j1", 1), [10]);
}

/// Work of other policies than FAIR_SHARE stays on an offline node (R-6.7).
#[test]
fn an_offline_node_loses_fair_share_work_only() {
    let mut fixture = Fixture::eager().nodes(&[4]);
    fixture.job("j1", "a", 1).max_processes = 2;
    fixture.service("s", "b", 1);
    fixture.step();
    fixture.node_in("default", "n01", 4);
    fixture.node("n00").offline = true;
    let plan = fixture.step();
    assert_eq!(plan.vacates.len(), 2);
    assert!(
        plan.vacates
            .iter()
            .all(|vacate| !vacate.purge && vacate.reason == VacateReason::NodeOffline)
    );
    assert_eq!(
        plan.grants.len(),
        2,
        "successors in the same round: {plan:#?}"
    );
}

#[test]
fn a_mark_stops_new_work_and_an_evacuation_vacates_all_but_reservations() {
    let mut fixture = Fixture::eager().nodes(&[4, 4, 4]);
    fixture.reservation("r", "c", 0).size = Size::default();
    fixture.job("j1", "a", 1).max_processes = 6;
    fixture.service("s", "b", 1);
    fixture.step();
    for name in ["n00", "n01", "n02"] {
        fixture.block(name, BlockEffect::Mark);
    }
    assert!(fixture.plan().is_empty(), "present work stays");
    fixture.service("late", "b", 1);
    assert_eq!(fixture.plan().verdicts["late"].reason, Reason::AllBlocked);
    for name in ["n00", "n01", "n02"] {
        fixture.block(name, BlockEffect::Evacuate);
    }
    let plan = fixture.step();
    assert_eq!(plan.vacates.len(), 7);
    assert!(
        plan.vacates
            .iter()
            .all(|vacate| vacate.reason == VacateReason::Blocked)
    );
    assert_eq!(
        fixture
            .snapshot
            .allocations
            .values()
            .filter(|allocation| allocation.work.as_str() == "r")
            .count(),
        1
    );
    assert!(fixture.plan().is_empty());
}
