//! The check of a plan refuses false vacates, and grants beyond the space, the limits or the
//! requested size.

use super::fixture::{Fixture, GIB, node_name};
use crate::{
    Fault, Part, check,
    output::plan::{Plan, Vacate, VacateReason},
    prune,
};

#[test]
fn untrue_or_forbidden_vacates_are_refused() {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.reservation("r", "a", 4);
    fixture.service("s", "a", 1);
    fixture.job("j", "b", 1);
    fixture.step();
    let mut plan = Plan::default();
    for id in fixture.snapshot.allocations.keys() {
        for (reason, purge) in [
            (VacateReason::Blocked, false),
            (VacateReason::NodeLost, true),
            (VacateReason::NodeOffline, false),
            (VacateReason::WorkGone, false),
            (VacateReason::Preempted, true),
        ] {
            let (allocation, detail) = (id.clone(), String::new());
            plan.vacates.push(Vacate {
                allocation,
                reason,
                detail,
                purge,
            });
        }
    }
    let violations = check(&fixture.snapshot, &plan).unwrap_err();
    assert_eq!(violations.len(), plan.vacates.len());
    let (pruned, _) = prune(&fixture.snapshot, plan);
    assert!(pruned.is_empty());
}

#[test]
fn the_check_refuses_more_grants_than_space_or_limit_allow() {
    let mut fixture = Fixture::eager().nodes(&[4]);
    fixture.job("j", "a", 1).max_processes = 3;
    fixture.job("k", "a", 1).max_processes = 9;
    let plan = fixture.plan();
    for id in ["j", "k"] {
        let mut excessive = plan.clone();
        let grant = plan
            .grants
            .iter()
            .find(|grant| grant.work.as_str() == id)
            .unwrap();
        excessive
            .grants
            .extend(std::iter::repeat_n(grant.clone(), 3));
        let violations = check(&fixture.snapshot, &excessive).unwrap_err();
        assert!(
            violations
                .iter()
                .all(|violation| matches!(violation.part, Part::Grant(index) if index >= 4))
        );
    }
}

/// A node may exceed the request of a reservation by 1 GiB, or by any amount without the setting
/// (R-9.11).
#[test]
fn the_check_refuses_nodes_too_large_for_a_reservation() {
    let mut fixture = Fixture::eager().nodes(&[4, 5]);
    fixture.snapshot.tunables.reserve_overage_bytes = Some(GIB);
    fixture.reservation("r", "a", 3);
    let plan = fixture.plan();
    assert_eq!(plan.grants[0].node.as_str(), "n00");
    let mut large = plan.clone();
    let grant = &mut large.grants[0];
    (grant.node, grant.quanta) = (node_name("n01"), 5);
    grant.size = fixture.node("n01").capacity.clone();
    let violations = check(&fixture.snapshot, &large).unwrap_err();
    assert!(matches!(
        violations[0].fault,
        Fault::WrongSize {
            granted: 5,
            needed: 3
        }
    ));
    fixture.snapshot.tunables.reserve_overage_bytes = None;
    assert!(check(&fixture.snapshot, &large).is_ok());
}
