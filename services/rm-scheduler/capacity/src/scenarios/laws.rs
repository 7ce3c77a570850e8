//! Preemption: S18, S19 and the laws of section 10.

use serde_json::{Value, json};

use super::VCORE;
use crate::fixture::{POOL, World, node_name, placed, queued};

const DELAY_MS: u64 = 30_000;

fn guaranteed(vcore: u64) -> Value {
    json!({"resources": {"guaranteed": {"vcore": vcore}}})
}

fn world(queues: &Value, nodes: &[u64]) -> World {
    let root = json!({"submit_acl": "*", "queues": queues});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    for (at, vcore) in nodes.iter().enumerate() {
        world.node(&format!("n{at}"), &[("vcore", vcore * VCORE)]);
    }
    world
}

#[test]
fn s18_the_newest_leaves_for_who_is_guaranteed() {
    let parent = json!({"resources": {"max": {"vcore": 10}},
        "queues": {"leaf1": guaranteed(5), "leaf2": guaranteed(5)}});
    let mut world = world(&json!({"parent": parent}), &[10, 10]);
    world.asks("job_1", "root.parent.leaf1", (1, 5 * VCORE));
    world.step();
    world.asks("job_2", "root.parent.leaf1", (1, 5 * VCORE));
    world.step();
    world.asks("job_3", "root.parent.leaf2", (1, 5 * VCORE));
    let plan = world.step();
    assert!(plan.is_empty(), "not before the delay");
    world.pass(DELAY_MS);
    let plan = world.step();
    assert_eq!(World::preempted(&plan), ["alc_000002"]);
    assert_eq!(
        plan.receipts[0].beneficiary.as_ref().unwrap().as_str(),
        "job_3"
    );
    assert_eq!(world.queue("root.parent.leaf1").leaving["vcore"], 5 * VCORE);
    assert_eq!(plan.carried.queues[POOL].reservations.len(), 1);
    // It leaves.
    assert!(world.step().is_empty());
    let plan = world.step();
    assert_eq!(placed(&plan), ["job_3"]);
    assert!(plan.carried.queues[POOL].reservations.is_empty());
}

#[test]
fn s19_preemption_stops_at_the_guarantee() {
    let queue = json!({"resources": {"guaranteed": {"vcore": 5}, "max": {"vcore": 10}}});
    let parent = json!({"resources": {"max": {"vcore": 12}},
        "queues": {"queue-1": queue, "queue-2": queue}});
    let mut world = world(&json!({"parent": parent}), &[12, 12]);
    world.asks("job_1", "root.parent.queue-1", (10, VCORE));
    world.step();
    world.asks("job_2", "root.parent.queue-2", (10, VCORE));
    let mut taken = 0;
    for _ in 0..40 {
        taken += World::preempted(&world.step()).len();
        world.pass(DELAY_MS);
    }
    assert_eq!((world.has("job_1"), world.has("job_2"), taken), (7, 5, 3));
}

#[test]
fn s10_1_who_has_no_guarantee_takes_nothing() {
    let mut world = world(&json!({"a": {}, "b": {}}), &[4]);
    world.asks("job_1", "root.a", (4, VCORE));
    world.settle();
    world.asks("job_2", "root.b", (1, VCORE));
    world.pass(DELAY_MS);
    world.settle();
    assert_eq!((world.has("job_1"), world.has("job_2")), (4, 0));
}

#[test]
fn s10_1_higher_priorities_are_left_alone() {
    let start = |priority: i32| {
        let mut world = world(&json!({"a": {}, "b": guaranteed(2)}), &[4]);
        queued(world.asks("job_1", "root.a", (4, VCORE))).priority = priority;
        world.settle();
        world.asks("job_2", "root.b", (1, VCORE));
        world.pass(DELAY_MS);
        World::preempted(&world.step()).len()
    };
    assert_eq!((start(0), start(1)), (1, 0));
}

#[test]
fn s10_1_nobody_looks_outside_a_fence() {
    let start = |policy: &str| {
        let fenced = json!({"preemption": policy, "queues": {"b": guaranteed(2)}});
        let mut world = world(&json!({"a": {}, "fenced": fenced}), &[4]);
        world.asks("job_1", "root.a", (4, VCORE));
        world.settle();
        world.asks("job_2", "root.fenced.b", (1, VCORE));
        world.pass(DELAY_MS);
        World::preempted(&world.step()).len()
    };
    assert_eq!((start("default"), start("fence")), (1, 0));
}

#[test]
fn s10_3_disabled_queues_lose_nothing() {
    let spared = json!({"preemption": "disabled"});
    let mut world = world(&json!({"a": spared, "b": guaranteed(2)}), &[4]);
    world.asks("job_1", "root.a", (4, VCORE));
    world.settle();
    world.asks("job_2", "root.b", (1, VCORE));
    world.pass(DELAY_MS);
    assert!(world.step().is_empty());
}

#[test]
fn s10_3_those_who_would_rather_stay_and_originators_go_last() {
    let mut world = world(&json!({"a": {}, "b": guaranteed(1)}), &[1, 1, 1]);
    for (at, (id, preemptable, originator)) in [
        ("job_first", true, true),
        ("job_stays", false, false),
        ("job_goes", true, false),
    ]
    .into_iter()
    .enumerate()
    {
        let demand = world.asks(id, "root.a", (1, VCORE));
        demand.machines = [node_name(&format!("n{at}"))].into();
        queued(demand).preemptable = preemptable;
        queued(demand).originator = originator;
    }
    world.settle();
    world.asks("job_b", "root.b", (1, VCORE));
    world.pass(DELAY_MS);
    let plan = world.step();
    assert_eq!(plan.receipts[0].work.as_str(), "job_goes");
}

/// A large process between small ones is passed over where it would push its queue too low.
#[test]
fn s10_3_oversized_victims_are_passed_over() {
    let mut world = world(&json!({"a": guaranteed(3), "b": guaranteed(1)}), &[4]);
    world.asks("job_small", "root.a", (1, VCORE));
    world.step();
    world.asks("job_large", "root.a", (1, 3 * VCORE));
    world.step();
    world.asks("job_b", "root.b", (1, VCORE));
    world.pass(DELAY_MS);
    let plan = world.step();
    let taken: Vec<&str> = plan.receipts.iter().map(|it| it.work.as_str()).collect();
    assert_eq!(taken, ["job_small"]);
}

#[test]
fn s10_3_nothing_is_taken_where_it_does_not_help() {
    let mut world = world(&json!({"a": {}, "b": guaranteed(4)}), &[2, 2]);
    world.asks("job_1", "root.a", (4, VCORE));
    world.settle();
    world.asks("job_2", "root.b", (1, 3 * VCORE));
    world.pass(DELAY_MS);
    assert!(world.step().is_empty());
}

#[test]
fn s10_4_a_required_node_is_cleared_of_no_more_than_needed() {
    let mut world = world(&json!({"a": guaranteed(4), "b": {}}), &[4]);
    world.asks("job_1", "root.a", (3, VCORE));
    world.settle();
    let demand = world.asks("job_2", "root.b", (1, 2 * VCORE));
    queued(demand).required_node = Some(node_name("n0"));
    let plan = world.step();
    // One is free, so one has to leave, whatever is guaranteed.
    assert_eq!(World::preempted(&plan).len(), 1);
    world.settle();
    assert_eq!((world.has("job_1"), world.has("job_2")), (2, 1));
}

#[test]
fn s10_5_a_lowered_maximum_is_enforced_only_when_asked_for() {
    let document = |max: u64, enforced: bool| {
        let leaf = json!({"resources": {"max": {"vcore": max}},
            "quota_preemption_delay_ms": 60_000});
        let root = json!({"submit_acl": "*", "queues": {"a": leaf}});
        json!({"queues": {"root": root}, "quota_preemption": enforced})
    };
    let mut world = World::of(&document(4, false));
    world.node("n0", &[("vcore", 4 * VCORE)]);
    world.asks("job_1", "root.a", (4, VCORE));
    world.settle();
    world.configure(&document(2, false));
    world.pass(600_000);
    assert!(world.step().is_empty());
    world.configure(&document(2, true));
    assert!(world.step().is_empty(), "not before the delay");
    world.pass(60_000);
    assert_eq!(World::preempted(&world.step()).len(), 2);
    world.settle();
    assert_eq!(world.has("job_1"), 2);
}

/// 10.6: a guarantee above two queues that have none of their own, and work that always comes back.
#[test]
fn s10_6_siblings_below_one_guarantee_come_to_rest() {
    let parent = json!({"resources": {"guaranteed": {"vcore": 4}}, "queues": {"a": {}, "b": {}}});
    let mut world = world(&json!({"parent": parent}), &[4]);
    world.asks("job_1", "root.parent.a", (4, VCORE));
    world.settle();
    world.asks("job_2", "root.parent.b", (4, VCORE));
    let mut taken = 0;
    for _ in 0..40 {
        taken += World::preempted(&world.step()).len();
        world.pass(DELAY_MS);
    }
    assert_eq!(taken, 0);
}

#[test]
fn s10_6_what_came_back_is_left_alone_for_a_while() {
    let mut world = world(&json!({"a": {}, "b": guaranteed(2)}), &[2, 2]);
    let hit = world.snapshot.now;
    world.asks("job_1", "root.a", (4, VCORE));
    world.pass(1_000);
    world.settle();
    let kept = world
        .snapshot
        .carried
        .queues
        .entry(POOL.to_owned())
        .or_default();
    kept.hit.insert("job_1".parse().unwrap(), hit);
    world.asks("job_2", "root.b", (1, VCORE));
    world.pass(DELAY_MS);
    assert!(World::preempted(&world.step()).is_empty());
    world.pass(60_000);
    assert_eq!(World::preempted(&world.step()).len(), 1);
}
