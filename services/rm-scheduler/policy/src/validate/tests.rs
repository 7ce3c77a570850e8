//! Tests: the faults of the shipped policy (`Policy::default`) after small changes, and the faults
//! of small documents.

use hayward_rm_scheduler_api::policy::{Class, Pool, PoolMount, QueueTree, UserPolicy};
use serde_json::json;

use super::*;
use crate::{Document, read};

/// Returns the JSON pointers of the faults of the shipped policy after a change.
fn faults_after(change: impl FnOnce(&mut Policy)) -> Vec<String> {
    let mut policy = Policy::default();
    change(&mut policy);
    faults(&policy)
        .into_iter()
        .map(|fault| fault.pointer)
        .collect()
}

fn class_mut<'a>(policy: &'a mut Policy, name: &str) -> &'a mut Class {
    policy.classes.entry(name.into()).or_default()
}

fn pool_mut<'a>(policy: &'a mut Policy, name: &str) -> &'a mut Pool {
    policy.pools.entry(name.into()).or_default()
}

#[test]
fn the_shipped_policy_has_no_fault() {
    assert_eq!(faults_after(|_| {}), Vec::<String>::new());
    assert!(crate::notes(&Policy::default()).is_empty());
}

#[test]
fn a_field_that_appears_twice_is_a_fault() {
    let text = r#"{"pools": {"default": {}}, "classes": {"a": {"policy": "RESERVE",
        "pool": "default", "default": true, "priority": 3, "priority": 4}}}"#;
    let document: Document = serde_json::from_str(text).unwrap();
    let found = read(document).unwrap_err();
    assert_eq!(found[0].pointer, "/classes/a/priority");
    let yaml = "pools: {default: {}}\nclasses: {}\nusers:\n  ada: {}\n  ada: {}\n";
    let found = read(yaml_serde::from_str::<Document>(yaml).unwrap()).unwrap_err();
    assert_eq!(found[0].pointer, "/users/ada");
}

#[test]
fn parents_exist_and_form_no_cycle() {
    let self_parent =
        faults_after(|policy| pool_mut(policy, "default").parent = Some("default".into()));
    assert_eq!(self_parent, ["/pools/default/parent"]);
    let unknown = faults_after(|policy| pool_mut(policy, "gpu").parent = Some("x".into()));
    assert_eq!(unknown, ["/pools/gpu/parent"]);
    let cycle = faults_after(|policy| {
        pool_mut(policy, "a").parent = Some("b".into());
        pool_mut(policy, "b").parent = Some("a".into());
        pool_mut(policy, "c").parent = Some("b".into());
    });
    assert_eq!(
        cycle,
        ["/pools/a/parent", "/pools/b/parent"],
        "c is below the cycle and not part of it"
    );
}

#[test]
fn only_root_pools_have_a_quantum() {
    let child = faults_after(|policy| {
        pool_mut(policy, "gpu").parent = Some("default".into());
        pool_mut(policy, "gpu").quantum = Some(policy.quantum.clone());
    });
    assert_eq!(child, ["/pools/gpu/quantum"]);
    let zero = faults_after(|policy| {
        let mut quantum = policy.quantum.clone();
        quantum.0.memory_bytes = 0;
        pool_mut(policy, "gpu").quantum = Some(quantum.clone());
        policy.quantum = quantum;
    });
    assert_eq!(
        zero,
        ["/pools/gpu/quantum/memory_bytes", "/quantum/memory_bytes"]
    );
}

#[test]
fn at_most_one_pool_has_no_source_of_nodes() {
    let remove_sources = |policy: &mut Policy, names: &[&str]| {
        for name in names {
            pool_mut(policy, name).declared = false;
        }
    };
    assert_eq!(
        faults_after(|policy| remove_sources(policy, &["default"])),
        Vec::<String>::new()
    );
    assert_eq!(
        faults_after(|policy| remove_sources(policy, &["default", "gpu", "ssd"])),
        ["/pools/gpu", "/pools/ssd"]
    );
}

#[test]
fn a_node_is_listed_once_under_its_short_or_long_name() {
    let faults_of_lists = |lists: [&[&str]; 2]| {
        faults_after(|policy| {
            for (name, list) in ["default", "gpu"].into_iter().zip(lists) {
                pool_mut(policy, name).nodes = list.iter().map(|&node| node.to_owned()).collect();
            }
        })
    };
    assert_eq!(
        faults_of_lists([&["n1"], &["n2", "n1"]]),
        ["/pools/gpu/nodes/1"]
    );
    assert_eq!(
        faults_of_lists([&["n1.east.example"], &["n1"]]),
        ["/pools/gpu/nodes/0"]
    );
    assert_eq!(
        faults_of_lists([&["n1"], &["n1.east.example"]]),
        ["/pools/gpu/nodes/0"]
    );
    assert_eq!(
        faults_of_lists([&["n1", "n1"], &[]]),
        ["/pools/default/nodes/1"]
    );
    let distinct = faults_of_lists([
        &["n1.east.example", "10.0.0.1"],
        &["n1.west.example", "10.0.0.2"],
    ]);
    assert_eq!(distinct, Vec::<String>::new());
    assert_eq!(
        faults_of_lists([&["a b"], &["fe80::1"]]),
        ["/pools/default/nodes/0"]
    );
}

#[test]
fn patterns_compile_and_are_unique() {
    let faults_of_patterns = |[pattern_a, pattern_b]: [&str; 2]| {
        faults_after(|policy| {
            pool_mut(policy, "a").pattern = Some(pattern_a.into());
            pool_mut(policy, "b").pattern = Some(pattern_b.into());
        })
    };
    assert_eq!(faults_of_patterns(["n.*", "m.*"]), Vec::<String>::new());
    assert_eq!(faults_of_patterns(["n.*", "n.*"]), ["/pools/b/pattern"]);
    assert_eq!(
        faults_of_patterns(["", "("]),
        ["/pools/a/pattern", "/pools/b/pattern"]
    );
}

#[test]
fn a_class_has_a_parent_a_policy_and_a_pool() {
    assert_eq!(
        faults_after(|policy| class_mut(policy, "high").pool = Some("x".into())),
        ["/classes/high/pool"]
    );
    assert_eq!(
        faults_after(|policy| class_mut(policy, "high").pool = None),
        ["/classes/high/pool"]
    );
    let no_policy = faults_after(|policy| class_mut(policy, "high").policy = None);
    assert_eq!(no_policy, ["/classes/high/policy"]);
    let no_parent = faults_after(|policy| class_mut(policy, "high").parent = Some("x".into()));
    assert_eq!(no_parent, ["/classes/high/parent"]);
    let cycle = faults_after(|policy| {
        class_mut(policy, "high").parent = Some("low".into());
        class_mut(policy, "low").parent = Some("high".into());
    });
    assert_eq!(cycle, ["/classes/high/parent", "/classes/low/parent"]);
}

#[test]
fn a_class_has_only_attributes_that_its_policy_allows() {
    assert_eq!(
        faults_after(|policy| class_mut(policy, "service").weight = Some(3)),
        ["/classes/service/weight"]
    );
    assert_eq!(
        faults_after(|policy| class_mut(policy, "high").enforce = Some(true)),
        ["/classes/high/enforce"]
    );
    let growth = faults_after(|policy| class_mut(policy, "reserve").use_prediction = Some(true));
    assert_eq!(growth, ["/classes/reserve/use_prediction"]);
    let without_effect = faults_after(|policy| {
        class_mut(policy, "service").max_processes = Some(1);
        class_mut(policy, "reserve").max_machines = Some(1);
        class_mut(policy, "low").cap = Some(1);
    });
    assert_eq!(without_effect, Vec::<String>::new());
}

#[test]
fn each_policy_has_one_default_that_is_no_template() {
    assert_eq!(
        faults_after(|policy| class_mut(policy, "low").default = true),
        ["/classes/normal/default"]
    );
    let template = faults_after(|policy| {
        let base = class_mut(policy, "base");
        (base.is_abstract, base.default) = (true, true);
    });
    assert_eq!(template, ["/classes/base/default"]);
}

#[test]
fn every_policy_in_use_has_a_default_class() {
    assert_eq!(
        faults_after(|policy| class_mut(policy, "service").default = false),
        ["/classes"]
    );
    assert_eq!(
        faults_after(|policy| drop(policy.classes.remove("service"))),
        Vec::<String>::new()
    );
}

#[test]
fn classes_of_one_priority_have_one_policy() {
    let equal_priority = faults_after(|policy| class_mut(policy, "service").priority = Some(10));
    assert_eq!(equal_priority, ["/classes/service/priority"]);
    let default_priority = faults_after(|policy| {
        class_mut(policy, "service").priority = None;
        class_mut(policy, "low").priority = Some(5);
    });
    assert_eq!(
        default_priority,
        ["/classes/service/priority"],
        "default priorities are compared too"
    );
}

#[test]
fn limits_of_users_name_classes() {
    let unknown = faults_after(|policy| {
        let user = policy.users.entry("ada".into()).or_default();
        user.max_allotment_gb_by_class.insert("x".into(), 3);
    });
    assert_eq!(unknown, ["/users/ada/max_allotment_gb_by_class/x"]);
    let both = faults_after(|policy| {
        let user = UserPolicy {
            max_allotment_gb: Some(3),
            max_allotment_quanta: Some(3),
            ..UserPolicy::default()
        };
        policy.users.insert("ada".into(), user);
    });
    assert_eq!(both, ["/users/ada/max_allotment_quanta"]);
}

#[test]
fn weights_are_not_zero() {
    assert_eq!(
        faults_after(|policy| class_mut(policy, "low").weight = Some(0)),
        ["/classes/low/weight"]
    );
    assert_eq!(
        faults_after(|policy| class_mut(policy, "low").weight = Some(1_000_001)),
        ["/classes/low/weight"]
    );
}

#[test]
fn only_the_first_pool_sets_the_domain() {
    let second = faults_after(|policy| pool_mut(policy, "gpu").domain = Some("example.org".into()));
    assert_eq!(second, ["/pools/gpu/domain"]);
    assert_eq!(
        faults_after(|policy| pool_mut(policy, "default").domain = Some("a/b".into())),
        ["/pools/default/domain"]
    );
}

#[test]
fn all_faults_are_reported_at_once_with_their_correction() {
    let document = json!({
        "pools": {"default": {"serch_order": 3, "parent": 7}, "gpu": {"parent": "defualt"}},
        "classes": {
            "a": {"policy": "FAIR", "pool": "default", "weight": "much"},
            "b": {"policy": "RESERVE", "pool": "gpu", "weight": 4, "default": true},
        },
        "tunables": {"prediction_fudge_ms": -1, "fragmentation_threshold": 3},
        "preset": "best",
        "extra": {},
    });
    let found = read(Document::from(document)).unwrap_err();
    let pointers: Vec<&str> = found.iter().map(|fault| fault.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        [
            "/classes/a/policy",
            "/classes/a/weight",
            "/classes/b/weight",
            "/extra",
            "/pools/default/parent",
            "/pools/default/serch_order",
            "/pools/gpu/parent",
            "/preset",
            "/tunables/prediction_fudge_ms",
        ]
    );
    let parent = &found[6].detail;
    assert_eq!(parent, "there is no pool \"defualt\": there are default");
}

#[test]
fn a_profile_under_both_names_is_a_fault() {
    let document = json!({
        "pools": {"default": {}}, "classes": {}, "profile": "default", "preset": "default",
    });
    let found = read(Document::from(document)).unwrap_err();
    let pointers: Vec<&str> = found.iter().map(|fault| fault.pointer.as_str()).collect();
    assert!(pointers.contains(&"/preset"), "{pointers:?}");
}

#[test]
fn a_document_without_pools_or_classes_is_a_fault() {
    let found = read(Document::from(json!({}))).unwrap_err();
    let pointers: Vec<&str> = found.iter().map(|fault| fault.pointer.as_str()).collect();
    assert_eq!(pointers, ["/classes", "/pools"]);
    assert_eq!(read(Document::from(json!([]))).unwrap_err()[0].pointer, "");
}

#[test]
fn mounts_are_directories_and_unique() {
    let faults_of_mounts = |sources: &[&str]| {
        faults_after(|policy| {
            let mounts = sources.iter().map(|source| PoolMount {
                source: (*source).to_owned(),
                writable: false,
            });
            pool_mut(policy, "default").mounts = mounts.collect();
        })
    };
    assert_eq!(
        faults_of_mounts(&["/srv/a", "/srv/b"]),
        Vec::<String>::new()
    );
    for invalid in ["/", "srv", "/srv/", "/srv/../etc", "/a:/b"] {
        assert_eq!(
            faults_of_mounts(&[invalid]),
            ["/pools/default/mounts/0/source"],
            "{invalid}"
        );
    }
    assert_eq!(
        faults_of_mounts(&["/a", "/a"]),
        ["/pools/default/mounts/1/source"]
    );
}

/// Returns a document of queues that uses most features.
fn queue_document() -> serde_json::Value {
    json!({
        "queues": { "a": {
            "submit_acl": "ann staff", "sort": "fair", "preemption": "fence",
            "priority_policy": "fence", "priority_offset": -3, "max_applications": 4,
            "resources": { "guaranteed": { "memory": "2G" }, "max": { "vcore": 4, "gpu": "500m" } },
            "limits": [{ "users": ["*"], "max_resources": { "vcore": 1 } }],
        }, "made": { "parent": true, "child_template": { "sort": "fifo" } } },
        "placement": [{ "rule": "tag", "value": "team", "create": true,
            "parent": { "rule": "fixed", "value": "made" },
            "filter": { "type": "deny", "users": ["eve"] } }],
        "node_sort": { "policy": "binpacking", "weights": { "vcore": 2 } },
        "preemption": false, "reservation_ms": 1000,
    })
}

/// The API type `QueueTree` describes the document of queues that a policy contains.
#[test]
fn the_api_type_reads_and_writes_a_document_of_queues() {
    let described: QueueTree = serde_json::from_value(queue_document()).unwrap();
    let mut policy = Policy::default();
    pool_mut(&mut policy, "batch").queues = Some(queue_document());
    assert_eq!(faults(&policy), []);
    pool_mut(&mut policy, "batch").queues = serde_json::to_value(&described).ok();
    assert_eq!(
        faults(&policy),
        [],
        "a document written by the API type has no faults"
    );
    assert!(crate::Rules::new(&policy).queues.contains_key("batch"));
    assert!(crate::notes(&policy).is_empty());
}

#[test]
fn only_root_pools_have_queues() {
    let mut policy = Policy::default();
    let batch = pool_mut(&mut policy, "batch");
    batch.queues = Some(queue_document());
    batch.parent = Some("default".to_owned());
    let pointers: Vec<String> = faults(&policy).into_iter().map(|it| it.pointer).collect();
    assert_eq!(pointers, ["/pools/batch/queues"]);
    assert!(crate::Rules::new(&policy).queues.is_empty());
}

#[test]
fn classes_in_a_pool_with_queues_get_a_note() {
    let mut policy = Policy::default();
    pool_mut(&mut policy, "default").queues = Some(json!({ "queues": { "a": {} } }));
    assert_eq!(faults(&policy), []);
    let notes = crate::notes(&policy);
    assert_eq!(
        notes.len(),
        5,
        "one note for each class of the pool: {notes:?}"
    );
}

#[test]
fn faults_of_queues_name_their_pool() {
    let mut policy = Policy::default();
    pool_mut(&mut policy, "default").queues = Some(json!({ "queues": { "a~": 3 } }));
    let found = faults(&policy);
    assert!(
        found
            .iter()
            .all(|it| it.pointer.starts_with("/pools/default/queues/queues"))
    );
    assert!(!found.is_empty());
}
