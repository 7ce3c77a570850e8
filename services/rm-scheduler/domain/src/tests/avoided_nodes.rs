//! Nodes that are blocked for one piece of work only. In each test, work `avoiding` avoids nodes,
//! and work `any-node` does not.

use std::collections::BTreeSet;

use super::fixture::{Fixture, node_name, share, work_id};
use crate::{
    FairShare, Fault, Part, Planner, Rounds, SnapshotDelta, Violation, check,
    output::plan::{Plan, Reason, Unblock},
};

fn nodes(names: &[&str]) -> BTreeSet<hayward_vocabulary::NodeName> {
    names.iter().map(|name| node_name(name)).collect()
}

fn granted_nodes(plan: &Plan, id: &str) -> BTreeSet<String> {
    let grants = plan.grants.iter().filter(|grant| grant.work.as_str() == id);
    grants.map(|grant| grant.node.to_string()).collect()
}

#[test]
fn a_block_for_one_piece_of_work_affects_no_other_work() {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("avoiding", "a", 1).avoids = nodes(&["n00", "gone"]);
    fixture.job("any-node", "b", 1);
    let plan = fixture.step();
    assert_eq!(granted_nodes(&plan, "avoiding"), ["n01".to_owned()].into());
    assert_eq!(share(&plan, "avoiding").counted, 4);
    assert_eq!(share(&plan, "any-node").counted, 4);
    for _ in 0..6 {
        fixture.step();
    }
    let (avoiding, any_node) = (
        share(&fixture.plan(), "avoiding"),
        share(&fixture.plan(), "any-node"),
    );
    assert_eq!((avoiding.current, any_node.current), (4, 4));
}

#[test]
fn work_uses_no_avoided_node_of_its_node_list() {
    let mut fixture = Fixture::eager().nodes(&[4, 4, 4]);
    let demand = fixture.job("listed", "a", 1);
    demand.node_list = nodes(&["n00", "n01"]);
    demand.avoids = nodes(&["n01", "n02"]);
    assert_eq!(
        granted_nodes(&fixture.plan(), "listed"),
        ["n00".to_owned()].into()
    );
}

#[test]
fn the_unblock_of_work_that_avoids_all_nodes_names_a_node_to_open() {
    for is_job in [true, false] {
        let mut fixture = Fixture::eager().nodes(&[4, 2, 1]);
        let demand = if is_job {
            fixture.job("avoiding", "a", 2)
        } else {
            fixture.service("avoiding", "a", 2)
        };
        // The third node is too small in any case.
        demand.avoids = nodes(&["n00", "n01"]);
        fixture.job("any-node", "b", 1);
        let plan = fixture.plan();
        let verdict = &plan.verdicts["avoiding"];
        assert_eq!(verdict.reason, Reason::AllBlocked, "{verdict:#?}");
        assert!(!verdict.refused);
        let node = node_name("n00");
        assert_eq!(verdict.unblock, Some(Unblock::OpenNode { node }));
        assert!(!granted_nodes(&plan, "any-node").is_empty());
        // One node is avoided by the work, and the other is blocked for all work.
        fixture.demand_mut("avoiding").avoids = nodes(&["n00"]);
        fixture.block("n01", crate::input::snapshot::BlockEffect::Mark);
        assert_eq!(
            fixture.plan().verdicts["avoiding"].reason,
            Reason::AllBlocked
        );
        fixture.demand_mut("avoiding").avoids.clear();
        assert_eq!(
            granted_nodes(&fixture.plan(), "avoiding"),
            ["n00".to_owned()].into()
        );
    }
}

#[test]
fn the_check_refuses_a_grant_on_a_node_that_is_avoided_by_now() {
    let mut fixture = Fixture::eager().nodes(&[4]);
    fixture.job("avoiding", "a", 1);
    let plan = fixture.plan();
    fixture.demand_mut("avoiding").avoids = nodes(&["n00"]);
    let refused = check(&fixture.snapshot, &plan).unwrap_err();
    assert_eq!(refused.len(), plan.grants.len());
    let (part, fault) = (Part::Grant(0), Fault::Avoided(node_name("n00")));
    assert_eq!(refused[0], Violation { part, fault });
}

#[test]
fn a_plan_from_a_delta_of_avoided_nodes_equals_a_plan_from_the_snapshot() {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("avoiding", "a", 1);
    let mut rounds = Rounds::default();
    rounds.decide(&fixture.snapshot, &SnapshotDelta::everything());
    for avoids in [nodes(&["n00"]), nodes(&["n00", "n01"]), nodes(&[])] {
        fixture.demand_mut("avoiding").avoids = avoids;
        let delta = SnapshotDelta::for_work(&fixture.snapshot, [work_id("avoiding")]);
        let decided = rounds.decide(&fixture.snapshot, &delta);
        assert_eq!(
            rounds.full_plan(decided),
            FairShare.schedule(&fixture.snapshot)
        );
    }
}
