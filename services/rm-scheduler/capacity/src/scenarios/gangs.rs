//! A gang beside plain work in one pool (17.1): both are asks of the queue, and which of them
//! yields to which follows from priority, order and guarantees as for any two.

mod preemption;

use hayward_rm_scheduler_domain::Reason;
use serde_json::json;

use super::VCORE;
use crate::fixture::{POOL, World, node_name, queued};

fn world(root: &serde_json::Value) -> World {
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 4 * VCORE)]);
    world
}

#[test]
fn the_one_with_the_higher_priority_goes_first() {
    for (priority, gang, plain) in [(5, 3, 1), (-5, 0, 4)] {
        let mut world = world(&json!({"submit_acl": "*", "queues": {"a": {}}}));
        world.asks("job_plain", "root.a", (4, VCORE));
        world.part("job_gang", ("root.a", "gang"), (3, VCORE));
        let demand = world.snapshot.demand.get_mut("job_gang").unwrap();
        queued(demand).priority = priority;
        world.settle();
        let has = (world.has("job_gang"), world.has("job_plain"));
        assert_eq!(has, (gang, plain), "priority {priority}");
    }
}

/// 5.2: also one that is asked for one by one, which is where a half would wait behind others.
#[test]
fn a_gang_is_refused_in_a_queue_that_serves_by_shares() {
    let queues = json!({"a": {"sort": "fair"}, "b": {}});
    for (queue, least, refused) in [
        ("root.a", 3, true),
        ("root.a", 0, true),
        ("root.b", 0, false),
    ] {
        let mut world = world(&json!({"submit_acl": "*", "queues": queues}));
        world.part("job_gang", (queue, "gang"), (3, VCORE));
        let demand = world.snapshot.demand.get_mut("job_gang").unwrap();
        queued(demand).gang.as_mut().unwrap().min = least;
        world.asks("job_plain", queue, (1, VCORE));
        let plan = world.step();
        let verdict = &plan.verdicts["job_gang"];
        assert_eq!(verdict.refused, refused, "{}", verdict.detail);
        let reason = verdict.reason == Reason::PolicyMismatch;
        assert_eq!(reason, refused, "{}", verdict.detail);
        assert_eq!(world.has("job_plain"), 1, "others are served there");
    }
}

/// One by one it holds what it gets, as plain work does.
#[test]
fn a_gang_without_a_least_number_takes_what_fits() {
    let mut world = world(&json!({"submit_acl": "*", "queues": {"a": {}}}));
    world.part("job_gang", ("root.a", "gang"), (6, VCORE));
    let demand = world.snapshot.demand.get_mut("job_gang").unwrap();
    queued(demand).gang.as_mut().unwrap().min = 0;
    world.settle();
    assert_eq!(world.has("job_gang"), 4);
    let verdict = &world.plan().verdicts["job_gang"];
    assert_eq!(
        verdict.reason,
        Reason::ResourcesExhausted,
        "{}",
        verdict.detail
    );
}

#[test]
fn of_equals_the_older_goes_first_and_room_the_gang_cannot_use_is_used() {
    let mut world = world(&json!({"submit_acl": "*", "queues": {"a": {}}}));
    world.part("job_gang", ("root.a", "gang"), (6, VCORE));
    world.pass(1_000);
    world.asks("job_plain", "root.a", (2, VCORE));
    world.settle();
    assert_eq!((world.has("job_gang"), world.has("job_plain")), (0, 2));
    let verdict = &world.plan().verdicts["job_gang"];
    assert_eq!(verdict.reason, Reason::GangIncomplete);
    world.node("n2", &[("vcore", 4 * VCORE)]);
    world.settle();
    assert_eq!((world.has("job_gang"), world.has("job_plain")), (6, 2));
}

/// Plain work that has all of these nodes, and takes every hole again.
fn stream(nodes: &[u64], root: &serde_json::Value) -> World {
    let mut world = World::of(&json!({"queues": {"root": root}}));
    for (at, vcore) in nodes.iter().enumerate() {
        world.node(&format!("n{at}"), &[("vcore", vcore * VCORE)]);
    }
    world.asks("job_plain", "root.a", (nodes.iter().sum(), VCORE));
    world.settle();
    world
}

fn open() -> serde_json::Value {
    json!({"submit_acl": "*", "queues": {"a": {}, "b": {}}})
}

/// Rounds in which so many of the plain processes end, until the gang has all of its members.
fn rounds_until(world: &mut World, (gang, members): (&str, usize), ending: usize) -> usize {
    for round in 0..100 {
        if world.has(gang) == members {
            return round;
        }
        assert_eq!(world.has(gang), 0, "a gang was torn");
        world.end("job_plain", ending);
        world.step();
    }
    panic!("the gang never starts");
}

/// I23: without room kept for it, the gang would never see two free vcores on one node.
#[test]
fn s9_3_a_gang_gets_in_behind_plain_work_that_takes_every_hole() {
    for queue in ["root.a", "root.b"] {
        let mut world = stream(&[4, 4, 4, 4], &open());
        let plain = world.snapshot.demand.get_mut("job_plain").unwrap();
        plain.max_processes = 20_000;
        world.part("job_gang", (queue, "gang"), (4, 2 * VCORE));
        let rounds = rounds_until(&mut world, ("job_gang", 4), 1);
        assert!(rounds <= 24, "{queue}: {rounds} rounds");
        assert!(world.room().is_empty());
        // What the gang does not need is used all the time.
        assert_eq!(world.has("job_plain"), 8);
    }
}

/// Half of all nodes and more: a bound of a tenth would keep it out for ever.
#[test]
fn s9_3_a_gang_that_needs_every_node_gets_every_node() {
    let mut world = stream(&[4; 12], &open());
    world.part("job_gang", ("root.b", "gang"), (12, 4 * VCORE));
    let rounds = rounds_until(&mut world, ("job_gang", 12), 4);
    assert!(rounds <= 20, "{rounds} rounds");
}

#[test]
fn s9_3_only_the_room_it_needs_is_kept_and_what_is_beside_it_is_used() {
    let mut world = stream(&[4, 4], &open());
    world.part("job_gang", ("root.b", "gang"), (3, VCORE));
    world.pass(2_000);
    world.step();
    let kept: u64 = world.room().iter().map(|(_, count)| count).sum();
    assert_eq!(kept, 3);
    world.end("job_plain", 2);
    let plan = world.step();
    assert!(plan.grants.is_empty(), "two of three: {plan:#?}");
    let told = &plan.verdicts["job_plain"];
    assert_eq!(told.reason, Reason::NodesReserved);
    let words = "room on 2 nodes for the gang of work job_gang until ";
    assert!(told.detail.contains(words), "{}", told.detail);
    let told = &plan.verdicts["job_gang"];
    assert_eq!(told.reason, Reason::GangIncomplete);
    for words in [
        "2 of the 3 processes it lacks fit; room for all of it is kept on nodes n0, n1 until ",
        "and what runs there goes on",
    ] {
        assert!(told.detail.contains(words), "{}", told.detail);
    }
    world.end("job_plain", 2);
    world.step();
    assert_eq!((world.has("job_gang"), world.has("job_plain")), (3, 5));
}

#[test]
fn s9_3_room_for_a_gang_has_one_lifetime_wherever_it_is() {
    let mut world = stream(&[4, 4, 4], &open());
    world.part("job_gang", ("root.b", "gang"), (2, 3 * VCORE));
    world.pass(2_000);
    world.step();
    assert_eq!(world.room(), [("n0", 1), ("n1", 1)]);
    // A node of it is closed: other room is found, and time goes on.
    world.pass(200_000);
    world.node("n0", &[]).takes_work = false;
    world.step();
    assert_eq!(world.room(), [("n1", 1), ("n2", 1)]);
    world.end("job_plain", 2);
    world.step();
    // Who ran on the node that was closed does not come back there, nor where room is kept.
    assert_eq!(world.has("job_plain"), 10);
    world.pass(100_000);
    let plan = world.step();
    assert!(world.room().is_empty());
    let told = &plan.verdicts["job_gang"].detail;
    assert!(told.contains("in vain"), "{told}");
    // Not kept again at once for the same gang, and then again.
    world.node("n0", &[]).takes_work = true;
    for (ms, kept) in [(10_000, 0), (200_000, 0), (90_000, 2)] {
        world.pass(ms);
        world.step();
        assert_eq!(world.room().len(), kept, "after {ms}");
    }
}

#[test]
fn s9_3_room_is_kept_for_one_gang_and_others_have_their_turn() {
    let mut world = stream(&[4, 4], &open());
    world.part("job_first", ("root.a", "first"), (2, 4 * VCORE));
    world.pass(500);
    world.part("job_second", ("root.b", "second"), (2, 3 * VCORE));
    world.pass(2_000);
    let plan = world.step();
    let room = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert_eq!(room.work.as_str(), "job_first");
    let told = &plan.verdicts["job_second"].detail;
    assert!(
        told.contains("room is kept for the gang of work job_first"),
        "{told}"
    );
    // It lapses, and the other one has its turn.
    world.pass(300_000);
    let plan = world.step();
    let room = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert_eq!(room.work.as_str(), "job_second");
    let rounds = rounds_until(&mut world, ("job_second", 2), 1);
    assert!(rounds <= 8, "{rounds} rounds");
}

/// Among those of one priority the order is that of waiting; a higher one goes before.
#[test]
fn s9_3_room_is_kept_for_the_highest_priority_first() {
    let mut world = stream(&[4, 4], &open());
    world.part("job_first", ("root.a", "first"), (2, 4 * VCORE));
    world.part("job_urgent", ("root.b", "urgent"), (2, 4 * VCORE));
    let demand = world.snapshot.demand.get_mut("job_urgent").unwrap();
    queued(demand).priority = 1;
    world.pass(2_000);
    let plan = world.step();
    let room = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert_eq!(room.work.as_str(), "job_urgent");
}

/// Neither the sum nor any part alone is too large, and yet no two nodes hold it.
#[test]
fn w19_what_could_never_be_packed_keeps_nothing_and_delays_nobody() {
    let mut world = stream(
        &[3, 3],
        &json!({"submit_acl": "*", "queues": {"a": {}, "b":
        {"resources": {"guaranteed": {"vcore": 6}}}}}),
    );
    world.part("job_one", ("root.b", "never"), (2, 2 * VCORE));
    world.part("job_two", ("root.b", "never"), (1, 2 * VCORE));
    world.pass(500);
    world.part("job_fits", ("root.a", "fits"), (2, 2 * VCORE));
    for _ in 0..5 {
        world.pass(30_000);
        let plan = world.step();
        assert!(plan.receipts.is_empty(), "{plan:#?}");
        let room = plan.carried.queues[POOL].gang.as_ref().unwrap();
        assert_eq!(room.work.as_str(), "job_fits");
    }
}

/// Each part alone fits, and so do all of them by what nodes have in sum.
#[test]
fn w19_parts_that_name_too_few_nodes_are_told_that_they_can_never_start() {
    let named = [
        (
            vec![("job_one", 1, 3 * VCORE), ("job_two", 1, 3 * VCORE)],
            "the nodes that its parts name may have 5",
        ),
        (
            vec![("job_one", 6, VCORE)],
            "the 1 nodes it may use have room for 5",
        ),
    ];
    for (parts, words) in named {
        let mut world = World::of(&json!({"queues": {"root": open()}}));
        for name in ["n1", "n2"] {
            world.node(name, &[("vcore", 5 * VCORE)]);
        }
        for (id, count, vcore) in parts {
            world.part(id, ("root.a", "gang"), (count, vcore));
            let demand = world.snapshot.demand.get_mut(id).unwrap();
            demand.machines = [node_name("n1")].into();
        }
        world.pass(2_000);
        let plan = world.step();
        let told = &plan.verdicts["job_one"].detail;
        assert!(told.contains(words), "{told}");
        assert!(told.contains("can never start"), "{told}");
        assert!(world.room().is_empty());
    }
}

/// What a round costs does not grow with what can never be packed, and all have their turn.
#[test]
fn w19_so_many_gangs_are_looked_at_in_one_round_and_the_next_round_goes_on() {
    let mut world = stream(&[3, 3], &open());
    for at in 0..35 {
        let gang = format!("never{at:02}");
        for (part, count) in [(0, 2), (1, 1)] {
            let id = format!("job_{gang}_{part}");
            world.part(&id, ("root.b", &gang), (count, 2 * VCORE));
        }
    }
    world.pass(500);
    world.part("job_fits", ("root.a", "fits"), (2, 2 * VCORE));
    world.pass(2_000);
    for round in 1..=3 {
        let plan = world.step();
        let kept = &plan.carried.queues[POOL];
        assert!(kept.gang.is_none());
        assert_eq!(kept.passed_over.len(), 10 * round);
    }
    let plan = world.step();
    let kept = &plan.carried.queues[POOL];
    assert_eq!(kept.gang.as_ref().unwrap().work.as_str(), "job_fits");
    // With its end all of them are looked at again, from the first.
    world.snapshot.demand.remove("job_fits");
    for expected in [10, 20, 30, 0, 10] {
        let plan = world.step();
        assert_eq!(plan.carried.queues[POOL].passed_over.len(), expected);
    }
}

/// What its queue holds back has no use for nodes.
#[test]
fn s9_3_who_waits_for_a_quota_keeps_no_nodes() {
    let root = json!({"submit_acl": "*", "queues": {"a": {},
        "b": {"resources": {"max": {"vcore": 3}}}}});
    let mut world = stream(&[4, 4], &root);
    world.end("job_plain", 2);
    world
        .snapshot
        .demand
        .get_mut("job_plain")
        .unwrap()
        .max_processes = 6;
    world.asks("job_b", "root.b", (2, VCORE));
    world.settle();
    world.part("job_gang", ("root.b", "gang"), (3, VCORE));
    world.pass(10_000);
    world.step();
    assert!(world.room().is_empty());
}

/// A large process and a gang that each need a whole node, and work that takes every hole: whoever
/// waited longer has its node first, and neither keeps the other out.
#[test]
fn i23_a_gang_and_a_large_process_do_not_keep_each_other_out() {
    for gang_first in [true, false] {
        let mut world = stream(&[4, 4], &open());
        for gang in [gang_first, !gang_first] {
            if gang {
                world.part("job_gang", ("root.b", "gang"), (2, 4 * VCORE));
            } else {
                world.asks("job_large", "root.b", (1, 4 * VCORE));
            }
            world.pass(100);
        }
        world.pass(2_000);
        let mut started = Vec::new();
        for _ in 0..60 {
            for (id, members) in [("job_gang", 2), ("job_large", 1)] {
                if world.has(id) == members {
                    started.push(id);
                    world.snapshot.demand.remove(id);
                }
            }
            if started.len() == 2 {
                break;
            }
            world.end("job_plain", 1);
            world.step();
        }
        let expected = ["job_gang", "job_large"];
        let expected = if gang_first {
            expected
        } else {
            [expected[1], expected[0]]
        };
        assert_eq!(started, expected);
    }
}

#[test]
fn s10_4_who_may_run_nowhere_else_goes_before_what_is_merely_kept() {
    let mut world = stream(&[4, 4, 4], &open());
    world.part("job_gang", ("root.b", "gang"), (2, 4 * VCORE));
    world.pass(2_000);
    world.step();
    assert_eq!(world.room(), [("n0", 1), ("n1", 1)]);
    let demand = world.asks("job_here", "root.b", (1, VCORE));
    queued(demand).required_node = Some(node_name("n0"));
    let plan = world.step();
    assert_eq!(plan.receipts.len(), 1);
    assert_eq!(world.room(), [("n1", 1), ("n2", 1)]);
    world.settle();
    assert_eq!(world.has("job_here"), 1);
}

#[test]
fn parts_of_gpus_are_not_scattered_over_gpus_that_are_kept() {
    let mut world = World::of(&json!({"queues": {"root": open()}}));
    world.node("n1", &[("vcore", 9 * VCORE), ("gpu", 3_000)]);
    world.ask("job_whole", "root.a", &[("vcore", VCORE), ("gpu", 3_000)]);
    world.settle();
    world.part("job_gang", ("root.b", "gang"), (2, VCORE));
    let demand = world.snapshot.demand.get_mut("job_gang").unwrap();
    demand.size.gpu_milli = 1_000;
    world.pass(2_000);
    world.step();
    assert_eq!(world.room(), [("n1", 2)]);
    let demand = world.ask("job_part", "root.a", &[("vcore", VCORE), ("gpu", 600)]);
    demand.max_processes = 3;
    world.asks("job_cores", "root.a", (1, VCORE));
    world.snapshot.demand.remove("job_whole");
    world.settle();
    assert_eq!((world.has("job_gang"), world.has("job_part")), (2, 1));
    assert_eq!(world.has("job_cores"), 1);
}

#[test]
fn one_that_its_queue_can_never_hold_is_told_so_with_what_would_fit() {
    let limited = json!({"resources": {"max": {"vcore": 4}}});
    let root = json!({"submit_acl": "*", "queues": {"a": limited}});
    let mut world = world(&root);
    world.part("job_driver", ("root.a", "gang"), (1, 2 * VCORE));
    world.part("job_workers", ("root.a", "gang"), (4, VCORE));
    let plan = world.step();
    let verdict = &plan.verdicts["job_workers"];
    assert_eq!(
        (verdict.reason, verdict.refused),
        (Reason::QueueQuota, true)
    );
    let told = "queue root.a may have 4: 4 of them would fit";
    assert!(verdict.detail.contains(told), "{}", verdict.detail);
    assert_eq!(verdict.unblock, None);
    // A cluster that is too small today may grow.
    let mut world = self::world(&json!({"submit_acl": "*", "queues": {"a": {}}}));
    world.part("job_workers", ("root.a", "gang"), (5, VCORE));
    let plan = world.step();
    assert!(!plan.verdicts["job_workers"].refused);
}
