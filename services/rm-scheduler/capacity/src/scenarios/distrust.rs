//! What the check says of plans that no honest planner makes: it knows queues by itself.

use hayward_rm_scheduler_domain::{
    Fault, Plan, check,
    gangs::{MOST_AT_ONCE, Members, cut},
};
use serde_json::json;

use super::VCORE;
use crate::fixture::{World, placed};

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
        plan.grants[0].class = class.into();
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

/// Two of a plain job, three of a gang in two parts, one of another gang, and one more.
fn with_gangs() -> (World, Plan) {
    let root = json!({"submit_acl": "*", "queues": {"a": {}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 100 * VCORE)]);
    world.asks("job_1", "root.a", (2, VCORE));
    world.part("job_2", ("root.a", "one"), (2, VCORE));
    world.part("job_3", ("root.a", "one"), (1, VCORE));
    world.part("job_4", ("root.a", "two"), (1, VCORE));
    world.asks("job_5", "root.a", (1, VCORE));
    let plan = world.plan();
    let order = [
        "job_1", "job_1", "job_2", "job_2", "job_3", "job_4", "job_5",
    ];
    assert_eq!(placed(&plan), order);
    (world, plan)
}

#[test]
fn i13_what_is_left_of_a_gang_of_which_something_is_dropped_is_dropped_too() {
    let (world, plan) = with_gangs();
    let planned = Members::of(&world.snapshot, &plan.grants);
    let without = |at: usize| {
        let mut plan = plan.clone();
        plan.grants.remove(at);
        let torn = planned.drop_torn(&world.snapshot, &mut plan.grants);
        (torn, placed(&plan).join(" "))
    };
    assert_eq!(
        without(0),
        (false, "job_1 job_2 job_2 job_3 job_4 job_5".to_owned())
    );
    for at in 2..5 {
        assert_eq!(without(at), (true, "job_1 job_1 job_4 job_5".to_owned()));
    }
    assert_eq!(
        without(5),
        (false, "job_1 job_1 job_2 job_2 job_3 job_5".to_owned())
    );
}

#[test]
fn i13_what_is_too_much_for_one_commit_is_cut_between_gangs() {
    let (world, plan) = with_gangs();
    for (most, left, cuts) in [
        (7, 7, false),
        (6, 6, true),
        (5, 5, true),
        (4, 2, true),
        (2, 2, true),
    ] {
        let mut grants = plan.grants.clone();
        assert_eq!(cut(&world.snapshot, &mut grants, most), cuts);
        assert_eq!(grants, plan.grants[..left]);
    }
}

#[test]
fn a_gang_larger_than_one_commit_is_refused() {
    let (mut world, _) = with_gangs();
    let most = MOST_AT_ONCE as u64;
    world.part("job_most", ("root.a", "most"), (most, 1));
    world.part("job_more", ("root.a", "more"), (most, 1));
    world.part("job_more_2", ("root.a", "more"), (1, 1));
    let plan = world.plan();
    for (id, refused) in [
        ("job_most", false),
        ("job_more", true),
        ("job_more_2", true),
    ] {
        let verdict = &plan.verdicts[id];
        assert_eq!(verdict.refused, refused, "{id}: {verdict:?}");
    }
    let told = &plan.verdicts["job_more"].detail;
    assert!(told.contains("10001 processes of its gang more"), "{told}");
}
