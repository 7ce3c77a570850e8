//! Others leave for a gang by its guarantee: all at once or nobody, and what becomes of the room
//! and the quota that it is made for.

use hayward_rm_scheduler_domain::{Plan, Reason};
use serde_json::json;

use super::{VCORE, stream};
use crate::fixture::{POOL, World, node_name, placed, queued, size};

/// Two leaves with half of all nodes guaranteed, and plain work in one that has everything.
fn halves() -> World {
    let half = json!({"resources": {"guaranteed": {"vcore": 8}}, "preemption_delay_ms": 1_000});
    stream(
        &[4, 4, 4, 4],
        &json!({"submit_acl": "*", "queues": {"a": half, "b": half}}),
    )
}

#[test]
fn s10_a_gang_takes_what_its_queue_is_guaranteed_all_at_once() {
    let mut world = halves();
    world.part("job_driver", ("root.b", "gang"), (1, 2 * VCORE));
    world.part("job_workers", ("root.b", "gang"), (2, 3 * VCORE));
    let plan = world.plan();
    assert!(plan.is_empty(), "not before the delay");
    world.pass(1_000);
    let plan = world.step();
    // Eight, and all of them at once: none too many, and none too few.
    assert_eq!(plan.receipts.len(), 8);
    for receipt in &plan.receipts {
        let to = receipt.beneficiary.as_ref().unwrap().as_str();
        assert!(["job_driver", "job_workers"].contains(&to), "{to}");
        assert_eq!(receipt.work.as_str(), "job_plain");
    }
    let told = &plan.verdicts["job_workers"];
    assert_eq!(told.reason, Reason::WaitingForPreemption);
    let words = "0 of the 3 processes it lacks fit";
    assert!(told.detail.contains(words), "{}", told.detail);
    assert!(told.detail.contains("8 processes leave"), "{}", told.detail);
    let room = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert!(room.cleared);
    // While they leave nobody takes their room, and nobody else is told to go.
    for _ in 0..3 {
        let plan = world.plan();
        assert!(plan.is_empty(), "{plan:#?}");
        world.snapshot.carried = plan.carried.clone();
        world.pass(1_000);
    }
    world.settle();
    assert_eq!((world.has("job_driver"), world.has("job_workers")), (1, 2));
    assert_eq!(world.has("job_plain"), 8);
    world.pass(600_000);
    assert!(world.step().is_empty(), "it comes to rest");
}

/// With the whole of it the queue would have more than is guaranteed: nobody goes for a part.
#[test]
fn s10_1_a_gang_beyond_its_guarantee_takes_nothing() {
    let mut world = halves();
    world.part("job_gang", ("root.b", "gang"), (9, VCORE));
    for _ in 0..5 {
        world.pass(30_000);
        assert!(world.step().receipts.is_empty());
    }
    assert_eq!(world.room().len(), 4, "but room is kept");
}

/// All but one of the members could be made room for.
#[test]
fn s10_3_all_of_the_victims_are_found_or_nobody_goes() {
    for spared in [false, true] {
        let mut world = halves();
        world.snapshot.demand.remove("job_plain");
        world.snapshot.allocations.clear();
        for node in 0..4 {
            let demand = world.asks(&format!("job_{node}"), "root.a", (4, VCORE));
            demand.machines = [node_name(&format!("n{node}"))].into();
            // Nobody takes from a higher priority.
            queued(demand).priority = i32::from(node > 0 && spared);
        }
        world.settle();
        world.part("job_gang", ("root.b", "gang"), (2, 4 * VCORE));
        world.pass(2_000);
        let plan = world.step();
        assert_eq!(plan.receipts.len(), if spared { 0 } else { 8 });
        let kept = &plan.carried.queues[POOL];
        assert_eq!(kept.attempts.contains_key("job_gang"), spared);
        assert_eq!(kept.gang.as_ref().unwrap().cleared, !spared);
    }
}

/// Whether one of very many victims could stay is not looked at by packing all nodes anew for each.
#[test]
fn s10_3_very_many_victims_are_found_in_one_round() {
    const NODES: usize = 500;
    let half = json!({"resources": {"guaranteed": {"vcore": NODES}},
        "preemption_delay_ms": 1_000});
    let root = json!({"submit_acl": "*", "queues": {"a": {}, "b": half}});
    let mut world = stream(&[1; NODES], &root);
    world.part("job_gang", ("root.b", "gang"), (NODES as u64, VCORE));
    world.pass(1_000);
    let plan = world.step();
    assert_eq!(plan.receipts.len(), NODES);
}

/// Free room is used before anybody goes, and room that is merely kept for another gang too.
#[test]
fn s10_3_a_gang_takes_no_more_than_it_needs_and_goes_before_what_is_merely_kept() {
    let mut world = halves();
    world.part("job_wide", ("root.a", "wide"), (4, 3 * VCORE));
    world.pass(2_000);
    world.step();
    world.end("job_plain", 5);
    world.step();
    assert_eq!(world.room().len(), 4);
    let idle = 16 - world.has("job_plain");
    assert_eq!(idle, 5);
    world.part("job_gang", ("root.b", "gang"), (6, VCORE));
    world.pass(2_000);
    let plan = world.step();
    assert_eq!(plan.receipts.len(), 6 - idle);
    let room = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert_eq!((room.work.as_str(), room.cleared), ("job_gang", true));
    world.settle();
    assert_eq!(world.has("job_gang"), 6);
}

/// Room is made for a gang of a on four nodes of b, and a fifth one, where the gang may not go, is
/// free for a process of another application in a.
fn made_room(a: &serde_json::Value) -> World {
    let mut queue = json!({"resources": {"guaranteed": {"vcore": 4}},
        "preemption_delay_ms": 1_000});
    let more = a.as_object().unwrap().clone();
    queue.as_object_mut().unwrap().extend(more);
    let root = json!({"submit_acl": "*", "queues": {"a": queue, "b": {}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    for at in 1..=5 {
        world.node(&format!("n{at}"), &[("vcore", VCORE)]);
    }
    let plain = world.asks("job_plain", "root.b", (4, VCORE));
    plain.avoids = [node_name("n5")].into();
    world.settle();
    world.part("job_gang", ("root.a", "gang"), (4, VCORE));
    let gang = world.snapshot.demand.get_mut("job_gang").unwrap();
    gang.avoids = [node_name("n5")].into();
    world.pass(2_000);
    let plan = world.plan();
    assert_eq!(plan.receipts.len(), 4);
    for vacate in &plan.vacates {
        let held = world.snapshot.allocations.get_mut(&vacate.allocation);
        held.unwrap().leaving = true;
    }
    world.snapshot.carried = plan.carried;
    world.asks("job_single", "root.a", (1, VCORE));
    world
}

/// Otherwise four would have left for nothing, again and again.
#[test]
fn i14_nobody_takes_the_quota_of_a_gang_for_which_room_was_made() {
    let user = json!({"limits": [{"users": ["*"], "max_resources": {"vcore": 4}}]});
    let users = json!({"limits": [{"users": ["*"], "max_applications": 1}]});
    let limits = [
        (
            json!({"resources": {"guaranteed": {"vcore": 4}, "max": {"vcore": 4}}}),
            Reason::QueueQuota,
        ),
        (json!({"max_applications": 1}), Reason::NotRunnable),
        (user, Reason::UserQuota),
        (users, Reason::NotRunnable),
    ];
    for (limit, reason) in limits {
        let mut world = made_room(&limit);
        // They take their time to leave.
        for _ in 0..10 {
            let plan = world.plan();
            assert!(plan.is_empty(), "{limit}: {plan:#?}");
            let told = &plan.verdicts["job_single"];
            assert_eq!(told.reason, reason, "{}", told.detail);
            assert!(
                told.detail.contains("kept for work that goes before it"),
                "{}",
                told.detail
            );
            world.snapshot.carried = plan.carried;
            world.pass(1_000);
        }
        world.settle();
        assert_eq!(
            (world.has("job_gang"), world.has("job_single")),
            (4, 0),
            "{limit}"
        );
        // Its quota is its own as long as it needs it.
        world.snapshot.demand.remove("job_gang");
        world
            .snapshot
            .allocations
            .retain(|_, held| held.work.as_str() != "job_gang");
        world.settle();
        assert_eq!(world.has("job_single"), 1, "{limit}");
    }
}

/// What stands beside it in the quota is not kept from anybody, nor what is kept for too long.
#[test]
fn i23_a_quota_is_kept_for_what_a_gang_needs_and_no_longer_than_its_room() {
    let wide = json!({"resources": {"guaranteed": {"vcore": 4}, "max": {"vcore": 5}}});
    let mut world = made_room(&wide);
    world.settle();
    assert_eq!((world.has("job_gang"), world.has("job_single")), (4, 1));
    let tight = json!({"resources": {"guaranteed": {"vcore": 4}, "max": {"vcore": 4}}});
    let mut world = made_room(&tight);
    world.pass(600_000);
    let plan = world.plan();
    assert_eq!(plan.grants.len(), 1);
}

/// Room is merely kept for a gang, and small work of its own queue has its quota to the brim.
#[test]
fn i23_nobody_takes_the_quota_of_a_gang_for_which_room_is_kept() {
    let a = json!({"resources": {"max": {"vcore": 4}}});
    let root = json!({"submit_acl": "*", "queues": {"a": a, "b": {}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    for name in ["n1", "n2"] {
        world.node(name, &[("vcore", 4 * VCORE)]);
    }
    world.asks("job_plain", "root.b", (5, VCORE));
    world.settle();
    world.part("job_gang", ("root.a", "gang"), (1, 4 * VCORE));
    world.pass(2_000);
    world.step();
    assert_eq!(world.room().len(), 1);
    world.asks("job_single", "root.a", (1, VCORE));
    let plan = world.step();
    assert!(plan.grants.is_empty(), "{plan:#?}");
    let plain = world.snapshot.demand.get_mut("job_plain").unwrap();
    plain.max_processes = 3;
    world.end("job_plain", 5);
    world.settle();
    assert_eq!((world.has("job_gang"), world.has("job_single")), (1, 0));
}

/// A gang of the whole half for which eight are told to leave, who stay for a while.
fn slow_to_leave() -> World {
    let mut world = halves();
    world.part("job_gang", ("root.b", "gang"), (8, VCORE));
    world.pass(2_000);
    let plan = world.plan();
    assert_eq!(plan.receipts.len(), 8);
    linger(&mut world, &plan);
    world
}

/// Who is told to leave stays where it is.
fn linger(world: &mut World, plan: &Plan) {
    world.snapshot.carried = plan.carried.clone();
    for vacate in &plan.vacates {
        let held = world.snapshot.allocations.get_mut(&vacate.allocation);
        held.unwrap().leaving = true;
    }
}

/// What was cleared is not given up while those who were told are still on their way.
#[test]
fn s10_6_room_is_not_given_up_while_its_victims_leave() {
    let mut world = slow_to_leave();
    for _ in 0..50 {
        world.pass(10_000);
        let plan = world.plan();
        assert!(plan.is_empty(), "{plan:#?}");
        world.snapshot.carried = plan.carried;
        assert!(world.room().len() >= 2);
    }
    world.settle();
    assert_eq!(world.has("job_gang"), 8);
    // Where nobody leaves any more there is nothing to wait for.
    let mut world = slow_to_leave();
    world.snapshot.allocations.retain(|_, held| !held.leaving);
    world.snapshot.demand.get_mut("job_gang").unwrap().avoids =
        (0..4).map(|node| node_name(&format!("n{node}"))).collect();
    world.pass(300_000);
    world.step();
    assert!(world.room().is_empty());
}

/// What was cleared lapses without effect: nothing more is taken for twice as long.
#[test]
fn s10_6_a_gang_that_lets_its_room_lapse_takes_nothing_for_twice_as_long() {
    let mut world = slow_to_leave();
    for round in 1..120 {
        world.pass(10_000);
        let plan = world.plan();
        assert!(plan.receipts.is_empty(), "round {round}");
        world.snapshot.carried = plan.carried;
        assert_eq!(world.room().is_empty(), round >= 60, "round {round}");
    }
    world.pass(20_000);
    let plan = world.plan();
    assert!(plan.carried.queues[POOL].gang.is_some(), "and then again");
}

/// A node of the room is closed, and others hold what could take its place: they were not told to
/// leave, so that is not room that is being made.
#[test]
fn s9_3_what_is_found_anew_is_room_that_was_made_only_where_others_leave_it() {
    let mut world = slow_to_leave();
    let before: Vec<String> = world.room().iter().map(|it| it.0.to_owned()).collect();
    let name = node_name(&before[0]);
    world.snapshot.nodes.get_mut(&name).unwrap().takes_work = false;
    let plan = world.plan();
    let room = plan.carried.queues[POOL].gang.as_ref().unwrap();
    let elsewhere = room
        .nodes
        .keys()
        .any(|node| !before.contains(&node.to_string()));
    assert!(elsewhere && !room.cleared, "{room:?}");
    // Free nodes are as good as those that others leave.
    world.node("n4", &[("vcore", 4 * VCORE)]);
    let plain = world.snapshot.demand.get_mut("job_plain").unwrap();
    plain.max_processes = 8;
    let plan = world.plan();
    assert!(plan.is_empty(), "{plan:#?}");
    let room = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert!(room.nodes.contains_key("n4") && room.cleared, "{room:?}");
}

/// One that may run on its node alone, and one whose queue is guaranteed memory, of which the gang
/// has none guaranteed. Without the member, the gang would lack more than what others leave.
#[test]
fn a_member_of_a_gang_that_others_leave_for_is_not_taken() {
    const ALL: u64 = 1 << 20;
    let guaranteed = |amounts| json!({"resources": {"guaranteed": amounts}});
    let queues = json!({"a": {}, "b": guaranteed(json!({"vcore": 1})),
        "c": guaranteed(json!({"memory": ALL}))});
    for requires in [true, false] {
        let root = json!({"submit_acl": "*", "queues": queues});
        let mut world = World::of(&json!({"queues": {"root": root}}));
        world.node("n0", &[("memory", ALL)]);
        world.node("n1", &[("vcore", VCORE)]);
        world.asks("job_a", "root.a", (1, VCORE));
        world.part("job_large", ("root.b", "gang"), (1, 0));
        world.snapshot.demand.get_mut("job_large").unwrap().size = size(&[("memory", ALL)]);
        world.settle();
        world.part("job_small", ("root.b", "gang"), (1, VCORE));
        world.pass(30_000);
        assert_eq!(
            world.step().receipts.len(),
            1,
            "the gang takes what it lacks"
        );
        let taker = world.ask("job_c", "root.c", &[("memory", ALL)]);
        queued(taker).required_node = requires.then(|| node_name("n0"));
        for _ in 0..4 {
            world.pass(30_000);
            let plan = world.plan();
            assert!(plan.receipts.is_empty(), "{plan:#?}");
            world.carry_out_but(&plan, |_, _| true);
        }
        world.step();
        let started = world.step();
        assert_eq!(placed(&started), ["job_small"]);
        assert_eq!(world.has("job_large"), 1);
    }
}

/// Two queues that each have a half and gangs of a half: nobody takes back what was taken.
#[test]
fn i14_gangs_do_not_take_from_each_other_in_turns() {
    let mut world = halves();
    world.part("job_b", ("root.b", "b"), (8, VCORE));
    world.part("job_a", ("root.a", "a"), (4, 2 * VCORE));
    let mut taken = 0;
    for _ in 0..60 {
        taken += world.step().receipts.len();
        world.pass(20_000);
    }
    assert_eq!(taken, 8);
    assert_eq!(world.has("job_b"), 8);
}
