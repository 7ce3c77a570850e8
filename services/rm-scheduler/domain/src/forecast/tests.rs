use proptest::prelude::*;

use super::*;
use crate::{
    input::snapshot::{Demand, Policy, User},
    tests::{
        fixture::{Fixture, GIB, node_name, terms, work_id},
        properties::{add_work, fleet, nodes, work_specs},
    },
};

fn asked(fixture: &mut Fixture, id: &str, user: &str, order: u64) -> (WorkId, Demand) {
    fixture.job(id, user, order);
    let demand = fixture.snapshot.demand.remove(&work_id(id)).unwrap();
    (work_id(id), demand)
}

fn submit(fixture: &mut Fixture, id: &str, user: &str, processes: u64) -> Changes {
    let (work, mut demand) = asked(fixture, id, user, 1);
    demand.max_processes = processes;
    Changes {
        submissions: BTreeMap::from([(work, demand)]),
        ..Changes::default()
    }
}

/// Builds two nodes of 4 quanta, all held by one job.
fn full() -> Fixture {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("old", "ann", 1);
    for _ in 0..6 {
        fixture.step();
    }
    assert_eq!(fixture.snapshot.allocations.len(), 8);
    fixture
}

#[test]
fn a_forecast_without_changes_moves_nothing() {
    let fixture = full();
    let seen = forecast(&fixture.snapshot, &Changes::default(), 10);
    assert_eq!(seen.with, seen.without);
    assert!(seen.with.settled && seen.with.starts.is_empty() && seen.with.leaves.is_empty());
    assert_eq!(seen.moves(), BTreeMap::new());
    assert_eq!(seen.now[&work_id("old")], 8);
}

#[test]
fn new_work_starts_after_preemption_for_it() {
    let mut fixture = full();
    let changes = submit(&mut fixture, "new", "ben", 4);
    let seen = forecast(&fixture.snapshot, &changes, 10);
    assert!(seen.with.settled, "{seen:#?}");
    assert_eq!(seen.with.starts.len(), 4);
    assert!(
        seen.with
            .starts
            .iter()
            .all(|it| it.work == work_id("new") && it.round > 1)
    );
    assert_eq!(seen.with.leaves.len(), 4);
    for leave in &seen.with.leaves {
        assert_eq!(
            (&leave.work, leave.reason),
            (&work_id("old"), VacateReason::Preempted)
        );
        let receipt = leave.receipt.as_ref().unwrap();
        assert_eq!(receipt.beneficiary, Some(work_id("new")));
        assert!(!leave.forecast);
    }
    let moves = seen.moves();
    let moved = |id: &str| {
        (
            moves[&work_id(id)].now,
            moves[&work_id(id)].without,
            moves[&work_id(id)].with,
        )
    };
    assert_eq!((moved("old"), moved("new")), ((8, 8, 4), (0, 0, 4)));
}

#[test]
fn moves_without_the_change_are_not_attributed_to_it() {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("old", "ann", 1).max_processes = 3;
    let changes = submit(&mut fixture, "new", "ben", 2);
    let seen = forecast(&fixture.snapshot, &changes, 10);
    let moves = seen.moves();
    assert_eq!(moves.keys().collect::<Vec<_>>(), [&work_id("new")]);
    assert_eq!(seen.without.starts.len(), 3);
    assert_eq!(seen.with.starts.len(), 5);
}

#[test]
fn work_that_cannot_start_waits_with_a_reason() {
    let mut fixture = full();
    let (work, demand) = asked(&mut fixture, "huge", "ben", 9);
    let changes = Changes {
        submissions: BTreeMap::from([(work.clone(), demand)]),
        ..Changes::default()
    };
    let seen = forecast(&fixture.snapshot, &changes, 10);
    let (waiting, verdict) = seen.with.waiting().next().unwrap();
    assert_eq!(
        (waiting, verdict.reason),
        (&work, Reason::NoHostLargeEnough)
    );
    assert!(seen.with.losers().is_empty());
}

#[test]
fn drained_and_lost_nodes_send_their_work_elsewhere() {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("old", "ann", 1).max_processes = 4;
    fixture.job("more", "ann", 1).max_processes = 4;
    for _ in 0..4 {
        fixture.step();
    }
    for (lose, reason) in [
        (false, VacateReason::Blocked),
        (true, VacateReason::NodeLost),
    ] {
        let name = node_name("n00");
        let on_node = fixture
            .snapshot
            .allocations
            .values()
            .filter(|it| it.node == name)
            .count();
        let mut changes = Changes::default();
        let set = if lose {
            &mut changes.lose
        } else {
            &mut changes.drain
        };
        set.insert(name.clone());
        let seen = forecast(&fixture.snapshot, &changes, 10);
        let gone = seen
            .with
            .leaves
            .iter()
            .filter(|it| it.reason == reason)
            .count();
        assert_eq!(gone, on_node, "{reason:?}");
        assert!(seen.with.starts.iter().all(|start| start.node != name));
        assert_eq!(seen.with.shares.capacity, 4);

        let node = fixture.snapshot.nodes[&name].clone();
        changes.add.insert(node_name("fresh"), node);
        let helped = forecast(&fixture.snapshot, &changes, 10);
        assert_eq!(helped.with.shares.capacity, 8);
        assert_eq!(
            helped.moves(),
            BTreeMap::new(),
            "all work found space elsewhere"
        );
    }
}

#[test]
fn withdrawn_work_frees_space_within_enough_rounds() {
    let mut fixture = full();
    fixture.job("poor", "ben", 1).max_processes = 8;
    for _ in 0..6 {
        fixture.step();
    }
    let changes = Changes {
        withdraw: BTreeSet::from([work_id("old")]),
        ..Changes::default()
    };
    let short = forecast(&fixture.snapshot, &changes, 1);
    assert!(!short.with.settled);
    let seen = forecast(&fixture.snapshot, &changes, 20);
    assert!(seen.with.settled && seen.with.rounds < 20);
    assert_eq!(seen.moves()[&work_id("poor")].with, 8);
}

#[test]
fn a_stopped_comparison_reports_the_rounds_it_planned() {
    let mut fixture = full();
    let mut changed = fixture.snapshot.clone();
    submit(&mut fixture, "new", "ben", 4).apply(&mut changed);
    let mut rounds = Vec::new();
    let seen = compare(
        &FairShare,
        &fixture.snapshot,
        changed,
        &BTreeMap::new(),
        &mut |planned| {
            rounds.push(planned);
            planned < 1
        },
    );
    assert_eq!(rounds, [0, 1]);
    assert_eq!((seen.with.rounds, seen.with.settled), (1, false));
}

/// Compares each start and each departure with those of the fixture.
#[test]
fn a_forecast_comes_true() {
    let mut fixture = full();
    let changes = submit(&mut fixture, "new", "ben", 3);
    let seen = forecast(&fixture.snapshot, &changes, 10);
    changes.apply(&mut fixture.snapshot);
    let (mut starts, mut leaves) = (Vec::new(), Vec::new());
    for round in 1..=seen.with.rounds {
        let plan = fixture.step();
        starts.extend(plan.grants.into_iter().map(|it| (round, it.work, it.node)));
        leaves.extend(plan.vacates.into_iter().map(|it| (round, it.allocation)));
    }
    let forecast: Vec<_> = seen
        .with
        .starts
        .into_iter()
        .map(|it| (it.round, it.work, it.node))
        .collect();
    assert_eq!(starts, forecast);
    let forecast: Vec<_> = seen
        .with
        .leaves
        .into_iter()
        .map(|it| (it.round, it.allocation))
        .collect();
    assert_eq!(leaves, forecast);
}

#[test]
fn another_policy_is_compared_with_the_one_in_force() {
    let mut fixture = Fixture::eager().nodes(&[6, 6]);
    fixture.class("other", terms(Policy::FairShare, 10, 100), "default");
    fixture.job("old", "ann", 1);
    fixture.job_in("other", "new", "ben", 1);
    for _ in 0..8 {
        fixture.step();
    }
    let mut changed = fixture.snapshot.clone();
    changed.classes.get_mut("other").unwrap().weight = 200;
    let seen = compare(
        &FairShare,
        &fixture.snapshot,
        changed,
        &BTreeMap::new(),
        &mut within(20),
    );
    let moves = seen.moves();
    assert_eq!(moves[&work_id("new")].without, 6);
    assert_eq!(moves[&work_id("new")].with, 8);
    assert_eq!(moves[&work_id("old")].with, 4);

    let mut limited = fixture.snapshot.clone();
    let user = User {
        max_allotment_bytes: Some(GIB),
        ..User::default()
    };
    limited.users.insert("ben".parse().unwrap(), user);
    let seen = compare(
        &FairShare,
        &fixture.snapshot,
        limited,
        &BTreeMap::new(),
        &mut within(20),
    );
    assert_eq!(
        seen.moves(),
        BTreeMap::new(),
        "an allotment limits only work without preemption"
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Compares the plans of each round.
    #[test]
    fn the_forecast_of_any_fleet_with_any_changes_comes_true(
        nodes in nodes(),
        before in work_specs(),
        after in work_specs(),
        age in 0..6_usize,
        (drained, lost, withdrawn) in (0..12_usize, 0..12_usize, 0..20_usize),
    ) {
        let mut fixture = fleet(&nodes, &before, 1);
        // A forecast does not know the start-up time of a process.
        fixture.start_ms = 0;
        for _ in 0..age {
            fixture.step();
        }
        let mut changes = Changes::default();
        for (at, ask) in after.iter().enumerate() {
            let id = format!("x{at:02}");
            add_work(&mut fixture, &id, ask);
            let demand = fixture.snapshot.demand.remove(&work_id(&id)).unwrap();
            changes.submissions.insert(work_id(&id), demand);
        }
        changes.drain.insert(node_name(&format!("n{drained:02}")));
        changes.lose.insert(node_name(&format!("n{lost:02}")));
        changes.withdraw.insert(work_id(&format!("w{withdrawn:02}")));
        let fresh = fixture.snapshot.nodes.values().next().unwrap().clone();
        changes.add.insert(node_name("fresh"), fresh);

        let mut changed = fixture.snapshot.clone();
        changes.apply(&mut changed);
        // A forecast cannot know the duration of tasks, so it is a parameter.
        let known: BTreeMap<WorkId, u64> =
            changed.demand.keys().map(|work| (work.clone(), 1_000)).collect();
        let seen = compare(&FairShare, &fixture.snapshot, changed, &known, &mut within(12));
        changes.apply(&mut fixture.snapshot);
        let (mut starts, mut leaves) = (Vec::new(), Vec::new());
        for round in 1..=seen.with.rounds {
            let plan = fixture.step();
            starts.extend(plan.grants.into_iter().map(|it| (round, it.work, it.node)));
            leaves.extend(plan.vacates.into_iter().map(|it| (round, it.reason)));
        }
        let forecast = seen.with.starts.into_iter().map(|it| (it.round, it.work, it.node));
        prop_assert_eq!(starts, forecast.collect::<Vec<_>>());
        let forecast = seen.with.leaves.into_iter().map(|it| (it.round, it.reason));
        prop_assert_eq!(leaves, forecast.collect::<Vec<_>>());
        if seen.with.settled {
            prop_assert!(fixture.step().is_empty(), "the forecast had settled");
        }
    }
}
