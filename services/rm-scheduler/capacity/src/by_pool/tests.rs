use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::{
    FairShare, News, Plan, Planner, Reason, Snapshot, check,
    plan::apart,
    snapshot::{
        Class, Demand, Growth, Policy, Pool,
        outside::{Answer, Leave, Outside, Place},
    },
};
use serde_json::json;

use super::{ByPool, Rounds};
use crate::fixture::{World, node_name, queued, work};

const SHARED: &str = "shared";
/// Planned outside, where `add_outside` was called.
const OUT: &str = "out";

/// A pool with queues, and one that class `normal` shares; `size` nodes in each.
fn mixed(size: u64) -> World {
    let mut world = World::of(&json!({"queues": {"a": {"submit_acl": "*"}}}));
    world.snapshot.pools.insert(SHARED.into(), Pool::default());
    let class = Class {
        policy: Policy::FairShare,
        priority: 10,
        weight: 100,
        pool: SHARED.into(),
        default: true,
        users: BTreeSet::new(),
        place: 0,
        debug: None,
        growth: Growth::default(),
    };
    world.snapshot.classes.insert("normal".into(), class);
    let tunables = &mut world.snapshot.tunables;
    (tunables.initialization_cap, tunables.expand_by_doubling) = (0, false);
    for number in 0..size {
        world.node(&format!("q{number}"), &[("vcore", 4_000)]);
        world.node(&format!("s{number}"), &[("vcore", 4_000)]).pool = SHARED.into();
    }
    world
}

fn of_class(world: &mut World, id: &str, processes: u64) {
    let demand = world.asks(id, "", (processes, 1_000));
    demand.queued = None;
    demand.class = Some("normal".into());
}

/// A third pool, of class `away`, for which nothing is planned but what is answered.
fn add_outside(world: &mut World, size: u64) {
    let away = Class {
        pool: OUT.into(),
        default: false,
        ..world.snapshot.classes["normal"].clone()
    };
    world.snapshot.classes.insert("away".into(), away);
    world.snapshot.pools.insert(OUT.into(), Pool::default());
    world
        .snapshot
        .outside
        .insert(OUT.into(), Outside::default());
    for number in 0..size {
        world.node(&format!("o{number}"), &[("vcore", 4_000)]).pool = OUT.into();
    }
}

fn answer(world: &mut World, grants: &[(&str, &str, u64)]) {
    let number = world.snapshot.round + 1;
    let known = world.snapshot.outside.get_mut(OUT).unwrap();
    let grants = grants.iter().map(|(work, node, processes)| Place {
        work: (*work).to_owned(),
        node: (*node).to_owned(),
        processes: *processes,
    });
    known.answer = Some(Answer {
        number,
        grants: grants.collect(),
        ..Answer::default()
    });
}

#[test]
fn a_pool_with_a_planner_outside_is_its_own_and_the_others_plan_as_ever() {
    let mut world = mixed(2);
    add_outside(&mut world, 2);
    of_class(&mut world, "job_1", 20);
    of_class(&mut world, "job_3", 20);
    world.snapshot.demand.get_mut("job_3").unwrap().class = Some("away".into());
    world.asks("job_2", "root.a", (20, 1_000));
    settled(&mut world);
    let has = |world: &World| ["job_1", "job_2", "job_3"].map(|id| world.has(id));
    assert_eq!(has(&world), [8, 8, 0]);
    let verdict = &planned(&world).verdicts["job_3"];
    assert_eq!(
        (verdict.reason, verdict.waits),
        (Reason::OutsidePlanner, true)
    );
    answer(
        &mut world,
        &[
            ("job_3", "o0", 3),
            ("job_3", "s0", 9),
            ("job_1", "o1", 9),
            ("job_2", "o1", 9),
        ],
    );
    let plan = planned(&world);
    assert_eq!((plan.grants.len(), plan.outside[OUT].refusals), (3, 3));
    world.carry_out(&plan);
    settled(&mut world);
    assert_eq!(has(&world), [8, 8, 3]);
    assert_eq!(nodes_of(&world, "job_3"), BTreeSet::from(['o']));
    // Back to fair shares: what runs goes on, and the rest is filled.
    world.snapshot.outside.clear();
    let before = world.snapshot.allocations.clone();
    settled(&mut world);
    assert!(
        before
            .keys()
            .all(|id| !world.snapshot.allocations[id].leaving)
    );
    assert_eq!(has(&world), [8, 8, 8]);
}

fn planned(world: &World) -> Plan {
    let plan = ByPool.schedule(&world.snapshot);
    assert_eq!(check(&world.snapshot, &plan), Ok(()), "{plan:#?}");
    plan
}

fn settled(world: &mut World) {
    for _ in 0..30 {
        let plan = planned(world);
        world.carry_out(&plan);
    }
}

fn nodes_of(world: &World, id: &str) -> BTreeSet<char> {
    let held = world.snapshot.allocations.values();
    let mine = held.filter(|it| it.work.as_str() == id && !it.leaving);
    mine.filter_map(|it| it.node.as_str().chars().next())
        .collect()
}

#[test]
fn a_fleet_without_queues_is_planned_as_ever() {
    let mut world = mixed(2);
    world.snapshot.queues.clear();
    of_class(&mut world, "job_1", 9);
    let plan = ByPool.schedule(&world.snapshot);
    assert_eq!(plan, FairShare.schedule(&world.snapshot));
    let mut rounds = Rounds::default();
    let decided = rounds.decide(&world.snapshot, &News::everything());
    assert_eq!(rounds.whole(decided), plan);
    assert!(rounds.rest.is_none());
}

#[test]
fn each_pool_has_its_own_planner_and_no_work_crosses_over() {
    let mut world = mixed(2);
    of_class(&mut world, "job_1", 20);
    world.asks("job_2", "root.a", (20, 1_000));
    settled(&mut world);
    assert_eq!((world.has("job_1"), world.has("job_2")), (8, 8));
    assert_eq!(nodes_of(&world, "job_1"), BTreeSet::from(['s']));
    assert_eq!(nodes_of(&world, "job_2"), BTreeSet::from(['q']));
    let shares = planned(&world).shares;
    assert_eq!(shares.classes.keys().collect::<Vec<_>>(), ["normal"]);
}

#[test]
fn what_runs_is_not_harmed_when_its_pool_gets_queues() {
    let mut world = mixed(2);
    let queues = std::mem::take(&mut world.snapshot.queues);
    world.snapshot.classes.get_mut("normal").unwrap().pool = "default".into();
    of_class(&mut world, "job_1", 5);
    settled(&mut world);
    assert_eq!(nodes_of(&world, "job_1"), BTreeSet::from(['q']));
    world.snapshot.queues = queues;
    of_class(&mut world, "job_3", 5);
    world.asks("job_2", "root.a", (20, 1_000));
    let before = world.snapshot.allocations.clone();
    settled(&mut world);
    assert!(
        before
            .keys()
            .all(|id| !world.snapshot.allocations[id].leaving)
    );
    assert_eq!((world.has("job_1"), world.has("job_2")), (5, 3));
    let verdict = &planned(&world).verdicts["job_3"];
    assert!(verdict.waits && !verdict.refused);
    assert!(
        verdict.detail.contains("divided among queues"),
        "{}",
        verdict.detail
    );
}

#[test]
fn a_node_that_comes_from_queues_is_shared_when_they_have_left_it() {
    let mut world = mixed(1);
    world.asks("job_1", "root.a", (2, 1_000));
    settled(&mut world);
    world.snapshot.nodes.get_mut("q0").unwrap().pool = SHARED.into();
    of_class(&mut world, "job_2", 8);
    settled(&mut world);
    assert_eq!((world.has("job_1"), world.has("job_2")), (2, 4));
    world.snapshot.demand.remove("job_1");
    settled(&mut world);
    assert_eq!((world.has("job_1"), world.has("job_2")), (0, 8));
}

#[test]
fn work_for_a_queue_is_refused_where_no_pool_has_any() {
    let mut world = mixed(1);
    world.snapshot.queues.clear();
    world.asks("job_1", "root.a", (2, 1_000));
    let plan = planned(&world);
    assert!(plan.is_empty());
    let verdict = &plan.verdicts["job_1"];
    assert_eq!(
        (verdict.reason, verdict.refused),
        (Reason::UnknownClass, true)
    );
}

/// All that differs between two snapshots; queues and planners that come or go are everything.
fn news(before: &Snapshot, after: &Snapshot) -> News {
    News {
        everything: before.queues.keys().ne(after.queues.keys())
            || before.outside.keys().ne(after.outside.keys()),
        ..News::between(before, after)
    }
}

/// One of many things that may happen to a fleet.
fn happen(world: &mut World, (step, draw): (u64, u64)) {
    let id = format!("job_{}", draw % 7);
    let fresh = |world: &mut World, class: bool| {
        world.snapshot.demand.remove(id.as_str());
        if class {
            of_class(world, &id, 1 + draw % 9);
        } else {
            world.asks(&id, "root.a", (1 + draw % 9, 1_000));
        }
        if draw % 5 < 2 && !world.snapshot.outside.is_empty() {
            of_class(world, &id, 1 + draw % 9);
            let demand = world.snapshot.demand.get_mut(id.as_str()).unwrap();
            (demand.class, demand.queued) = (Some("away".into()), None);
        }
    };
    let node = node_name(&format!(
        "{}{}",
        ["q", "s", "o"][(draw % 3) as usize],
        draw / 3 % 3
    ));
    match draw / 7 % 8 {
        0 | 1 => fresh(world, true),
        2 | 3 => fresh(world, false),
        4 => drop(world.snapshot.demand.remove(id.as_str())),
        5 => {
            if let Some(node) = world.snapshot.nodes.get_mut(&node) {
                let outside = world.snapshot.pools.contains_key(OUT) && draw % 4 == 0;
                let other = if step % 2 == 0 { SHARED } else { "default" };
                node.pool = if outside { OUT } else { other }.into();
            }
        }
        6 => {
            if let Some(node) = world.snapshot.nodes.get_mut(&node) {
                node.takes_work = !node.takes_work;
            }
        }
        _ if step % 5 == 0 => drop(world.snapshot.nodes.remove(&node)),
        _ => drop(world.node(node.as_str(), &[("vcore", 4_000)])),
    }
}

/// An answer that is mostly wrong.
fn answer_something(world: &mut World, draw: u64) {
    let work: Vec<String> = (0..3)
        .map(|at| format!("job_{}", (draw + at) % 7))
        .collect();
    let nodes: Vec<String> = (0..3).map(|at| format!("o{}", (draw + at) % 3)).collect();
    let grants: Vec<(&str, &str, u64)> = (work.iter().zip(&nodes))
        .map(|(work, node)| (work.as_str(), node.as_str(), 1 + draw % 4))
        .collect();
    answer(world, &grants);
    let held: Vec<_> = world.snapshot.allocations.keys().cloned().collect();
    let known = world.snapshot.outside.get_mut(OUT).unwrap();
    if let (Some(id), Some(answer)) = (
        held.get(usize::try_from(draw % 9).unwrap()),
        &mut known.answer,
    ) {
        answer.vacates.push(Leave {
            allocation: id.to_string(),
            detail: String::new(),
        });
    }
}

#[test]
fn rounds_with_a_memory_decide_the_same_as_without() {
    for seed in 1..40_u64 {
        let mut world = mixed(3);
        if seed % 2 == 0 {
            add_outside(&mut world, 3);
        }
        let mut rounds = Rounds::default();
        let mut seen = Snapshot::empty();
        let mut said = std::collections::BTreeMap::new();
        let mut draw = seed;
        for step in 0..40 {
            let queues = world.snapshot.queues.clone();
            let outside = world.snapshot.outside.clone();
            for _ in 0..=draw % 3 {
                draw = draw
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695);
                happen(&mut world, (step, draw >> 33));
            }
            if step % 13 == 12 {
                world.snapshot.queues.clear();
            }
            if step % 17 == 16 {
                world.snapshot.outside.clear();
            }
            if step % 3 != 0 && !world.snapshot.outside.is_empty() {
                answer_something(&mut world, draw >> 33);
            }
            let what = news(&seen, &world.snapshot);
            let decided = rounds.decide(&world.snapshot, &what);
            if decided.shares.is_none() {
                said = rounds.verdicts();
            }
            decided.gone.iter().for_each(|gone| drop(said.remove(gone)));
            said.extend(apart(decided.verdicts.clone()));
            let plan = rounds.whole(decided);
            assert_eq!(
                plan,
                ByPool.schedule(&world.snapshot),
                "seed {seed}, step {step}"
            );
            assert_eq!(said, plan.verdicts, "seed {seed}, step {step}");
            assert!(check(&world.snapshot, &plan).is_ok());
            for (id, demand) in &world.snapshot.demand {
                let told = rounds.verdict(id);
                assert_eq!(told.as_ref(), plan.verdicts.get(id), "{demand:?}");
            }
            seen = world.snapshot.clone();
            world.carry_out(&plan);
            if world.snapshot.queues.is_empty() {
                world.snapshot.queues = queues;
            }
            if world.snapshot.outside.is_empty() {
                world.snapshot.outside = outside;
            }
        }
    }
}

#[test]
fn a_change_of_mind_between_class_and_queue_is_followed() {
    let mut world = mixed(1);
    of_class(&mut world, "job_1", 2);
    let mut rounds = Rounds::default();
    let decided = rounds.decide(&world.snapshot, &News::everything());
    world.carry_out(&rounds.whole(decided));
    let before = world.snapshot.clone();
    let mut demand: Demand = before.demand["job_1"].clone();
    demand.queued = Some(Box::default());
    queued(&mut demand).queue = Some("root.a".into());
    world.snapshot.demand.insert(work("job_1"), demand);
    let decided = rounds.decide(&world.snapshot, &news(&before, &world.snapshot));
    assert!(
        decided
            .verdicts
            .iter()
            .any(|(id, _)| id.as_str() == "job_1")
    );
    let plan = rounds.whole(decided);
    assert_eq!(plan, ByPool.schedule(&world.snapshot));
}
