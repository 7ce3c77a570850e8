//! Scenarios of the limits of queues, users and groups.

use hayward_rm_scheduler_domain::{Fault, Reason, check};
use serde_json::{Value, json};

use super::VCORE;
use crate::fixture::{Fixture, granted_works, queued_mut};

/// Creates a pool with this configuration of the queue `a`, and one node of 100 vcores.
fn fixture(leaf: &Value) -> Fixture {
    let root = json!({"submit_acl": "*", "queues": {"a": leaf}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 100 * VCORE)]);
    fixture
}

#[test]
fn the_number_of_running_applications_is_limited() {
    let mut fixture = fixture(&json!({"max_applications": 1}));
    fixture.add_processes("job_1", "root.a", 2, VCORE);
    fixture.add_processes("job_2", "root.a", 1, VCORE);
    let plan = fixture.step();
    assert_eq!(granted_works(&plan), ["job_1", "job_1"]);
    let verdict = &plan.verdicts["job_2"];
    assert_eq!(verdict.reason, Reason::NotRunnable);
    assert_eq!(verdict.detail, "1 of 1 applications run in queue root.a");
    // The running application may grow. The other one runs after it ends.
    fixture
        .snapshot
        .demand
        .get_mut("job_1")
        .unwrap()
        .max_processes = 3;
    assert_eq!(granted_works(&fixture.step()), ["job_1"]);
    fixture.snapshot.demand.remove("job_1");
    fixture.settle();
    assert_eq!(fixture.count_running("job_2"), 1);
}

#[test]
fn a_user_without_access_is_refused_with_a_reason() {
    let leaf = json!({"submit_acl": "bob dev", "queues": {"b": {}}});
    let root = json!({"queues": {"a": leaf}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 100 * VCORE)]);
    fixture.add_processes("job_ann", "root.a.b", 1, VCORE);
    queued_mut(fixture.add_processes("job_dev", "root.a.b", 1, VCORE)).groups =
        vec!["dev".to_owned()];
    fixture.add_processes("job_bob", "root.a.b", 1, VCORE).user = "bob".parse().unwrap();
    let plan = fixture.step();
    assert_eq!(granted_works(&plan), ["job_dev", "job_bob"]);
    let verdict = &plan.verdicts["job_ann"];
    assert_eq!(
        (verdict.reason, verdict.refused),
        (Reason::NotAuthorised, true)
    );
}

#[test]
fn a_named_user_goes_before_the_wildcard() {
    let limits = json!([
        {"users": ["bob"], "max_resources": {"vcore": 3}},
        {"users": ["*"], "max_resources": {"vcore": 1}},
    ]);
    let mut fixture = fixture(&json!({"limits": limits}));
    for (id, user) in [("job_ann", "ann"), ("job_bob", "bob"), ("job_cyd", "cyd")] {
        fixture.add_processes(id, "root.a", 9, VCORE).user = user.parse().unwrap();
    }
    let plan = fixture.step();
    let counts = ["job_ann", "job_bob", "job_cyd"].map(|id| fixture.count_running(id));
    assert_eq!(counts, [1, 3, 1]);
    let verdict = &plan.verdicts["job_ann"];
    assert_eq!(verdict.reason, Reason::UserQuota);
    let detail = "user ann holds 1 of 1 vcore, and 1 more are needed in queue root.a";
    assert_eq!(verdict.detail, detail);
}

#[test]
fn a_group_shares_its_limit() {
    let limits = json!([
        {"groups": ["dev"], "max_resources": {"vcore": 3}},
        {"groups": ["*"], "max_resources": {"vcore": 2}},
    ]);
    let mut fixture = fixture(&json!({"limits": limits}));
    let users = [
        ("ann", "dev"),
        ("bob", "dev"),
        ("cyd", "ops"),
        ("dan", "hr"),
    ];
    for (user, group) in users {
        let demand = fixture.add_processes(&format!("job_{user}"), "root.a", 9, VCORE);
        demand.user = user.parse().unwrap();
        queued_mut(demand).groups = vec![group.to_owned()];
    }
    fixture.settle();
    let count = |user: &str| fixture.count_running(&format!("job_{user}"));
    assert_eq!(count("ann") + count("bob"), 3);
    assert_eq!(count("cyd") + count("dan"), 2);
}

#[test]
fn the_applications_of_a_user_are_limited() {
    let limits = json!([{"users": ["*"], "max_applications": 1}]);
    let mut fixture = fixture(&json!({"limits": limits}));
    for id in ["job_1", "job_2"] {
        fixture.add_processes(id, "root.a", 1, VCORE);
    }
    fixture.add_processes("job_3", "root.a", 1, VCORE).user = "bob".parse().unwrap();
    let plan = fixture.step();
    assert_eq!(granted_works(&plan), ["job_1", "job_3"]);
    let detail = "1 of 1 applications run in queue root.a for user ann";
    assert_eq!(plan.verdicts["job_2"].detail, detail);
}

#[test]
fn a_created_queue_uses_the_template_and_tags() {
    let tenants = json!({"parent": true,
        "child_template": {"resources": {"max": {"vcore": 2}}, "max_applications": 5}});
    let by_tag = json!([{"rule": "tag", "value": "namespace", "create": true,
        "parent": {"rule": "fixed", "value": "tenants"}}]);
    let root = json!({"submit_acl": "*", "queues": {"tenants": tenants}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}, "placement": by_tag}));
    fixture.add_node("n1", &[("vcore", 100 * VCORE)]);
    for (id, quota) in [("job_plain", None), ("job_tagged", Some(r#"{"vcore": 3}"#))] {
        let demand = fixture.add_processes(id, "", 9, VCORE);
        let tags = &mut queued_mut(demand).tags;
        tags.insert("namespace".to_owned(), id.to_owned());
        if let Some(quota) = quota {
            tags.insert("namespace.resourcequota".to_owned(), quota.to_owned());
        }
    }
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_plain"),
            fixture.count_running("job_tagged")
        ),
        (2, 3)
    );
    let created = fixture.queue("root.tenants.job_plain");
    assert_eq!(
        (created.configured, created.max_applications),
        (false, Some(5))
    );
    // An empty created queue disappears.
    fixture.snapshot.demand.clear();
    fixture.settle();
    assert_eq!(
        crate::queue_views(&fixture.snapshot, crate::fixture::POOL).len(),
        2
    );
}

#[test]
fn a_draining_queue_takes_no_new_application() {
    let mut fixture = fixture(&json!({}));
    fixture.add_processes("job_1", "root.a", 1, VCORE);
    fixture.settle();
    let queues = fixture.snapshot.queues.values_mut().next().unwrap();
    queues.root.children.get_mut("a").unwrap().draining = true;
    fixture
        .snapshot
        .demand
        .get_mut("job_1")
        .unwrap()
        .max_processes = 2;
    fixture.add_processes("job_2", "root.a", 1, VCORE);
    let plan = fixture.step();
    assert_eq!(granted_works(&plan), ["job_1"]);
    assert!(plan.verdicts["job_2"].detail.contains("draining"));
}

#[test]
fn withdrawn_work_counts_for_its_group_until_it_has_left() {
    let limits = json!([
        {"groups": ["dev"], "max_resources": {"vcore": 3}},
        {"groups": ["*"], "max_resources": {"vcore": 2}},
    ]);
    let mut fixture = fixture(&json!({"limits": limits}));
    queued_mut(fixture.add_processes("job_old", "root.a", 9, VCORE)).groups =
        vec!["dev".to_owned()];
    assert_eq!(granted_works(&fixture.step()), ["job_old"; 3]);
    fixture.snapshot.demand.remove("job_old");
    queued_mut(fixture.add_processes("job_new", "root.a", 9, VCORE)).groups =
        vec!["dev".to_owned()];
    fixture.add_processes("job_bob", "root.a", 9, VCORE).user = "bob".parse().unwrap();
    // The containers of the withdrawn work still stop, in this round and the next.
    let plan = fixture.plan();
    assert_eq!(plan.vacates.len(), 3);
    assert_eq!(
        granted_works(&plan),
        ["job_bob"; 2],
        "a user without a group is not limited"
    );
    let verdict = &plan.verdicts["job_new"];
    assert_eq!(verdict.reason, Reason::UserQuota);
    assert!(verdict.detail.contains("group dev"), "{}", verdict.detail);
    for vacate in &plan.vacates {
        let allocation = fixture.snapshot.allocations.get_mut(&vacate.allocation);
        allocation.unwrap().leaving = true;
    }
    assert_eq!(fixture.plan().grants.len(), 2);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_new"),
            fixture.count_running("job_bob")
        ),
        (3, 2)
    );
}

#[test]
fn the_selected_group_stays_while_a_limit_names_it() {
    let limit = |groups: &[&str]| json!({"groups": groups, "max_resources": {"vcore": 2}});
    let document = |limits: &Value| {
        let leaf = json!({"limits": limits});
        let root = json!({"submit_acl": "*", "queues": {"a": leaf}});
        json!({"queues": {"root": root}})
    };
    let mut fixture = fixture(&json!({"limits": [limit(&["ops"]), limit(&["dev"])]}));
    let groups = vec!["dev".to_owned(), "ops".to_owned()];
    queued_mut(fixture.add_processes("job_ann", "root.a", 1, VCORE)).groups = groups;
    let group = |fixture: &Fixture| {
        let mut allocations = fixture.snapshot.allocations.values();
        allocations.next_back().unwrap().group.clone()
    };
    fixture.step();
    assert_eq!(group(&fixture).as_deref(), Some("ops"));
    let set_processes = |fixture: &mut Fixture, processes| {
        let demand = fixture.snapshot.demand.get_mut("job_ann").unwrap();
        demand.max_processes = processes;
        fixture.step();
    };
    fixture.configure(&document(&json!([limit(&["dev"]), limit(&["ops"])])));
    set_processes(&mut fixture, 2);
    assert_eq!(
        group(&fixture).as_deref(),
        Some("ops"),
        "the group of the running processes stays in force"
    );
    fixture.configure(&document(&json!([limit(&["dev"])])));
    set_processes(&mut fixture, 3);
    assert_eq!(
        fixture.count_running("job_ann"),
        2,
        "the processes now count for the group dev, whose limit is 2"
    );
}

#[test]
fn the_check_refuses_a_plan_over_the_limit_of_a_group() {
    let limits = json!([{"groups": ["dev"], "max_resources": {"vcore": 2}}]);
    let mut fixture = fixture(&json!({"limits": limits}));
    for id in ["job_ann", "job_bob"] {
        let demand = fixture.add_processes(id, "root.a", 1, VCORE);
        demand.user = id[4..].parse().unwrap();
        queued_mut(demand).groups = vec!["dev".to_owned()];
    }
    assert_eq!(granted_works(&fixture.step()).len(), 2);
    fixture.add_processes("job_cyd", "root.a", 1, VCORE).user = "cyd".parse().unwrap();
    let mut plan = fixture.plan();
    assert_eq!(granted_works(&plan), ["job_cyd"]);
    plan.grants[0].group = Some("dev".to_owned());
    let violations = check(&fixture.snapshot, &plan).unwrap_err();
    let is_over_quota = |fault: &Fault| {
        matches!(
            fault,
            Fault::OverQuota {
                would_hold: 3_000,
                ..
            }
        )
    };
    assert!(
        violations.iter().any(|it| is_over_quota(&it.fault)),
        "{violations:#?}"
    );
}
