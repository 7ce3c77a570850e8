//! A gang beside plain work in one pool (17.1): both are asks of the queue, and which of them
//! yields to which follows from priority, order and guarantees as for any two.

use hayward_rm_scheduler_domain::Reason;
use serde_json::json;

use super::VCORE;
use crate::world::{World, queued};

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

/// What is taken one by one would stand idle until the last of them is there; so a gang waits until
/// there is room, and takes from nobody, whatever its queue is guaranteed.
#[test]
fn a_gang_takes_from_nobody_and_starts_whole_when_there_is_room() {
    let queue = json!({"resources": {"guaranteed": {"vcore": 2}}, "preemption_delay_ms": 1_000});
    let root = json!({"submit_acl": "*", "queues": {"a": queue, "b": queue}});
    let mut world = world(&root);
    world.asks("job_plain", "root.b", (4, VCORE));
    world.settle();
    world.part("job_gang", ("root.a", "gang"), (2, VCORE));
    world.pass(60_000);
    world.settle();
    assert_eq!((world.has("job_gang"), world.has("job_plain")), (0, 4));
    for left in [3, 2] {
        let plain = world.snapshot.demand.get_mut("job_plain").unwrap();
        plain.max_processes = left;
        world.settle();
        let gang = if left == 2 { 2 } else { 0 };
        let has = (world.has("job_gang"), world.has("job_plain") as u64);
        assert_eq!(has, (gang, left));
    }
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
    let told = "queue root.a may have 4: 3 of them would fit";
    assert!(verdict.detail.contains(told), "{}", verdict.detail);
    assert_eq!(verdict.unblock, None);
    // A cluster that is too small today may grow.
    let mut world = self::world(&json!({"submit_acl": "*", "queues": {"a": {}}}));
    world.part("job_workers", ("root.a", "gang"), (5, VCORE));
    let plan = world.step();
    assert!(!plan.verdicts["job_workers"].refused);
}
