//! Entitlements are even: they follow priorities and weights, to within one process. The tests use
//! the reference settings, which switch off all improvements on the specification, and the default
//! settings.

use proptest::prelude::*;

use crate::{
    Plan,
    input::{settings::Settings, snapshot::Policy},
    tests::fixture::{Fixture, GIB, share, terms},
};

/// Returns a fleet where each user has one unlimited job, with one user for each process size.
fn fleet_with_users(settings: Settings, nodes: &[u64], quanta: &[u64]) -> Fixture {
    let mut fixture = Fixture::eager().nodes(nodes);
    fixture.snapshot.tunables.settings = settings;
    for (index, quanta) in quanta.iter().enumerate() {
        fixture.job(&format!("j{index}"), &format!("u{index}"), *quanta);
    }
    fixture
}

/// Returns the free quanta of each node of an empty fleet after a plan.
fn holes(fixture: &Fixture, plan: &Plan) -> Vec<u64> {
    let nodes = fixture.snapshot.nodes.iter();
    let left = nodes.map(|(name, node)| {
        let granted = plan.grants.iter().filter(|grant| grant.node == *name);
        let granted: u64 = granted.map(|grant| grant.quanta).sum();
        node.capacity.memory_bytes / GIB - granted
    });
    left.collect()
}

/// There are 8 nodes of 8 quanta. One user wants processes of 5 quanta, the other of 4. The
/// reference settings count the class in the larger processes. One of them fits on each node, so
/// each user is entitled to 4 processes. The 4 smaller ones take only 2 nodes, and 2 nodes stay
/// idle, although both users want more. By default, idle space is lent (I-8).
#[test]
fn a_class_counted_in_large_processes_leaves_nodes_idle_unless_they_are_lent() {
    let grants_and_idle_nodes = |settings| {
        let fixture = fleet_with_users(settings, &[8; 8], &[5, 4]);
        let plan = fixture.plan();
        let grants = plan.grants.iter();
        let grants_of = |name| {
            grants
                .clone()
                .filter(move |grant| grant.work.as_str() == name)
        };
        let holes = holes(&fixture, &plan);
        let idle = holes.iter().filter(|hole| **hole == 8);
        (
            grants_of("j0").count(),
            grants_of("j1").count(),
            idle.count(),
        )
    };
    assert_eq!(grants_and_idle_nodes(Settings::reference()), (4, 4, 2));
    // Idle space is lent in turn, beginning with the older work.
    assert_eq!(grants_and_idle_nodes(Settings::default()), (6, 4, 0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Each class gets its weighted part of all quanta. It may deviate by one process, because
    /// remainders are given in sort order and not by fraction (I-7).
    #[test]
    fn processes_of_one_size_are_divided_to_within_one_process(
        nodes in prop::collection::vec(1..9_u64, 1..8),
        weights in prop::collection::vec(1..400_u64, 1..4),
        users in 1..5_usize,
    ) {
        let mut fixture = Fixture::eager().nodes(&nodes);
        fixture.snapshot.tunables.settings = Settings::reference();
        for (class, weight) in weights.iter().enumerate() {
            let name = format!("c{class}");
            fixture.class(&name, terms(Policy::FairShare, 10, *weight), "default");
            for user in 0..users {
                fixture.job_in(&name, &format!("j{class}.{user}"), &format!("u{user}"), 1);
            }
        }
        let plan = fixture.plan();
        let total: u64 = nodes.iter().sum();
        let sum: u64 = weights.iter().sum();
        for (class, weight) in weights.iter().enumerate() {
            let counted: Vec<u64> = (0..users)
                .map(|user| share(&plan, &format!("j{class}.{user}")).counted)
                .collect();
            let total_given: u64 = counted.iter().sum();
            let deviation = (total_given * sum).abs_diff(total * weight);
            prop_assert!(
                deviation <= sum,
                "class {class} has {total_given} of {total} at {weight}/{sum}"
            );
            let (least, most) = (counted.iter().min().unwrap(), counted.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{counted:?}");
        }
    }

    /// With the default settings, no wanted process fits into the remaining space, so no user lacks
    /// a process that could be granted (I-8).
    #[test]
    fn no_hole_fits_a_process_that_a_user_wants(
        nodes in prop::collection::vec(1..9_u64, 1..8),
        quanta in prop::collection::vec(1..6_u64, 2..6),
    ) {
        let fixture = fleet_with_users(Settings::default(), &nodes, &quanta);
        let hole = holes(&fixture, &fixture.plan()).into_iter().max().unwrap_or(0);
        let least = quanta.iter().min().unwrap();
        prop_assert!(hole < *least, "a process of {least} fits into {hole}");
    }

    /// Work of a worse priority gets only space that work of a better priority cannot use (I-6).
    #[test]
    fn better_priorities_are_counted_first(
        nodes in prop::collection::vec(1..9_u64, 1..8),
        quanta in 1..5_u64,
    ) {
        let mut fixture = Fixture::eager().nodes(&nodes);
        fixture.snapshot.tunables.settings = Settings::reference();
        fixture.class("late", terms(Policy::FairShare, 20, 400), "default");
        fixture.job("first", "a", quanta);
        fixture.job_in("late", "second", "b", 1);
        let plan = fixture.plan();
        let fits: u64 = nodes.iter().map(|node| node / quanta).sum();
        let remaining: u64 = nodes.iter().map(|node| node % quanta).sum();
        prop_assert_eq!(share(&plan, "first").counted, fits);
        prop_assert_eq!(share(&plan, "second").counted, remaining);
    }
}
