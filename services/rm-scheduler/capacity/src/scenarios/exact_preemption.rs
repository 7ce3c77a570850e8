//! Taking back exactly what an ask needs, and nothing in vain, where stopping takes time.

use hayward_rm_scheduler_domain::{Plan, Reason};
use serde_json::{Value, json};

use super::VCORE;
use crate::fixture::{World, node_name, queued};

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

fn victims(plan: &Plan) -> Vec<&str> {
    plan.receipts.iter().map(|it| it.work.as_str()).collect()
}

/// Carries plans out for so many rounds, in which work of these takes its time to stop.
fn rounds_with_slow(world: &mut World, slow: &[&str], rounds: usize) -> usize {
    let mut taken = 0;
    for _ in 0..rounds {
        let plan = world.plan();
        taken += plan.receipts.len();
        world.carry_out_but(&plan, |_, held| slow.contains(&held.work.as_str()));
    }
    taken
}

/// A node is merely kept for the ask before its delay ends, however long that is.
#[test]
fn one_leaves_for_one_however_long_it_waited() {
    for delay in [1_000, 5_000, 30_000] {
        let taker = json!({"resources": {"guaranteed": {"vcore": 5}},
            "preemption_delay_ms": delay});
        let mut world = world(&json!({"a": {}, "b": taker}), &[40]);
        world.asks("job_a", "root.a", (8, 5 * VCORE));
        world.settle();
        world.asks("job_b", "root.b", (1, 5 * VCORE));
        let mut taken = 0;
        for _ in 0..50 {
            taken += world.step().receipts.len();
        }
        let has = (world.has("job_a"), world.has("job_b"));
        assert_eq!((taken, has), (1, (7, 1)), "after {delay} ms");
    }
}

/// What others left for is not forgotten for a node that was merely kept before.
#[test]
fn room_that_others_leave_goes_before_room_that_is_merely_kept() {
    let mut world = world(&json!({"a": {}, "b": guaranteed(3)}), &[4, 4]);
    for (id, node, vcore) in [
        ("job_a", "n0", 4),
        ("job_slow", "n1", 2),
        ("job_fast", "n1", 2),
    ] {
        let demand = world.asks(id, "root.a", (1, vcore * VCORE));
        demand.machines = [node_name(node)].into();
        queued(demand).preemptable = id != "job_a";
    }
    world.settle();
    world.asks("job_b", "root.b", (1, 3 * VCORE));
    world.pass(3_000);
    world.step();
    world.pass(30_000);
    let plan = world.step();
    assert_eq!(victims(&plan).len(), 2);
    rounds_with_slow(&mut world, &["job_slow"], 3);
    assert_eq!(world.has("job_fast"), 0);
    world.settle();
    assert_eq!((world.has("job_a"), world.has("job_b")), (1, 1));
}

#[test]
fn the_quota_is_kept_with_the_room_while_victims_stop() {
    let parent = json!({"resources": {"max": {"vcore": 8}},
        "queues": {"one": {}, "two": guaranteed(5)}});
    let mut world = world(&json!({"parent": parent}), &[20]);
    world.asks("job_one", "root.parent.one", (2, 2 * VCORE));
    world.settle();
    world.asks("job_two", "root.parent.two", (1, 5 * VCORE));
    world.pass(30_000);
    let taken = rounds_with_slow(&mut world, &["job_one"], 4);
    assert_eq!((taken, world.has("job_one")), (1, 1));
    world.settle();
    assert_eq!((world.has("job_one"), world.has("job_two")), (1, 1));
}

#[test]
fn what_stops_at_once_does_not_come_back_while_another_victim_still_stops() {
    let parent = json!({"resources": {"max": {"vcore": 9}},
        "queues": {"one": {}, "two": guaranteed(9)}});
    let mut world = world(&json!({"parent": parent}), &[20]);
    world.asks("job_slow", "root.parent.one", (1, 5 * VCORE));
    world.asks("job_fast", "root.parent.one", (1, 4 * VCORE));
    world.settle();
    world.asks("job_two", "root.parent.two", (1, 9 * VCORE));
    world.pass(30_000);
    let taken = rounds_with_slow(&mut world, &["job_slow"], 10);
    assert_eq!((taken, world.has("job_fast")), (2, 0));
    let told = &world.plan().verdicts["job_fast"].detail;
    let words = "9 vcore, and 4 more are needed; 9 of that is kept for work that goes before it";
    assert!(told.contains(words), "{told}");
    world.settle();
    assert_eq!((world.has("job_two"), world.has("job_slow")), (1, 0));
}

/// Victims of a later ask of the same parent still stop; what left before is for the earlier one.
#[test]
fn an_ask_starts_once_its_own_victims_have_left_whoever_else_is_taken_for_later() {
    let parent = json!({"resources": {"max": {"vcore": 4}},
        "queues": {"one": {}, "two": guaranteed(1), "three": guaranteed(3)}});
    for (first_is_gang, second_is_gang) in [(false, false), (false, true), (true, false)] {
        let mut world = world(&json!({"parent": parent}), &[20, 20]);
        world.asks("job_slow", "root.parent.one", (1, 3 * VCORE));
        world.step();
        world.asks("job_fast", "root.parent.one", (1, VCORE));
        world.settle();
        for (id, queue, vcore, gang) in [
            ("job_two", "root.parent.two", 1, first_is_gang),
            ("job_three", "root.parent.three", 3, second_is_gang),
        ] {
            if gang {
                world.part(id, (queue, "gang"), (1, vcore * VCORE));
            } else {
                world.asks(id, queue, (1, vcore * VCORE));
            }
            world.pass(30_000);
            let plan = world.plan();
            assert_eq!(victims(&plan).len(), 1);
            world.carry_out_but(&plan, |_, _| true);
        }
        rounds_with_slow(&mut world, &["job_slow"], 2);
        assert_eq!((world.has("job_two"), world.has("job_three")), (1, 0));
        world.settle();
        assert_eq!((world.has("job_two"), world.has("job_three")), (1, 1));
    }
}

/// The user of the ask may have no more than two of the three that it asks for.
#[test]
fn nothing_leaves_for_what_the_limit_of_the_user_would_hold_back() {
    let taker = json!({"resources": {"guaranteed": {"vcore": 3}},
        "limits": [{"users": ["*"], "max_resources": {"vcore": 2}}]});
    let mut world = world(&json!({"a": {}, "b": taker}), &[4]);
    world.asks("job_a", "root.a", (4, VCORE));
    world.settle();
    world.asks("job_b", "root.b", (3, VCORE));
    world.pass(30_000);
    let taken = rounds_with_slow(&mut world, &[], 60);
    assert_eq!((taken, world.has("job_a"), world.has("job_b")), (2, 2, 2));
}

/// Two applications ask, and one may run.
#[test]
fn nothing_leaves_for_more_applications_than_may_run() {
    let taker = json!({"resources": {"guaranteed": {"vcore": 3}}, "max_applications": 1});
    let mut world = world(&json!({"a": {}, "b": taker}), &[2, 2]);
    world.asks("job_a", "root.a", (4, VCORE));
    world.settle();
    world.asks("job_b1", "root.b", (1, VCORE));
    world.asks("job_b2", "root.b", (1, VCORE));
    world.pass(30_000);
    let taken = rounds_with_slow(&mut world, &[], 60);
    assert_eq!((taken, world.has("job_b1"), world.has("job_b2")), (1, 1, 0));
}

/// The small one is taken first, and is not needed once the large one has to go.
#[test]
fn a_victim_that_a_larger_one_makes_needless_is_spared() {
    let parent = json!({"resources": {"max": {"vcore": 6}},
        "queues": {"one": {}, "two": guaranteed(5)}});
    let mut world = world(&json!({"parent": parent}), &[20]);
    world.asks("job_large", "root.parent.one", (1, 5 * VCORE));
    world.step();
    world.asks("job_small", "root.parent.one", (1, VCORE));
    world.settle();
    world.asks("job_two", "root.parent.two", (1, 5 * VCORE));
    world.pass(30_000);
    assert_eq!(victims(&world.step()), ["job_large"]);
    world.settle();
    assert_eq!((world.has("job_small"), world.has("job_two")), (1, 1));
}

#[test]
fn a_required_node_is_not_cleared_of_what_a_larger_one_makes_needless() {
    let mut world = world(&json!({"a": {}, "b": {}}), &[4]);
    world.asks("job_large", "root.a", (1, 3 * VCORE));
    world.step();
    world.asks("job_small", "root.a", (1, VCORE));
    world.settle();
    let demand = world.asks("job_b", "root.b", (1, 3 * VCORE));
    queued(demand).required_node = Some(node_name("n0"));
    assert_eq!(victims(&world.step()), ["job_large"]);
}

/// The sibling holds all that their parent is guaranteed; what it gives does not count twice.
#[test]
fn a_sibling_over_its_guarantee_gives_what_the_parent_is_guaranteed() {
    let parent = json!({"resources": {"guaranteed": {"vcore": 10}},
        "queues": {"one": guaranteed(5), "two": {}}});
    for held in [10, 12] {
        let mut world = world(&json!({"parent": parent, "other": {}}), &[held]);
        world.asks("job_one", "root.parent.one", (held, VCORE));
        world.settle();
        world.asks("job_two", "root.parent.two", (10, VCORE));
        world.pass(30_000);
        let taken = rounds_with_slow(&mut world, &[], 200);
        let has = (world.has("job_one"), world.has("job_two"));
        let kept = usize::try_from(held).unwrap() - 5;
        assert_eq!((taken, has), (5, (kept, 5)), "{held} held");
    }
}

/// What the parent is guaranteed is used up, so nothing outside it is taken for its children.
#[test]
fn nothing_outside_a_guarantee_that_is_used_up_is_taken_for_it() {
    let parent = json!({"resources": {"guaranteed": {"vcore": 6}},
        "queues": {"one": guaranteed(3), "two": {}}});
    let mut world = world(&json!({"parent": parent, "other": {}}), &[10]);
    world.asks("job_one", "root.parent.one", (6, VCORE));
    world.asks("job_other", "root.other", (4, VCORE));
    world.settle();
    world.asks("job_two", "root.parent.two", (3, VCORE));
    world.pass(30_000);
    rounds_with_slow(&mut world, &[], 100);
    let has = ["job_one", "job_two", "job_other"].map(|id| world.has(id));
    assert_eq!(has, [3, 3, 4]);
}

/// The part of a sibling that is guaranteed nothing itself gives way to it, at every depth.
#[test]
fn an_explicit_guarantee_wins_over_a_part_of_what_is_guaranteed_above() {
    let deeper = json!({"resources": {"guaranteed": {"vcore": 1}}, "queues": {"below": {}}});
    for (two, path) in [(guaranteed(1), "two"), (deeper, "two.below")] {
        let parent = json!({"resources": {"guaranteed": {"vcore": 10}},
            "queues": {"one": {}, "two": two}});
        let mut world = world(&json!({"parent": parent}), &[4]);
        world.asks("job_one", "root.parent.one", (4, VCORE));
        world.settle();
        world.asks("job_two", &format!("root.parent.{path}"), (4, VCORE));
        world.pass(30_000);
        let taken = rounds_with_slow(&mut world, &[], 200);
        let has = (world.has("job_one"), world.has("job_two"));
        assert_eq!((taken, has), (1, (3, 1)), "{path}");
    }
}

fn lowered(max: &Value, resources: &Value) -> Value {
    let mut leaf = json!({"resources": resources, "quota_preemption_delay_ms": 1_000});
    leaf["resources"]["max"] = max.clone();
    let root = json!({"submit_acl": "*", "queues": {"a": leaf}});
    json!({"queues": {"root": root}, "quota_preemption": true})
}

#[test]
fn a_lowered_maximum_takes_back_whatever_other_types_are_limited() {
    for (resources, left) in [(json!({}), 10), (json!({"guaranteed": {"vcore": 12}}), 12)] {
        let mut world = World::of(&lowered(&json!({"memory": 1_500, "vcore": 15}), &resources));
        world.node("n0", &[("vcore", 40 * VCORE)]);
        let demand = world.ask("job_a", "root.a", &[("memory", 100), ("vcore", VCORE)]);
        demand.max_processes = 15;
        world.settle();
        assert_eq!(world.has("job_a"), 15);
        world.configure(&lowered(&json!({"memory": 1_000, "vcore": 15}), &resources));
        rounds_with_slow(&mut world, &[], 10);
        assert_eq!(world.has("job_a"), left);
    }
}

/// A third of what is over is less than one process of each child.
#[test]
fn a_lowered_maximum_is_brought_down_by_whole_processes_of_some_children() {
    let document = |max: u64| {
        let parent = json!({"resources": {"max": {"vcore": max}},
            "quota_preemption_delay_ms": 1_000, "queues": {"a": {}, "b": {}, "c": {}}});
        let root = json!({"submit_acl": "*", "queues": {"parent": parent}});
        json!({"queues": {"root": root}, "quota_preemption": true})
    };
    let mut world = World::of(&document(3));
    world.node("n0", &[("vcore", 4 * VCORE)]);
    for id in ["a", "b", "c"] {
        world.asks(
            &format!("job_{id}"),
            &format!("root.parent.{id}"),
            (1, VCORE),
        );
    }
    world.settle();
    world.configure(&document(1));
    rounds_with_slow(&mut world, &[], 10);
    let left: usize = ["job_a", "job_b", "job_c"]
        .iter()
        .map(|id| world.has(id))
        .sum();
    assert_eq!(left, 1);
}

#[test]
fn waiting_work_is_told_that_others_leave_for_it_until_they_have_left() {
    let mut world = world(&json!({"a": {}, "b": guaranteed(2)}), &[2]);
    world.asks("job_a", "root.a", (2, VCORE));
    world.settle();
    world.asks("job_b", "root.b", (1, VCORE));
    world.pass(30_000);
    for _ in 0..5 {
        let plan = world.plan();
        let verdict = &plan.verdicts["job_b"];
        assert_eq!(verdict.reason, Reason::WaitingForPreemption);
        assert_eq!(verdict.detail, "others leave node n0, which is kept for it");
        world.carry_out_but(&plan, |_, _| true);
    }
    world.settle();
    assert_eq!(world.has("job_b"), 1);
}

/// A quota is short, and the room is on another node.
#[test]
fn a_victim_on_another_node_is_told_of_the_maximum_and_not_of_that_node() {
    let parent = json!({"resources": {"max": {"vcore": 2}},
        "queues": {"one": {}, "two": guaranteed(1)}});
    let mut world = world(&json!({"parent": parent}), &[2, 2]);
    let demand = world.asks("job_one", "root.parent.one", (2, VCORE));
    demand.machines = [node_name("n0")].into();
    world.settle();
    let demand = world.asks("job_two", "root.parent.two", (1, VCORE));
    demand.machines = [node_name("n1")].into();
    world.pass(30_000);
    let plan = world.plan();
    let told = &plan.vacates[0].detail;
    let words = "work of queue root.parent.two is due a part of what queue root.parent may have at \
                 most, by its guarantee";
    assert_eq!(told, words);
    let told = &plan.verdicts["job_two"].detail;
    let words = "others leave so that queue root.parent.two may have more, and node n1 is kept for \
                 it";
    assert_eq!(told, words);
}
