//! Invariants of entitlement by priority and weight, with the reference settings and with the
//! default settings.

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

/// The reference counts the class in processes of 5 quanta, one for each node of 8. Each user gets
/// half of them. Two processes of 4 would fit on a node, but the user with this size gets no more.
/// Two nodes stay idle although that user wants more. By default, idle space is lent (I-8).
#[test]
fn a_class_counted_in_large_processes_leaves_nodes_idle_unless_they_are_lent() {
    let grants_and_idle_nodes = |settings| {
        let fixture = fleet_with_users(settings, &[8; 8], &[5, 4]);
        let plan = fixture.plan();
        let grants = plan.grants.iter();
        let grants_of = |name| grants.clone().filter(move |it| it.work.as_str() == name);
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

    /// Remainders are given by the sort order and not by the fraction, so a class may deviate by
    /// one process (I-7).
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
            let has: Vec<u64> = (0..users)
                .map(|user| share(&plan, &format!("j{class}.{user}")).counted)
                .collect();
            let total_given: u64 = has.iter().sum();
            let deviation = (total_given * sum).abs_diff(total * weight);
            prop_assert!(
                deviation <= sum,
                "class {class} has {total_given} of {total} at {weight}/{sum}"
            );
            let (least, most) = (has.iter().min().unwrap(), has.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{has:?}");
        }
    }

    /// With the default settings, no wanted process fits into the remaining space. Therefore no
    /// user is below the equal share for lack of a grant (I-8).
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

    /// A worse priority gets no space that a better one could use (I-6).
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
