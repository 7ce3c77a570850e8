//! What the check says of plans that no honest planner makes: it knows queues by itself.

use hayward_rm_scheduler_domain::{Fault, Plan, check};
use serde_json::json;

use super::VCORE;
use crate::world::World;

/// Three processes in a queue of four, of which one user may have three.
fn world() -> World {
    let limits = json!([{"users": ["*"], "max_resources": {"vcore": 3}}]);
    let leaf = json!({"resources": {"max": {"vcore": 4}}, "limits": limits});
    let parent = json!({"queues": {"a": leaf, "b": {}}});
    let root = json!({"submit_acl": "*", "queues": {"p": parent}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 100 * VCORE)]);
    world.asks("job_1", "root.p.a", (3, VCORE));
    world
}

fn faults(world: &World, plan: &Plan) -> Vec<Fault> {
    let violations = check(&world.snapshot, plan).err().unwrap_or_default();
    violations.into_iter().map(|it| it.fault).collect()
}

#[test]
fn a_grant_goes_to_a_leaf_that_is_there() {
    let world = world();
    let with = |class: &str| {
        let mut plan = world.plan();
        plan.grants.truncate(1);
        plan.grants[0].class = class.to_owned();
        faults(&world, &plan)
    };
    for wrong in ["root", "root.p", "root.p.a.c", "elsewhere.p.a", "normal"] {
        assert_eq!(with(wrong), [Fault::WrongClass(wrong.to_owned())]);
    }
    // One may be made below a queue that is no leaf.
    assert_eq!(with("root.p.made"), []);
}

#[test]
fn nobody_gets_more_than_a_maximum() {
    let mut world = world();
    let mut plan = world.plan();
    world.asks("job_1", "root.p.a", (9, VCORE));
    world
        .snapshot
        .demand
        .get_mut("job_1")
        .unwrap()
        .max_processes = 9;
    let over = |would_hold: u64, limit: u64| Fault::OverQuota {
        queue: "root.p.a".to_owned(),
        resource: "vcore".to_owned(),
        would_hold: would_hold * VCORE,
        limit: limit * VCORE,
    };
    // One user.
    plan.grants.push(plan.grants[0].clone());
    assert_eq!(faults(&world, &plan), [over(4, 3)]);
    // The whole queue, whoever asks.
    let queues = world.snapshot.queues.values_mut().next().unwrap();
    let parent = queues.root.children.get_mut("p").unwrap();
    parent.children.get_mut("a").unwrap().limits.clear();
    assert_eq!(faults(&world, &plan), []);
    plan.grants.push(plan.grants[0].clone());
    assert_eq!(faults(&world, &plan), [over(5, 4)]);
}

#[test]
fn what_is_queued_stays_in_its_pool_and_may_be_taken_back() {
    let mut world = world();
    let plan = world.plan();
    let mut fixed = plan.clone();
    fixed.grants.truncate(1);
    fixed.grants[0].fixed = true;
    assert!(matches!(
        faults(&world, &fixed)[..],
        [Fault::Misdescribed(_)]
    ));
    world.snapshot.queues.clear();
    assert!(matches!(
        faults(&world, &plan)[..],
        [Fault::OutsidePools { .. }, ..]
    ));
}
