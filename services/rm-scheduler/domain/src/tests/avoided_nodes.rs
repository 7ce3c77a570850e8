//! Nodes that are blocked for one piece of work alone (blocklist 8.5).

use std::collections::BTreeSet;

use super::fixture::{Fixture, node_name, share, work_id};
use crate::{
    FairShare, Fault, Part, Planner, Rounds, SnapshotDelta, Violation, check,
    output::plan::{Plan, Reason, Unblock},
};

fn nodes(names: &[&str]) -> BTreeSet<hayward_vocabulary::NodeName> {
    names.iter().map(|name| node_name(name)).collect()
}

fn places(plan: &Plan, id: &str) -> BTreeSet<String> {
    let grants = plan.grants.iter().filter(|grant| grant.work.as_str() == id);
    grants.map(|grant| grant.node.to_string()).collect()
}

#[test]
fn scenario_28_other_work_is_unaffected() {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("shy", "a", 1).avoids = nodes(&["n00", "gone"]);
    fixture.job("bold", "b", 1);
    let plan = fixture.step();
    assert_eq!(places(&plan, "shy"), ["n01".to_owned()].into());
    assert_eq!(share(&plan, "shy").counted, 4);
    assert_eq!(share(&plan, "bold").counted, 4);
    for _ in 0..6 {
        fixture.step();
    }
    let (shy, bold) = (
        share(&fixture.plan(), "shy"),
        share(&fixture.plan(), "bold"),
    );
    assert_eq!((shy.current, bold.current), (4, 4));
}

#[test]
fn a_list_without_what_is_avoided() {
    let mut fixture = Fixture::eager().nodes(&[4, 4, 4]);
    let demand = fixture.job("listed", "a", 1);
    demand.machines = nodes(&["n00", "n01"]);
    demand.avoids = nodes(&["n01", "n02"]);
    assert_eq!(places(&fixture.plan(), "listed"), ["n00".to_owned()].into());
}

#[test]
fn everything_avoided_is_all_blocked_and_says_what_to_open() {
    for kind in 0..2 {
        let mut fixture = Fixture::eager().nodes(&[4, 2, 1]);
        let demand = match kind {
            0 => fixture.job("shy", "a", 2),
            _ => fixture.service("shy", "a", 2),
        };
        // The third is too small in any case.
        demand.avoids = nodes(&["n00", "n01"]);
        fixture.job("bold", "b", 1);
        let plan = fixture.plan();
        let verdict = &plan.verdicts["shy"];
        assert_eq!(verdict.reason, Reason::AllBlocked, "{verdict:#?}");
        assert!(!verdict.refused);
        let node = node_name("n00");
        assert_eq!(verdict.unblock, Some(Unblock::OpenNode { node }));
        assert!(!places(&plan, "bold").is_empty());
        // What is blocked for all and what is blocked for one come together.
        fixture.of("shy").avoids = nodes(&["n00"]);
        fixture.block("n01", crate::input::snapshot::BlockEffect::Mark);
        assert_eq!(fixture.plan().verdicts["shy"].reason, Reason::AllBlocked);
        fixture.of("shy").avoids.clear();
        assert_eq!(places(&fixture.plan(), "shy"), ["n00".to_owned()].into());
    }
}

#[test]
fn race_1_a_grant_that_the_work_avoids_is_refused_when_it_is_committed() {
    let mut fixture = Fixture::eager().nodes(&[4]);
    fixture.job("shy", "a", 1);
    let plan = fixture.plan();
    fixture.of("shy").avoids = nodes(&["n00"]);
    let refused = check(&fixture.snapshot, &plan).unwrap_err();
    assert_eq!(refused.len(), plan.grants.len());
    let (part, fault) = (Part::Grant(0), Fault::Avoided(node_name("n00")));
    assert_eq!(refused[0], Violation { part, fault });
}

#[test]
fn news_of_it_is_as_good_as_reading_everything() {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("shy", "a", 1);
    let mut rounds = Rounds::default();
    rounds.decide(&fixture.snapshot, &SnapshotDelta::everything());
    for avoids in [nodes(&["n00"]), nodes(&["n00", "n01"]), nodes(&[])] {
        fixture.of("shy").avoids = avoids;
        let delta = SnapshotDelta::of_work(&fixture.snapshot, [work_id("shy")]);
        let decided = rounds.decide(&fixture.snapshot, &delta);
        assert_eq!(
            rounds.full_plan(decided),
            FairShare.schedule(&fixture.snapshot)
        );
    }
}
