//! Scenarios of the application protocol about queues, ordering, limits and preemption. The
//! configuration writes one vcore as 1, and sizes count it as 1,000.

mod exact_preemption;
mod gangs;
mod limits;
mod ordering;
mod plan_checks;
mod preemption_rules;
mod waiting_work;

use std::sync::Arc;

use serde_json::json;

use crate::fixture::{Fixture, gang_named, granted_works};

const VCORE: u64 = 1_000;

#[test]
fn a_gang_larger_than_its_queue_does_not_start() {
    let count_started = |max: serde_json::Value| {
        let leaf = json!({"submit_acl": "*", "resources": {"max": max}, "max_applications": 2});
        let mut fixture =
            Fixture::from_queues(&json!({"queues": {"root": {"queues": {"a": leaf}}}}));
        fixture.add_node("n1", &[("vcore", 50 * VCORE), ("second", 200)]);
        fixture.add_gang_part("job_1", "root.a", gang_named("gang", 10), VCORE);
        fixture.step();
        fixture.count_running("job_1")
    };
    assert_eq!(count_started(json!({"vcore": 1})), 0);
    assert_eq!(count_started(json!({"vcore": 100})), 10);
    assert_eq!(count_started(json!({"second": 100})), 10);
}

#[test]
fn headroom_is_the_least_over_all_levels() {
    let root = json!({"submit_acl": "*", "queues": {"parent": {
        "resources": {"max": {"memory": 20, "vcore": 8}},
        "queues": {"leaf1": {}, "leaf2": {}},
    }}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture
        .add_node("n1", &[("vcore", 10 * VCORE)])
        .capacity
        .memory_bytes = 20;
    for leaf in ["leaf1", "leaf2"] {
        let queue = format!("root.parent.{leaf}");
        fixture.add_work(
            &format!("job_{leaf}"),
            &queue,
            &[("memory", 5), ("vcore", 3 * VCORE)],
        );
    }
    fixture.settle();
    let headroom = |path: &str| {
        let headroom = fixture.queue(path).headroom;
        (headroom["memory"], headroom["vcore"] / VCORE)
    };
    assert_eq!(headroom("root"), (10, 4));
    assert_eq!(headroom("root.parent"), (10, 2));
    assert_eq!(headroom("root.parent.leaf1"), (10, 2));
    assert_eq!(headroom("root.parent.leaf2"), (10, 2));
}

#[test]
fn a_queue_gets_no_more_than_its_maximum() {
    let limited = json!({"max": {"memory": "100M", "vcore": 10}});
    let limited_leaf = json!({"submit_acl": "*", "queues": {"parent": {"queues": {
        "leaf": {"resources": limited}}}}});
    let limited_parent = json!({"submit_acl": "*", "queues": {"parent": {"resources": limited,
        "queues": {"leaf": {}}}}});
    for root in [limited_leaf, limited_parent] {
        let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
        fixture.add_node("n1", &[("memory", 150_000_000), ("vcore", 15 * VCORE)]);
        let size = [("memory", 10_000_000), ("vcore", VCORE)];
        fixture
            .add_work("job_1", "root.parent.leaf", &size)
            .max_processes = 12;
        fixture.settle();
        assert_eq!(fixture.count_running("job_1"), 10);
        let pending = &fixture.queue("root.parent.leaf").pending;
        assert_eq!(pending["memory"], 20_000_000);
        // All ten processes end, and two more remain to run.
        fixture.snapshot.allocations.clear();
        fixture
            .snapshot
            .demand
            .values_mut()
            .next()
            .unwrap()
            .max_processes = 2;
        fixture.settle();
        assert_eq!(fixture.count_running("job_1"), 2);
        assert!(fixture.queue("root.parent.leaf").pending.is_empty());
    }
}

#[test]
fn a_restart_restores_the_same_state() {
    let resources = json!({"guaranteed": {"memory": 100, "vcore": 10},
        "max": {"memory": 150, "vcore": 20}});
    let root = json!({"submit_acl": "*", "queues": {"a": {"resources": resources}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    for name in ["n1", "n2"] {
        fixture
            .add_node(name, &[("vcore", 20 * VCORE)])
            .capacity
            .memory_bytes = 100;
    }
    let mut add_item = |id: &str, memory: u64, vcore: u64| {
        let demand = fixture.add_work(
            id,
            "root.a",
            &[("memory", memory), ("vcore", vcore * VCORE)],
        );
        crate::fixture::queued_mut(demand).application = Some("app-1".to_owned());
    };
    for (id, memory, vcore) in [("job_1", 10, 1), ("job_2", 10, 1)] {
        add_item(id, memory, vcore);
    }
    for (id, memory) in [("job_3", 50), ("job_4", 100), ("job_5", 50), ("job_6", 100)] {
        add_item(id, memory, 5);
    }
    fixture.settle();
    let queue = fixture.queue("root.a");
    assert_eq!(
        (queue.used["memory"], queue.used["vcore"]),
        (120, 12 * VCORE)
    );
    assert_eq!(
        (queue.pending["memory"], queue.running_applications),
        (200, 1)
    );
    // After a restart the state is rebuilt from the demand and the allocations.
    fixture.snapshot.carried = hayward_rm_scheduler_domain::snapshot::Carried::default();
    assert!(fixture.plan().is_empty());
    assert_eq!(fixture.queue("root.a"), queue);
}

#[test]
fn the_suffix_g_is_a_power_of_ten() {
    let max = json!({"max": {"memory": "2G", "vcore": 4}});
    let root = json!({"submit_acl": "*", "queues": {"a": {"resources": max}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("memory", 10_000_000_000), ("vcore", 100 * VCORE)]);
    let size = [("memory", 512_000_000), ("vcore", 500)];
    fixture.add_work("job_1", "root.a", &size).max_processes = 5;
    let plan = fixture.step();
    assert_eq!(granted_works(&plan).len(), 3);
    let verdict = &plan.verdicts["job_1"];
    assert_eq!(
        verdict.reason,
        hayward_rm_scheduler_domain::Reason::QueueQuota
    );
    let quota = verdict.numbers.quota.unwrap();
    let numbers = (quota.limit, quota.used, quota.needed);
    assert_eq!(numbers, (2_000_000_000, 1_536_000_000, 512_000_000));
    assert!(
        verdict
            .detail
            .contains("root.a holds 1536 MB of 2 GB memory")
    );
}

/// The score of `n1` is (4 * 500/2000 + 1 * 12000/16000) / 5 = 0.35, and that of `n2` is
/// (4 * 1500/2000 + 1 * 4000/16000) / 5 = 0.65. The policy `fair` takes the lowest score.
#[test]
fn nodes_are_scored_by_weighted_usage() {
    for (policy, expected_node) in [("fair", "n1"), ("binpacking", "n2")] {
        let mut fixture = Fixture::from_queues(&json!({
            "queues": {"root": {"submit_acl": "*", "queues": {"a": {}}}},
            "node_sort": {"policy": policy, "weights": {"vcore": 4, "memory": 1}},
        }));
        for (node, vcore, memory) in [("n1", 500, 12_000), ("n2", 1_500, 4_000)] {
            fixture
                .add_node(node, &[("vcore", 2_000)])
                .capacity
                .memory_bytes = 16_000;
            let id = format!("job_{node}");
            let demand = fixture.add_work(&id, "root.a", &[("vcore", vcore), ("memory", memory)]);
            demand.node_list = [crate::fixture::node_name(node)].into();
        }
        fixture.settle();
        fixture.add_work("job_x", "root.a", &[("vcore", 100)]);
        let plan = fixture.step();
        assert_eq!(plan.grants[0].node.as_str(), expected_node, "{policy}");
    }
}

#[test]
fn placement_rules_find_or_create_queues() {
    let by_user = json!({"rule": "user", "create": true});
    let provided = json!([{"rule": "provided", "create": true, "parent": by_user}]);
    let queue_of = |rules: &serde_json::Value, (user, queue): (&str, &str), namespace: &str| {
        let queues = json!({"dev_queue": {}, "finance_dot_test": {}});
        let root = json!({"submit_acl": "*", "queues": queues});
        let mut fixture =
            Fixture::from_queues(&json!({"queues": {"root": root}, "placement": rules}));
        fixture.add_node("n1", &[("vcore", VCORE)]);
        let demand = fixture.add_work("job_1", queue, &[("vcore", 1)]);
        demand.user = user.parse().unwrap();
        if !namespace.is_empty() {
            let tags = &mut crate::fixture::queued_mut(demand).tags;
            tags.insert("namespace".to_owned(), namespace.to_owned());
        }
        fixture.plan().verdicts["job_1"].class.clone()
    };
    let some_path = |path: &str| Some(Arc::from(path));
    let queue_of_developer = |queue| queue_of(&provided, ("developer", queue), "");
    assert_eq!(
        queue_of_developer("my_special_queue"),
        some_path("root.developer.my_special_queue")
    );
    assert_eq!(
        queue_of_developer("root.dev_queue"),
        some_path("root.dev_queue")
    );
    let rules = json!([{"rule": "user"}, {"rule": "tag", "value": "namespace", "create": true}]);
    let finance = queue_of(&rules, ("finance.test", ""), "");
    assert_eq!(finance, some_path("root.finance_dot_test"));
    assert_eq!(
        queue_of(&rules, ("developer", ""), "testing"),
        some_path("root.testing")
    );
    assert_eq!(queue_of(&rules, ("developer", ""), ""), None);
    // A full path ignores the parent. A user name is a plain name.
    let below = json!({"rule": "user", "create": true});
    let rules = json!([{"rule": "tag", "value": "namespace", "create": true, "parent": below}]);
    let path = "root.teams.blue";
    assert_eq!(queue_of(&rules, ("developer", ""), path), some_path(path));
    let rules = json!([{"rule": "user", "create": true}]);
    let user = queue_of(&rules, ("root.blue", ""), "");
    assert_eq!(user, some_path("root.root_dot_blue"));
}

#[test]
fn fractions_of_gpus_are_packed_onto_one_gpu() {
    let root = json!({"submit_acl": "*", "queues": {"a": {}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 9 * VCORE), ("gpu", 2_000)]);
    for (id, gpu) in [("job_1", 500), ("job_2", 500), ("job_3", 1_000)] {
        fixture.add_work(id, "root.a", &[("vcore", VCORE), ("gpu", gpu)]);
    }
    let plan = fixture.step();
    let gpus: Vec<&[u64]> = plan.grants.iter().map(|grant| &grant.gpus[..]).collect();
    assert_eq!(gpus, [[0], [0], [1]]);
}
