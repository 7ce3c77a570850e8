//! Tests of fleets with several planners: a pool with queues, a pool of fair shares, and in some
//! tests a pool of an external planner.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::{
    FairShare, Plan, Planner, Reason, Snapshot, SnapshotDelta, check,
    plan::box_verdicts,
    snapshot::{
        Class, Demand, Growth, Policy, Pool,
        external_planners::{
            ExternalPlannerState, PlannerResponse, RequestedGrant, RequestedVacate,
        },
    },
};
use serde_json::json;

use super::{CompositePlanner, Rounds};
use crate::fixture::{Fixture, node_name, queued_mut, work_id};

const SHARED: &str = "shared";
/// Pool that is planned externally after a call of `add_external_pool`.
const EXTERNAL: &str = "out";

/// Creates a pool with queues and a pool of class `normal`, each with `size` nodes of four vcores.
/// The nodes are called `q0`, `q1` and so on in the first pool, and `s0`, `s1` in the second.
fn fixture_with_two_pools(size: u64) -> Fixture {
    let mut fixture = Fixture::from_queues(&json!({"queues": {"a": {"submit_acl": "*"}}}));
    fixture
        .snapshot
        .pools
        .insert(SHARED.into(), Pool::default());
    let class = Class {
        policy: Policy::FairShare,
        priority: 10,
        weight: 100,
        pool: SHARED.into(),
        default: true,
        users: BTreeSet::new(),
        position: 0,
        debug_class: None,
        growth: Growth::default(),
    };
    fixture.snapshot.classes.insert("normal".into(), class);
    // Jobs get all their processes in the first round.
    let tunables = &mut fixture.snapshot.tunables;
    (tunables.initialization_cap, tunables.expand_by_doubling) = (0, false);
    for number in 0..size {
        fixture.add_node(&format!("q{number}"), &[("vcore", 4_000)]);
        fixture
            .add_node(&format!("s{number}"), &[("vcore", 4_000)])
            .pool = SHARED.into();
    }
    fixture
}

/// Adds a job of class `normal` with processes of one vcore.
fn add_class_work(fixture: &mut Fixture, id: &str, processes: u64) {
    let demand = fixture.add_processes(id, "", processes, 1_000);
    demand.queued = None;
    demand.class = Some("normal".into());
}

/// Adds a third pool of class `away` with nodes `o0`, `o1` and so on. Only the responses of an
/// external planner plan this pool.
fn add_external_pool(fixture: &mut Fixture, size: u64) {
    let away = Class {
        pool: EXTERNAL.into(),
        default: false,
        ..fixture.snapshot.classes["normal"].clone()
    };
    fixture.snapshot.classes.insert("away".into(), away);
    fixture
        .snapshot
        .pools
        .insert(EXTERNAL.into(), Pool::default());
    fixture
        .snapshot
        .external_planners
        .insert(EXTERNAL.into(), ExternalPlannerState::default());
    for number in 0..size {
        fixture
            .add_node(&format!("o{number}"), &[("vcore", 4_000)])
            .pool = EXTERNAL.into();
    }
}

/// Sets the next response of the external planner. A grant is a work, a node and a number of
/// processes.
fn set_response(fixture: &mut Fixture, grants: &[(&str, &str, u64)]) {
    let number = fixture.snapshot.round + 1;
    let external = fixture
        .snapshot
        .external_planners
        .get_mut(EXTERNAL)
        .unwrap();
    let grants = grants.iter().map(|(work, node, processes)| RequestedGrant {
        work: (*work).to_owned(),
        node: (*node).to_owned(),
        processes: *processes,
    });
    external.response = Some(PlannerResponse {
        number,
        grants: grants.collect(),
        ..PlannerResponse::default()
    });
}

#[test]
fn an_external_planner_affects_only_its_own_pool() {
    let mut fixture = fixture_with_two_pools(2);
    add_external_pool(&mut fixture, 2);
    add_class_work(&mut fixture, "job_1", 20);
    add_class_work(&mut fixture, "job_3", 20);
    fixture.snapshot.demand.get_mut("job_3").unwrap().class = Some("away".into());
    fixture.add_processes("job_2", "root.a", 20, 1_000);
    run_rounds(&mut fixture);
    let counts =
        |fixture: &Fixture| ["job_1", "job_2", "job_3"].map(|id| fixture.count_running(id));
    assert_eq!(counts(&fixture), [8, 8, 0]);
    let verdict = &checked_plan(&fixture).verdicts["job_3"];
    assert_eq!(
        (verdict.reason, verdict.waits),
        (Reason::ExternalPlanner, true)
    );
    // Only the first grant is valid. The others name a node or work of another planner.
    set_response(
        &mut fixture,
        &[
            ("job_3", "o0", 3),
            ("job_3", "s0", 9),
            ("job_1", "o1", 9),
            ("job_2", "o1", 9),
        ],
    );
    let plan = checked_plan(&fixture);
    let refusals = plan.external_planners[EXTERNAL].refusals;
    assert_eq!((plan.grants.len(), refusals), (3, 3));
    fixture.carry_out(&plan);
    run_rounds(&mut fixture);
    assert_eq!(counts(&fixture), [8, 8, 3]);
    assert_eq!(node_prefixes(&fixture, "job_3"), BTreeSet::from(['o']));
    // The pool returns to fair shares: running work continues, and the free space is filled.
    fixture.snapshot.external_planners.clear();
    let before = fixture.snapshot.allocations.clone();
    run_rounds(&mut fixture);
    assert!(
        before
            .keys()
            .all(|id| !fixture.snapshot.allocations[id].leaving)
    );
    assert_eq!(counts(&fixture), [8, 8, 8]);
}

fn checked_plan(fixture: &Fixture) -> Plan {
    let plan = CompositePlanner.schedule(&fixture.snapshot);
    assert_eq!(check(&fixture.snapshot, &plan), Ok(()), "{plan:#?}");
    plan
}

fn run_rounds(fixture: &mut Fixture) {
    for _ in 0..30 {
        let plan = checked_plan(fixture);
        fixture.carry_out(&plan);
    }
}

/// Returns the first letters of the nodes of this work, which name their pools.
fn node_prefixes(fixture: &Fixture, id: &str) -> BTreeSet<char> {
    let allocations = fixture.snapshot.allocations.values();
    let own = allocations.filter(|it| it.work.as_str() == id && !it.leaving);
    own.filter_map(|it| it.node.as_str().chars().next())
        .collect()
}

#[test]
fn a_fleet_without_queues_is_planned_by_fair_shares() {
    let mut fixture = fixture_with_two_pools(2);
    fixture.snapshot.queues.clear();
    add_class_work(&mut fixture, "job_1", 9);
    let plan = CompositePlanner.schedule(&fixture.snapshot);
    assert_eq!(plan, FairShare.schedule(&fixture.snapshot));
    let mut rounds = Rounds::default();
    let decided = rounds.decide(&fixture.snapshot, &SnapshotDelta::everything());
    assert_eq!(rounds.full_plan(decided), plan);
    assert!(rounds.fair_share_snapshot.is_none());
}

#[test]
fn each_pool_has_its_own_planner_and_no_work_crosses_pools() {
    let mut fixture = fixture_with_two_pools(2);
    add_class_work(&mut fixture, "job_1", 20);
    fixture.add_processes("job_2", "root.a", 20, 1_000);
    run_rounds(&mut fixture);
    assert_eq!(
        (
            fixture.count_running("job_1"),
            fixture.count_running("job_2")
        ),
        (8, 8)
    );
    assert_eq!(node_prefixes(&fixture, "job_1"), BTreeSet::from(['s']));
    assert_eq!(node_prefixes(&fixture, "job_2"), BTreeSet::from(['q']));
    let shares = checked_plan(&fixture).shares;
    assert_eq!(shares.classes.keys().collect::<Vec<_>>(), ["normal"]);
}

#[test]
fn running_work_continues_when_its_pool_gets_queues() {
    let mut fixture = fixture_with_two_pools(2);
    let queues = std::mem::take(&mut fixture.snapshot.queues);
    fixture.snapshot.classes.get_mut("normal").unwrap().pool = "default".into();
    add_class_work(&mut fixture, "job_1", 5);
    run_rounds(&mut fixture);
    assert_eq!(node_prefixes(&fixture, "job_1"), BTreeSet::from(['q']));
    fixture.snapshot.queues = queues;
    add_class_work(&mut fixture, "job_3", 5);
    fixture.add_processes("job_2", "root.a", 20, 1_000);
    let before = fixture.snapshot.allocations.clone();
    run_rounds(&mut fixture);
    assert!(
        before
            .keys()
            .all(|id| !fixture.snapshot.allocations[id].leaving)
    );
    assert_eq!(
        (
            fixture.count_running("job_1"),
            fixture.count_running("job_2")
        ),
        (5, 3)
    );
    let verdict = &checked_plan(&fixture).verdicts["job_3"];
    assert!(verdict.waits && !verdict.refused);
    assert!(
        verdict.detail.contains("divided among queues"),
        "{}",
        verdict.detail
    );
}

#[test]
fn a_node_from_a_pool_with_queues_is_shared_once_its_allocations_left() {
    let mut fixture = fixture_with_two_pools(1);
    fixture.add_processes("job_1", "root.a", 2, 1_000);
    run_rounds(&mut fixture);
    fixture.snapshot.nodes.get_mut("q0").unwrap().pool = SHARED.into();
    add_class_work(&mut fixture, "job_2", 8);
    run_rounds(&mut fixture);
    assert_eq!(
        (
            fixture.count_running("job_1"),
            fixture.count_running("job_2")
        ),
        (2, 4)
    );
    fixture.snapshot.demand.remove("job_1");
    run_rounds(&mut fixture);
    assert_eq!(
        (
            fixture.count_running("job_1"),
            fixture.count_running("job_2")
        ),
        (0, 8)
    );
}

#[test]
fn work_for_a_queue_is_refused_without_pools_with_queues() {
    let mut fixture = fixture_with_two_pools(1);
    fixture.snapshot.queues.clear();
    fixture.add_processes("job_1", "root.a", 2, 1_000);
    let plan = checked_plan(&fixture);
    assert!(plan.is_empty());
    let verdict = &plan.verdicts["job_1"];
    assert_eq!(
        (verdict.reason, verdict.refused),
        (Reason::UnknownClass, true)
    );
}

/// Returns all differences between two snapshots. A change of queues or external planners marks
/// everything.
fn delta_between(before: &Snapshot, after: &Snapshot) -> SnapshotDelta {
    SnapshotDelta {
        everything: before.queues.keys().ne(after.queues.keys())
            || before
                .external_planners
                .keys()
                .ne(after.external_planners.keys()),
        ..SnapshotDelta::between(before, after)
    }
}

/// Returns the next pseudo-random number. Its low bits are not random.
fn next_random(previous: u64) -> u64 {
    previous
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695)
}

/// Applies a random event to the fleet: work is replaced or withdrawn, or a node moves to another
/// pool, closes, opens, disappears or appears. The digits of `random` choose the event and its
/// subject.
fn apply_random_event(fixture: &mut Fixture, step: u64, random: u64) {
    let id = format!("job_{}", random % 7);
    let replace_work = |fixture: &mut Fixture, has_class: bool| {
        fixture.snapshot.demand.remove(id.as_str());
        if has_class {
            add_class_work(fixture, &id, 1 + random % 9);
        } else {
            fixture.add_processes(&id, "root.a", 1 + random % 9, 1_000);
        }
        if random % 5 < 2 && !fixture.snapshot.external_planners.is_empty() {
            add_class_work(fixture, &id, 1 + random % 9);
            let demand = fixture.snapshot.demand.get_mut(id.as_str()).unwrap();
            (demand.class, demand.queued) = (Some("away".into()), None);
        }
    };
    let node = node_name(&format!(
        "{}{}",
        ["q", "s", "o"][(random % 3) as usize],
        random / 3 % 3
    ));
    match random / 7 % 8 {
        0 | 1 => replace_work(fixture, true),
        2 | 3 => replace_work(fixture, false),
        4 => drop(fixture.snapshot.demand.remove(id.as_str())),
        5 => {
            if let Some(node) = fixture.snapshot.nodes.get_mut(&node) {
                let to_external =
                    fixture.snapshot.pools.contains_key(EXTERNAL) && random.is_multiple_of(4);
                let queue_or_shared = if step.is_multiple_of(2) {
                    SHARED
                } else {
                    "default"
                };
                node.pool = if to_external {
                    EXTERNAL
                } else {
                    queue_or_shared
                }
                .into();
            }
        }
        6 => {
            if let Some(node) = fixture.snapshot.nodes.get_mut(&node) {
                node.takes_work = !node.takes_work;
            }
        }
        _ if step.is_multiple_of(5) => drop(fixture.snapshot.nodes.remove(&node)),
        _ => drop(fixture.add_node(node.as_str(), &[("vcore", 4_000)])),
    }
}

/// Adds a random response, which is mostly invalid.
fn set_random_response(fixture: &mut Fixture, random: u64) {
    let work: Vec<String> = (0..3)
        .map(|offset| format!("job_{}", (random + offset) % 7))
        .collect();
    let nodes: Vec<String> = (0..3)
        .map(|offset| format!("o{}", (random + offset) % 3))
        .collect();
    let grants: Vec<(&str, &str, u64)> = (work.iter().zip(&nodes))
        .map(|(work, node)| (work.as_str(), node.as_str(), 1 + random % 4))
        .collect();
    set_response(fixture, &grants);
    let ids: Vec<_> = fixture.snapshot.allocations.keys().cloned().collect();
    let external = fixture
        .snapshot
        .external_planners
        .get_mut(EXTERNAL)
        .unwrap();
    if let (Some(id), Some(response)) = (
        ids.get(usize::try_from(random % 9).unwrap()),
        &mut external.response,
    ) {
        response.vacates.push(RequestedVacate {
            allocation: id.to_string(),
            detail: String::new(),
        });
    }
}

#[test]
fn rounds_with_a_cache_decide_like_rounds_without() {
    for seed in 1..40_u64 {
        let mut fixture = fixture_with_two_pools(3);
        if seed % 2 == 0 {
            add_external_pool(&mut fixture, 3);
        }
        let mut rounds = Rounds::default();
        let mut last_snapshot = Snapshot::empty();
        let mut verdicts = std::collections::BTreeMap::new();
        let mut random = seed;
        for step in 0..40 {
            let queues = fixture.snapshot.queues.clone();
            let external_planners = fixture.snapshot.external_planners.clone();
            for _ in 0..=random % 3 {
                random = next_random(random);
                apply_random_event(&mut fixture, step, random >> 33);
            }
            // Sometimes one round runs without queues or external planners.
            if step % 13 == 12 {
                fixture.snapshot.queues.clear();
            }
            if step % 17 == 16 {
                fixture.snapshot.external_planners.clear();
            }
            if step % 3 != 0 && !fixture.snapshot.external_planners.is_empty() {
                set_random_response(&mut fixture, random >> 33);
            }
            let delta = delta_between(&last_snapshot, &fixture.snapshot);
            let decided = rounds.decide(&fixture.snapshot, &delta);
            if decided.shares.is_none() {
                verdicts = rounds.verdicts();
            }
            decided
                .gone
                .iter()
                .for_each(|work| drop(verdicts.remove(work)));
            verdicts.extend(box_verdicts(decided.verdicts.clone()));
            let plan = rounds.full_plan(decided);
            assert_eq!(
                plan,
                CompositePlanner.schedule(&fixture.snapshot),
                "seed {seed}, step {step}"
            );
            assert_eq!(verdicts, plan.verdicts, "seed {seed}, step {step}");
            assert!(check(&fixture.snapshot, &plan).is_ok());
            for (id, demand) in &fixture.snapshot.demand {
                let verdict = rounds.verdict(id);
                assert_eq!(verdict.as_ref(), plan.verdicts.get(id), "{demand:?}");
            }
            last_snapshot = fixture.snapshot.clone();
            fixture.carry_out(&plan);
            if fixture.snapshot.queues.is_empty() {
                fixture.snapshot.queues = queues;
            }
            if fixture.snapshot.external_planners.is_empty() {
                fixture.snapshot.external_planners = external_planners;
            }
        }
    }
}

#[test]
fn work_may_move_between_a_class_and_a_queue() {
    let mut fixture = fixture_with_two_pools(1);
    add_class_work(&mut fixture, "job_1", 2);
    let mut rounds = Rounds::default();
    let decided = rounds.decide(&fixture.snapshot, &SnapshotDelta::everything());
    fixture.carry_out(&rounds.full_plan(decided));
    let before = fixture.snapshot.clone();
    let mut demand: Demand = before.demand["job_1"].clone();
    demand.queued = Some(Box::default());
    queued_mut(&mut demand).queue = Some("root.a".into());
    fixture.snapshot.demand.insert(work_id("job_1"), demand);
    let decided = rounds.decide(
        &fixture.snapshot,
        &delta_between(&before, &fixture.snapshot),
    );
    assert!(
        decided
            .verdicts
            .iter()
            .any(|(id, _)| id.as_str() == "job_1")
    );
    let plan = rounds.full_plan(decided);
    assert_eq!(plan, CompositePlanner.schedule(&fixture.snapshot));
}
