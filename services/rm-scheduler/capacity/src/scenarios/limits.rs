//! Who may run how much: 7.2 to 7.5.

use hayward_rm_scheduler_domain::{Fault, Reason, check};
use serde_json::{Value, json};

use super::VCORE;
use crate::fixture::{World, placed, queued};

fn world(leaf: &Value) -> World {
    let root = json!({"submit_acl": "*", "queues": {"a": leaf}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 100 * VCORE)]);
    world
}

#[test]
fn s7_2_only_so_many_applications_run() {
    let mut world = world(&json!({"max_applications": 1}));
    world.asks("job_1", "root.a", (2, VCORE));
    world.asks("job_2", "root.a", (1, VCORE));
    let plan = world.step();
    assert_eq!(placed(&plan), ["job_1", "job_1"]);
    let verdict = &plan.verdicts["job_2"];
    assert_eq!(verdict.reason, Reason::NotRunnable);
    assert_eq!(verdict.detail, "1 of 1 applications run in queue root.a");
    // What runs may grow; the other runs once the first is over.
    world
        .snapshot
        .demand
        .get_mut("job_1")
        .unwrap()
        .max_processes = 3;
    assert_eq!(placed(&world.step()), ["job_1"]);
    world.snapshot.demand.remove("job_1");
    world.settle();
    assert_eq!(world.has("job_2"), 1);
}

#[test]
fn s7_3_who_may_not_submit_is_told_so() {
    let leaf = json!({"submit_acl": "bob dev", "queues": {"b": {}}});
    let root = json!({"queues": {"a": leaf}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 100 * VCORE)]);
    world.asks("job_ann", "root.a.b", (1, VCORE));
    queued(world.asks("job_dev", "root.a.b", (1, VCORE))).groups = vec!["dev".to_owned()];
    world.asks("job_bob", "root.a.b", (1, VCORE)).user = "bob".parse().unwrap();
    let plan = world.step();
    assert_eq!(placed(&plan), ["job_dev", "job_bob"]);
    let verdict = &plan.verdicts["job_ann"];
    assert_eq!(
        (verdict.reason, verdict.refused),
        (Reason::NotAuthorised, true)
    );
}

#[test]
fn s7_4_a_named_user_beats_everybody() {
    let limits = json!([
        {"users": ["bob"], "max_resources": {"vcore": 3}},
        {"users": ["*"], "max_resources": {"vcore": 1}},
    ]);
    let mut world = world(&json!({"limits": limits}));
    for (id, user) in [("job_ann", "ann"), ("job_bob", "bob"), ("job_cyd", "cyd")] {
        world.asks(id, "root.a", (9, VCORE)).user = user.parse().unwrap();
    }
    let plan = world.step();
    let has = ["job_ann", "job_bob", "job_cyd"].map(|id| world.has(id));
    assert_eq!(has, [1, 3, 1]);
    let verdict = &plan.verdicts["job_ann"];
    assert_eq!(verdict.reason, Reason::UserQuota);
    let detail = "user ann holds 1 of 1 vcore, and 1 more are needed in queue root.a";
    assert_eq!(verdict.detail, detail);
}

#[test]
fn s7_4_a_group_shares_its_limit() {
    let limits = json!([
        {"groups": ["dev"], "max_resources": {"vcore": 3}},
        {"groups": ["*"], "max_resources": {"vcore": 2}},
    ]);
    let mut world = world(&json!({"limits": limits}));
    let people = [
        ("ann", "dev"),
        ("bob", "dev"),
        ("cyd", "ops"),
        ("dan", "hr"),
    ];
    for (user, group) in people {
        let demand = world.asks(&format!("job_{user}"), "root.a", (9, VCORE));
        demand.user = user.parse().unwrap();
        queued(demand).groups = vec![group.to_owned()];
    }
    world.settle();
    let has = |user: &str| world.has(&format!("job_{user}"));
    assert_eq!(has("ann") + has("bob"), 3);
    assert_eq!(has("cyd") + has("dan"), 2);
}

#[test]
fn s7_4_a_user_has_so_many_applications() {
    let limits = json!([{"users": ["*"], "max_applications": 1}]);
    let mut world = world(&json!({"limits": limits}));
    for id in ["job_1", "job_2"] {
        world.asks(id, "root.a", (1, VCORE));
    }
    world.asks("job_3", "root.a", (1, VCORE)).user = "bob".parse().unwrap();
    let plan = world.step();
    assert_eq!(placed(&plan), ["job_1", "job_3"]);
    let detail = "1 of 1 applications run in queue root.a for user ann";
    assert_eq!(plan.verdicts["job_2"].detail, detail);
}

#[test]
fn s7_5_a_queue_that_is_made_takes_template_and_tags() {
    let tenants = json!({"parent": true,
        "child_template": {"resources": {"max": {"vcore": 2}}, "max_applications": 5}});
    let by_tag = json!([{"rule": "tag", "value": "namespace", "create": true,
        "parent": {"rule": "fixed", "value": "tenants"}}]);
    let root = json!({"submit_acl": "*", "queues": {"tenants": tenants}});
    let mut world = World::of(&json!({"queues": {"root": root}, "placement": by_tag}));
    world.node("n1", &[("vcore", 100 * VCORE)]);
    for (id, quota) in [("job_plain", None), ("job_tagged", Some(r#"{"vcore": 3}"#))] {
        let demand = world.asks(id, "", (9, VCORE));
        let tags = &mut queued(demand).tags;
        tags.insert("namespace".to_owned(), id.to_owned());
        if let Some(quota) = quota {
            tags.insert("namespace.resourcequota".to_owned(), quota.to_owned());
        }
    }
    world.settle();
    assert_eq!((world.has("job_plain"), world.has("job_tagged")), (2, 3));
    let made = world.queue("root.tenants.job_plain");
    assert_eq!((made.configured, made.max_applications), (false, Some(5)));
    // Nobody is in it any more: it is gone.
    world.snapshot.demand.clear();
    world.settle();
    assert_eq!(crate::view(&world.snapshot, crate::fixture::POOL).len(), 2);
}

#[test]
fn s7_a_draining_queue_takes_nothing_new() {
    let mut world = world(&json!({}));
    world.asks("job_1", "root.a", (1, VCORE));
    world.settle();
    let queues = world.snapshot.queues.values_mut().next().unwrap();
    queues.root.children.get_mut("a").unwrap().draining = true;
    world
        .snapshot
        .demand
        .get_mut("job_1")
        .unwrap()
        .max_processes = 2;
    world.asks("job_2", "root.a", (1, VCORE));
    let plan = world.step();
    assert_eq!(placed(&plan), ["job_1"]);
    assert!(plan.verdicts["job_2"].detail.contains("draining"));
}

#[test]
fn s7_4_what_is_withdrawn_takes_up_the_room_of_its_group_until_it_is_gone() {
    let limits = json!([
        {"groups": ["dev"], "max_resources": {"vcore": 3}},
        {"groups": ["*"], "max_resources": {"vcore": 2}},
    ]);
    let mut world = world(&json!({"limits": limits}));
    queued(world.asks("job_old", "root.a", (9, VCORE))).groups = vec!["dev".to_owned()];
    assert_eq!(placed(&world.step()), ["job_old"; 3]);
    world.snapshot.demand.remove("job_old");
    queued(world.asks("job_new", "root.a", (9, VCORE))).groups = vec!["dev".to_owned()];
    world.asks("job_bob", "root.a", (9, VCORE)).user = "bob".parse().unwrap();
    // Its containers still stop, in this round and the next.
    let plan = world.plan();
    assert_eq!(plan.vacates.len(), 3);
    assert_eq!(
        placed(&plan),
        ["job_bob"; 2],
        "who is in no group pays nothing"
    );
    let verdict = &plan.verdicts["job_new"];
    assert_eq!(verdict.reason, Reason::UserQuota);
    assert!(verdict.detail.contains("group dev"), "{}", verdict.detail);
    for vacate in &plan.vacates {
        let held = world.snapshot.allocations.get_mut(&vacate.allocation);
        held.unwrap().leaving = true;
    }
    assert_eq!(world.plan().grants.len(), 2);
    world.settle();
    assert_eq!((world.has("job_new"), world.has("job_bob")), (3, 2));
}

#[test]
fn s7_4_the_group_that_was_chosen_is_kept_while_a_limit_names_it() {
    let limit = |groups: &[&str]| json!({"groups": groups, "max_resources": {"vcore": 2}});
    let document = |limits: &Value| {
        let leaf = json!({"limits": limits});
        let root = json!({"submit_acl": "*", "queues": {"a": leaf}});
        json!({"queues": {"root": root}})
    };
    let mut world = world(&json!({"limits": [limit(&["ops"]), limit(&["dev"])]}));
    let both = vec!["dev".to_owned(), "ops".to_owned()];
    queued(world.asks("job_ann", "root.a", (1, VCORE))).groups = both;
    let group = |world: &World| {
        let mut held = world.snapshot.allocations.values();
        held.next_back().unwrap().group.clone()
    };
    world.step();
    assert_eq!(group(&world).as_deref(), Some("ops"));
    let more = |world: &mut World, processes| {
        let demand = world.snapshot.demand.get_mut("job_ann").unwrap();
        demand.max_processes = processes;
        world.step();
    };
    world.configure(&document(&json!([limit(&["dev"]), limit(&["ops"])])));
    more(&mut world, 2);
    assert_eq!(group(&world).as_deref(), Some("ops"), "kept");
    world.configure(&document(&json!([limit(&["dev"])])));
    more(&mut world, 3);
    assert_eq!(world.has("job_ann"), 2, "all of it is the room of dev now");
}

#[test]
fn s7_4_a_plan_over_the_limit_of_a_group_does_not_pass_its_check() {
    let limits = json!([{"groups": ["dev"], "max_resources": {"vcore": 2}}]);
    let mut world = world(&json!({"limits": limits}));
    for id in ["job_ann", "job_bob"] {
        let demand = world.asks(id, "root.a", (1, VCORE));
        demand.user = id[4..].parse().unwrap();
        queued(demand).groups = vec!["dev".to_owned()];
    }
    assert_eq!(placed(&world.step()).len(), 2);
    world.asks("job_cyd", "root.a", (1, VCORE)).user = "cyd".parse().unwrap();
    let mut plan = world.plan();
    assert_eq!(placed(&plan), ["job_cyd"]);
    plan.grants[0].group = Some("dev".to_owned());
    let violations = check(&world.snapshot, &plan).unwrap_err();
    let over = |fault: &Fault| {
        matches!(
            fault,
            Fault::OverQuota {
                would_hold: 3_000,
                ..
            }
        )
    };
    assert!(
        violations.iter().any(|it| over(&it.fault)),
        "{violations:#?}"
    );
}
