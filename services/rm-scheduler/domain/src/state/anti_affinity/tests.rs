//! Tests of anti-affinity: no two members of a group are on one node or in one fault domain.
//!
//! `Fixture::eager().nodes(&[8, 2])` is a fleet with nodes `n00` of 8 quanta and `n01` of 2 quanta.
//! `step` decides one round and carries out its plan.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{Apart, NodeName};
use proptest::prelude::*;

use crate::{
    FairShare, Fault, Part, Planner, Rounds, SnapshotDelta, Violation, check,
    input::snapshot::BlockEffect,
    output::plan::{Plan, Reason, Unblock},
    tests::fixture::{Fixture, node_name, share, work_id},
};

/// Adds an active process of this name and its standbys, as `a` and `a-0`.
fn add_group(fixture: &mut Fixture, name: &str, standbys: u32, label: Option<&str>) {
    let names = (0..standbys).map(|replica| format!("{name}-{replica}"));
    for id in std::iter::once(name.to_owned()).chain(names) {
        let demand = fixture.service(&id, "ann", 1);
        demand.service = Some(work_id("svc_x"));
        demand.anti_affinity = Some(Apart {
            group: work_id(name),
            by_label: label.map(str::to_owned),
        });
    }
}

/// Returns the nodes of each member of a group, including leaving members.
fn nodes_by_member(fixture: &Fixture, name: &str) -> BTreeMap<String, Vec<NodeName>> {
    let mut nodes_by_member: BTreeMap<String, Vec<NodeName>> = BTreeMap::new();
    for allocation in fixture.snapshot.allocations.values() {
        let demand = fixture.snapshot.demand.get(&allocation.work);
        let apart = demand.and_then(|demand| demand.anti_affinity.as_ref());
        if apart.is_some_and(|apart| apart.group.as_str() == name) {
            let nodes = nodes_by_member
                .entry(allocation.work.to_string())
                .or_default();
            nodes.push(allocation.node.clone());
        }
    }
    nodes_by_member
}

/// Asserts that no two members of any group are on one node.
fn assert_apart(fixture: &Fixture, names: &[&str]) {
    for name in names {
        let nodes_by_member = nodes_by_member(fixture, name);
        let mut seen = BTreeMap::new();
        for (work, nodes) in &nodes_by_member {
            for node in nodes {
                let other = seen.insert(node.clone(), work.clone());
                assert!(
                    other.is_none_or(|other| other == *work),
                    "{nodes_by_member:?}"
                );
            }
        }
    }
}

/// Sets the label `rack` of the nodes, in order. `None` removes it.
fn set_labels(fixture: &mut Fixture, values: &[Option<&str>]) {
    for (number, value) in values.iter().enumerate() {
        let node = fixture.node(&format!("n{number:02}"));
        node.labels = value
            .iter()
            .map(|rack| ("rack".into(), (*rack).into()))
            .collect();
    }
}

fn granted_work(plan: &Plan) -> BTreeSet<String> {
    plan.grants
        .iter()
        .map(|grant| grant.work.to_string())
        .collect()
}

#[test]
fn an_active_and_its_standby_start_on_two_nodes_in_one_round() {
    let mut fixture = Fixture::eager().nodes(&[8, 8]);
    add_group(&mut fixture, "a", 1, None);
    let plan = fixture.step();
    assert_eq!(granted_work(&plan), ["a".to_owned(), "a-0".into()].into());
    assert_apart(&fixture, &["a"]);
}

#[test]
fn a_standby_without_a_second_node_waits_with_its_reason() {
    let mut fixture = Fixture::eager().nodes(&[8, 2]);
    fixture.job("full", "bob", 1);
    fixture.block("n01", BlockEffect::Mark);
    add_group(&mut fixture, "a", 1, None);
    let plan = fixture.step();
    assert!(granted_work(&plan).contains("a") && !granted_work(&plan).contains("a-0"));
    let verdict = &plan.verdicts["a-0"];
    assert_eq!(
        (verdict.reason, verdict.refused),
        (Reason::AntiAffinity, false),
        "{verdict:#?}"
    );
    assert!(verdict.detail.contains("kept apart"), "{verdict:#?}");
    assert_eq!(verdict.unblock, Some(Unblock::AddNode { quanta: 1 }));
    // No process is vacated for the standby on the node that it may not use.
    for _ in 0..4 {
        assert!(fixture.step().vacates.is_empty());
    }
    fixture.node("n01").block = None;
    assert!(granted_work(&fixture.step()).contains("a-0"));
    assert_apart(&fixture, &["a"]);
}

#[test]
fn the_suggested_change_is_space_on_another_node() {
    let mut fixture = Fixture::eager().nodes(&[8, 2]);
    // Other work holds the second node permanently.
    let holds = fixture.service("holds", "bob", 2);
    holds.node_list = [node_name("n01")].into();
    fixture.step();
    add_group(&mut fixture, "a", 1, None);
    let plan = fixture.step();
    let verdict = &plan.verdicts["a-0"];
    let (node, quanta) = (node_name("n01"), 1);
    assert_eq!(verdict.reason, Reason::AntiAffinity);
    assert_eq!(verdict.unblock, Some(Unblock::FreeRoom { node, quanta }));
}

#[test]
fn a_leaving_allocation_counts_until_it_has_left() {
    let mut fixture = Fixture::eager().nodes(&[8, 8]);
    fixture.departure_rounds = 3;
    add_group(&mut fixture, "a", 1, None);
    fixture.step();
    let before = nodes_by_member(&fixture, "a");
    // The standby leaves. Its active may take the node only after the standby has left.
    fixture.demand_mut("a-0").max_processes = 0;
    fixture.demand_mut("a").node_list = before["a-0"].iter().cloned().collect();
    let mut allocations = fixture.snapshot.allocations.iter();
    let active = allocations.find(|(_, allocation)| allocation.work.as_str() == "a");
    let active = active.map(|(id, _)| id.clone()).unwrap();
    fixture.snapshot.allocations.remove(&active);
    let mut waited_rounds = 0;
    while !granted_work(&fixture.step()).contains("a") {
        assert_apart(&fixture, &["a"]);
        waited_rounds += 1;
        assert!(waited_rounds < 10);
    }
    assert!(waited_rounds >= 2);
    assert_eq!(nodes_by_member(&fixture, "a")["a"], before["a-0"]);
}

#[test]
fn members_start_in_different_fault_domains_of_the_label() {
    let mut fixture = Fixture::eager().nodes(&[8, 8, 8, 8]);
    set_labels(&mut fixture, &[Some("r1"), Some("r1"), Some("r2"), None]);
    add_group(&mut fixture, "a", 1, Some("rack"));
    fixture.step();
    let racks: BTreeSet<String> = nodes_by_member(&fixture, "a")
        .values()
        .flatten()
        .map(|node| fixture.snapshot.nodes[node].labels["rack"].clone())
        .collect();
    assert_eq!(racks, ["r1".to_owned(), "r2".into()].into());
}

#[test]
fn a_standby_waits_if_there_is_one_fault_domain_and_its_verdict_names_the_label() {
    let mut fixture = Fixture::eager().nodes(&[8, 8]);
    set_labels(&mut fixture, &[Some("r1"), Some("r1")]);
    add_group(&mut fixture, "a", 1, Some("rack"));
    let verdict = fixture.step().verdicts["a-0"].clone();
    assert_eq!(verdict.reason, Reason::AntiAffinity);
    assert!(verdict.detail.contains("\"rack\""), "{verdict:#?}");
}

#[test]
fn a_plan_with_two_members_on_one_node_is_refused() {
    let mut fixture = Fixture::eager().nodes(&[8, 8]);
    add_group(&mut fixture, "a", 1, None);
    let mut plan = fixture.plan();
    plan.grants[1].node = plan.grants[0].node.clone();
    let refused = check(&fixture.snapshot, &plan).unwrap_err();
    let fault = Fault::NotApart(plan.grants[0].node.clone());
    let part = Part::Grant(1);
    assert_eq!(refused, [Violation { part, fault }]);
    set_labels(&mut fixture, &[Some("r1"), Some("r1")]);
    for id in ["a", "a-0"] {
        fixture
            .demand_mut(id)
            .anti_affinity
            .as_mut()
            .unwrap()
            .by_label = Some("rack".into());
    }
    plan.grants[1].node = node_name("n01");
    plan.grants[0].node = node_name("n00");
    assert_eq!(check(&fixture.snapshot, &plan).unwrap_err().len(), 1);
}

#[test]
fn anti_affinity_holds_with_and_without_gpus() {
    let mut fixture = Fixture::eager().nodes(&[8, 8]);
    for name in ["n00", "n01"] {
        fixture.node(name).capacity.gpu_milli = 4_000;
    }
    add_group(&mut fixture, "a", 1, None);
    for id in ["a", "a-0"] {
        fixture.demand_mut(id).size.gpu_milli = 1_000;
    }
    assert_eq!(granted_work(&fixture.step()).len(), 2);
    assert_apart(&fixture, &["a"]);
}

/// A change between two rounds. Nodes and members are given by number. A suspended member wants no
/// process.
#[derive(Debug, Clone)]
enum Change {
    ToggleNode(usize),
    EndMember(usize),
    SetSuspended(usize, bool),
    AddJob(u64),
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..5_usize).prop_map(Change::ToggleNode),
        (0..9_usize).prop_map(Change::EndMember),
        (0..9_usize, any::<bool>())
            .prop_map(|(member, is_suspended)| Change::SetSuspended(member, is_suspended)),
        (1..4_u64).prop_map(Change::AddJob),
    ]
}

fn apply_change(fixture: &mut Fixture, change: &Change, number: usize) {
    let members: Vec<String> = ["a", "b", "c"]
        .iter()
        .flat_map(|name| [(*name).to_owned(), format!("{name}-0"), format!("{name}-1")])
        .collect();
    match change {
        Change::ToggleNode(node) => {
            let node = fixture.node(&format!("n{node:02}"));
            node.takes_work = !node.takes_work;
        }
        Change::EndMember(member) => {
            let mut allocations = fixture.snapshot.allocations.iter();
            let found =
                allocations.find(|(_, allocation)| allocation.work.as_str() == members[*member]);
            if let Some(id) = found.map(|(id, _)| id.clone()) {
                fixture.snapshot.allocations.remove(&id);
            }
        }
        Change::SetSuspended(member, is_suspended) => {
            fixture.demand_mut(&members[*member]).max_processes = u64::from(!*is_suspended);
        }
        Change::AddJob(quanta) => {
            fixture
                .job(&format!("j{number}"), "bob", *quanta)
                .max_processes = 4;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Members never share a domain, whatever changes. Deltas give the same plans as full
    /// snapshots. With five open nodes of ample space, every member is placed in the end.
    #[test]
    fn members_of_a_group_never_share_a_domain(
        changes in proptest::collection::vec(any_change(), 1..14),
    ) {
        let mut fixture = Fixture::eager().nodes(&[12, 12, 12, 12, 12]);
        for name in ["a", "b", "c"] {
            add_group(&mut fixture, name, 2, None);
        }
        let mut rounds = Rounds::default();
        for (number, change) in changes.iter().enumerate() {
            apply_change(&mut fixture, change, number);
            let decided = rounds.decide(&fixture.snapshot, &SnapshotDelta::everything());
            prop_assert_eq!(rounds.full_plan(decided), FairShare.schedule(&fixture.snapshot));
            fixture.step();
            assert_apart(&fixture, &["a", "b", "c"]);
        }
        for number in 0..5 {
            fixture.node(&format!("n{number:02}")).takes_work = true;
        }
        for name in ["a", "b", "c"] {
            for id in [name.to_owned(), format!("{name}-0"), format!("{name}-1")] {
                fixture.demand_mut(&id).max_processes = 1;
            }
        }
        for _ in 0..12 {
            fixture.step();
            assert_apart(&fixture, &["a", "b", "c"]);
        }
        for name in ["a", "b", "c"] {
            prop_assert_eq!(nodes_by_member(&fixture, name).len(), 3);
        }
    }
}

#[test]
fn a_delta_of_a_member_gives_the_plan_of_a_full_snapshot() {
    let mut fixture = Fixture::eager().nodes(&[8, 8, 8]);
    add_group(&mut fixture, "a", 1, None);
    let mut rounds = Rounds::default();
    rounds.decide(&fixture.snapshot, &SnapshotDelta::everything());
    for (id, max) in [("a-0", 0), ("a-0", 1), ("a", 0)] {
        fixture.demand_mut(id).max_processes = max;
        let delta = SnapshotDelta::for_work(&fixture.snapshot, [work_id(id)]);
        let decided = rounds.decide(&fixture.snapshot, &delta);
        assert_eq!(
            rounds.full_plan(decided),
            FairShare.schedule(&fixture.snapshot)
        );
    }
    let removed = fixture.snapshot.demand.remove("a").unwrap();
    for is_restored in [false, true] {
        if is_restored {
            fixture
                .snapshot
                .demand
                .insert(work_id("a"), removed.clone());
        }
        let delta = SnapshotDelta::for_work(&fixture.snapshot, [work_id("a")]);
        let decided = rounds.decide(&fixture.snapshot, &delta);
        assert_eq!(
            rounds.full_plan(decided),
            FairShare.schedule(&fixture.snapshot)
        );
    }
}

/// Free space next to other members of the group does not count as future space.
#[test]
fn space_is_cleared_if_all_free_space_is_next_to_the_group() {
    let mut fixture = Fixture::eager().nodes(&[4, 4, 4]);
    add_group(&mut fixture, "a", 2, None);
    fixture.demand_mut("a").max_processes = 0;
    fixture.step();
    let set_open = |fixture: &mut Fixture, takes_work| {
        for node in ["n00", "n01"] {
            fixture.node(node).takes_work = takes_work;
        }
    };
    set_open(&mut fixture, false);
    fixture.job("j", "bob", 1).max_processes = 4;
    fixture.step();
    set_open(&mut fixture, true);
    fixture.demand_mut("a").max_processes = 1;
    for _ in 0..4 {
        fixture.step();
        assert_apart(&fixture, &["a"]);
    }
    assert_eq!(nodes_by_member(&fixture, "a").len(), 3);
    assert_eq!(share(&fixture.plan(), "j").current, 4);
}
