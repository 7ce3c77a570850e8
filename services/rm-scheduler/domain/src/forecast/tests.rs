//! Forecasts are compared with expected moves, and with the rounds that the fixture runs
//! afterwards.

use proptest::prelude::*;

use super::*;
use crate::{
    input::snapshot::{Demand, Policy, User},
    tests::{
        fixture::{Fixture, GIB, node_name, terms, work_id},
        properties::{add_work, fleet, nodes, work_specs},
    },
};

/// Returns a job that is not in the fleet, with its id.
fn new_job(fixture: &mut Fixture, id: &str, user: &str, quanta: u64) -> (WorkId, Demand) {
    fixture.job(id, user, quanta);
    let demand = fixture.snapshot.demand.remove(&work_id(id)).unwrap();
    (work_id(id), demand)
}

/// Returns the changes that submit one job with processes of one quantum.
fn submit(fixture: &mut Fixture, id: &str, user: &str, processes: u64) -> Changes {
    let (work, mut demand) = new_job(fixture, id, user, 1);
    demand.max_processes = processes;
    Changes {
        submissions: BTreeMap::from([(work, demand)]),
        ..Changes::default()
    }
}

/// Builds a fleet of two nodes of 4 quanta, all held by the job `old` of user `ann`.
fn full_fleet() -> Fixture {
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
    let fixture = full_fleet();
    let result = forecast(&fixture.snapshot, &Changes::default(), 10);
    assert_eq!(result.with, result.without);
    assert!(result.with.settled && result.with.starts.is_empty() && result.with.leaves.is_empty());
    assert_eq!(result.moves(), BTreeMap::new());
    assert_eq!(result.now[&work_id("old")], 8);
}

#[test]
fn new_work_starts_after_preemption_for_it() {
    let mut fixture = full_fleet();
    let changes = submit(&mut fixture, "new", "ben", 4);
    let result = forecast(&fixture.snapshot, &changes, 10);
    assert!(result.with.settled, "{result:#?}");
    assert_eq!(result.with.starts.len(), 4);
    assert!(
        result
            .with
            .starts
            .iter()
            .all(|start| start.work == work_id("new") && start.round > 1)
    );
    assert_eq!(result.with.leaves.len(), 4);
    for leave in &result.with.leaves {
        assert_eq!(
            (&leave.work, leave.reason),
            (&work_id("old"), VacateReason::Preempted)
        );
        let receipt = leave.receipt.as_ref().unwrap();
        assert_eq!(receipt.beneficiary, Some(work_id("new")));
        assert!(!leave.forecast);
    }
    let moves = result.moves();
    let counts = |id: &str| {
        (
            moves[&work_id(id)].now,
            moves[&work_id(id)].without,
            moves[&work_id(id)].with,
        )
    };
    assert_eq!((counts("old"), counts("new")), ((8, 8, 4), (0, 0, 4)));
}

#[test]
fn moves_without_the_change_are_not_attributed_to_it() {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("old", "ann", 1).max_processes = 3;
    let changes = submit(&mut fixture, "new", "ben", 2);
    let result = forecast(&fixture.snapshot, &changes, 10);
    let moves = result.moves();
    assert_eq!(moves.keys().collect::<Vec<_>>(), [&work_id("new")]);
    assert_eq!(result.without.starts.len(), 3);
    assert_eq!(result.with.starts.len(), 5);
}

#[test]
fn work_that_cannot_start_waits_with_a_reason() {
    let mut fixture = full_fleet();
    let (work, demand) = new_job(&mut fixture, "huge", "ben", 9);
    let changes = Changes {
        submissions: BTreeMap::from([(work.clone(), demand)]),
        ..Changes::default()
    };
    let result = forecast(&fixture.snapshot, &changes, 10);
    let (waiting, verdict) = result.with.waiting().next().unwrap();
    assert_eq!(
        (waiting, verdict.reason),
        (&work, Reason::NoHostLargeEnough)
    );
    assert!(result.with.losers().is_empty());
}

#[test]
fn work_of_drained_and_lost_nodes_moves_to_other_nodes() {
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
            .filter(|allocation| allocation.node == name)
            .count();
        let mut changes = Changes::default();
        let changed_nodes = if lose {
            &mut changes.lose
        } else {
            &mut changes.drain
        };
        changed_nodes.insert(name.clone());
        let result = forecast(&fixture.snapshot, &changes, 10);
        let departures = result
            .with
            .leaves
            .iter()
            .filter(|leave| leave.reason == reason)
            .count();
        assert_eq!(departures, on_node, "{reason:?}");
        assert!(result.with.starts.iter().all(|start| start.node != name));
        assert_eq!(result.with.shares.capacity, 4);

        let node = fixture.snapshot.nodes[&name].clone();
        changes.add.insert(node_name("fresh"), node);
        let with_new_node = forecast(&fixture.snapshot, &changes, 10);
        assert_eq!(with_new_node.with.shares.capacity, 8);
        assert_eq!(
            with_new_node.moves(),
            BTreeMap::new(),
            "all work found space on other nodes"
        );
    }
}

#[test]
fn withdrawn_work_frees_space_within_enough_rounds() {
    let mut fixture = full_fleet();
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
    let result = forecast(&fixture.snapshot, &changes, 20);
    assert!(result.with.settled && result.with.rounds < 20);
    assert_eq!(result.moves()[&work_id("poor")].with, 8);
}

#[test]
fn a_stopped_comparison_reports_the_rounds_it_planned() {
    let mut fixture = full_fleet();
    let mut changed = fixture.snapshot.clone();
    submit(&mut fixture, "new", "ben", 4).apply(&mut changed);
    let mut rounds = Vec::new();
    let result = compare(
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
    assert_eq!((result.with.rounds, result.with.settled), (1, false));
}

/// The fixture runs the same rounds. Each start and each departure must be the same.
#[test]
fn a_forecast_equals_the_rounds_that_follow() {
    let mut fixture = full_fleet();
    let changes = submit(&mut fixture, "new", "ben", 3);
    let result = forecast(&fixture.snapshot, &changes, 10);
    changes.apply(&mut fixture.snapshot);
    let (mut starts, mut leaves) = (Vec::new(), Vec::new());
    for round in 1..=result.with.rounds {
        let plan = fixture.step();
        starts.extend(
            plan.grants
                .into_iter()
                .map(|grant| (round, grant.work, grant.node)),
        );
        leaves.extend(
            plan.vacates
                .into_iter()
                .map(|vacate| (round, vacate.allocation)),
        );
    }
    let forecast: Vec<_> = result
        .with
        .starts
        .into_iter()
        .map(|start| (start.round, start.work, start.node))
        .collect();
    assert_eq!(starts, forecast);
    let forecast: Vec<_> = result
        .with
        .leaves
        .into_iter()
        .map(|leave| (leave.round, leave.allocation))
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
    let result = compare(
        &FairShare,
        &fixture.snapshot,
        changed,
        &BTreeMap::new(),
        &mut stop_after(20),
    );
    let moves = result.moves();
    assert_eq!(moves[&work_id("new")].without, 6);
    assert_eq!(moves[&work_id("new")].with, 8);
    assert_eq!(moves[&work_id("old")].with, 4);

    let mut limited = fixture.snapshot.clone();
    let user = User {
        max_allotment_bytes: Some(GIB),
        ..User::default()
    };
    limited.users.insert("ben".parse().unwrap(), user);
    let result = compare(
        &FairShare,
        &fixture.snapshot,
        limited,
        &BTreeMap::new(),
        &mut stop_after(20),
    );
    assert_eq!(
        result.moves(),
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

    /// The fixture runs the same rounds for a random fleet with random changes. Each start and each
    /// departure must be the same.
    #[test]
    fn the_forecast_of_any_fleet_with_any_changes_equals_the_rounds_that_follow(
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
        for (index, spec) in after.iter().enumerate() {
            let id = format!("x{index:02}");
            add_work(&mut fixture, &id, spec);
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
        let task_ms: BTreeMap<WorkId, u64> =
            changed.demand.keys().map(|work| (work.clone(), 1_000)).collect();
        let result = compare(&FairShare, &fixture.snapshot, changed, &task_ms, &mut stop_after(12));
        changes.apply(&mut fixture.snapshot);
        let (mut starts, mut leaves) = (Vec::new(), Vec::new());
        for round in 1..=result.with.rounds {
            let plan = fixture.step();
            starts.extend(plan.grants.into_iter().map(|grant| (round, grant.work, grant.node)));
            leaves.extend(plan.vacates.into_iter().map(|vacate| (round, vacate.reason)));
        }
        let forecast = result.with.starts.into_iter();
        let forecast = forecast.map(|start| (start.round, start.work, start.node));
        prop_assert_eq!(starts, forecast.collect::<Vec<_>>());
        let forecast = result.with.leaves.into_iter().map(|leave| (leave.round, leave.reason));
        prop_assert_eq!(leaves, forecast.collect::<Vec<_>>());
        if result.with.settled {
            prop_assert!(fixture.step().is_empty(), "the forecast had settled");
        }
    }
}
