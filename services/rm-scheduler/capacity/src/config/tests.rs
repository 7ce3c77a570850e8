//! Tests of the configuration: valid documents are read, and invalid ones give all faults.

use serde_json::{Value, json};

use super::read;

fn read_faults(document: &Value) -> Vec<String> {
    let faults = read(document).err().unwrap_or_default();
    faults.into_iter().map(|fault| fault.to_string()).collect()
}

fn fault_pointers(document: &Value) -> Vec<String> {
    let faults = read(document).err().unwrap_or_default();
    faults.into_iter().map(|fault| fault.pointer).collect()
}

/// Returns the document with this configuration of the root.
fn document_with_root(root: &Value) -> Value {
    json!({"queues": {"root": root}})
}

/// Returns the document with this configuration of the queue `a`, the only child of the root.
fn document_with_leaf(leaf: &Value) -> Value {
    document_with_root(&json!({"queues": {"a": leaf}}))
}

const LEAF_POINTER: &str = "/queues/root/queues/a";

#[test]
fn a_queue_has_no_more_applications_than_its_parent() {
    // The limits of the queues on one path, from the root to the leaf. 0 means unlimited.
    let is_accepted = |[root_limit, parent_limit, child_limit, leaf_limit]: [u64; 4]| {
        let leaf = json!({"max_applications": leaf_limit});
        let child = json!({"max_applications": child_limit, "queues": {"leaf": leaf}});
        let parent = json!({"max_applications": parent_limit, "queues": {"child": child}});
        let root = json!({"max_applications": root_limit, "queues": {"parent": parent}});
        read(&document_with_root(&root)).is_ok()
    };
    assert!(!is_accepted([1, 2, 3, 4]));
    assert!(is_accepted([4, 3, 2, 1]));
    assert!(is_accepted([0, 3, 2, 1]));
    assert!(!is_accepted([4, 3, 2, 0]));
}

#[test]
fn all_faults_are_reported_at_once_with_their_positions() {
    let document = json!({
        "queues": {"root": {
            "resources": {"max": {"memory": 5}},
            "queues": {
                "a": {"weight": 3, "submit_acl": "a b c",
                    "resources": {"max": {"memory": "5 apples"}}},
                "b.c": {},
                "d": {"sort": "lifo"},
            },
        }},
        "node_sort": {"weights": {"vcore": -1}},
        "tomatoes": 1,
    });
    let expected = [
        "/node_sort/weights/vcore",
        "/queues/root/queues/a/resources/max/memory",
        "/queues/root/queues/a/submit_acl",
        "/queues/root/queues/a/weight",
        "/queues/root/queues/b.c",
        "/queues/root/queues/d/sort",
        "/queues/root/resources",
        "/tomatoes",
    ];
    assert_eq!(fault_pointers(&document), expected);
}

#[test]
fn a_missing_root_is_implied() {
    let without_root = json!({"queues": {"A": {}, "b": {"queues": {"c": {}}}}});
    let queues = read(&without_root).unwrap();
    let names: Vec<&str> = queues.root.children.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(queues.root.parent && queues.root.children["b"].parent);
    let invalid = json!({"queues": {"a": {"max_applications": -1}, "b": {}}});
    assert_eq!(fault_pointers(&invalid), ["/queues/a/max_applications"]);
    assert_eq!(fault_pointers(&json!({})), ["/queues"]);
}

#[test]
fn names_are_unique_ignoring_case() {
    let duplicates = document_with_root(&json!({"queues": {"Dev": {}, "dev": {}}}));
    assert_eq!(
        read_faults(&duplicates).len(),
        1,
        "{:?}",
        read_faults(&duplicates)
    );
}

#[test]
fn a_guarantee_fits_the_maximum() {
    let too_large = document_with_leaf(
        &json!({"resources": {"guaranteed": {"vcore": 5}, "max": {"vcore": 4}}}),
    );
    assert_eq!(
        fault_pointers(&too_large),
        [format!("{LEAF_POINTER}/resources/guaranteed/vcore")]
    );
    let child = |it: u64| json!({"resources": {"guaranteed": {"vcore": it}}});
    let faults_with_children = |resources: Value| {
        let queues = json!({"b": child(3), "c": {"queues": {"d": child(3)}}});
        fault_pointers(&document_with_leaf(
            &json!({"resources": resources, "queues": queues}),
        ))
    };
    let expected = [format!("{LEAF_POINTER}/resources/guaranteed")];
    assert_eq!(
        faults_with_children(json!({"guaranteed": {"vcore": 5}})),
        expected
    );
    assert_eq!(faults_with_children(json!({"max": {"vcore": 5}})), expected);
    assert!(faults_with_children(json!({"guaranteed": {"vcore": 6}})).is_empty());
    let larger_child = document_with_leaf(&json!({"resources": {"max": {"vcore": 4}},
        "queues": {"b": {"queues": {"c": {"resources": {"max": {"vcore": 5}}}}}}}));
    let expected = [format!(
        "{LEAF_POINTER}/queues/b/queues/c/resources/max/vcore"
    )];
    assert_eq!(fault_pointers(&larger_child), expected);
}

#[test]
fn limits_name_each_user_once_and_the_wildcard_last() {
    let faults_of = |limits: Value| fault_pointers(&document_with_leaf(&json!({"limits": limits})));
    let limit_for = |selector: Value| {
        let mut limit = json!({"max_applications": 1});
        limit
            .as_object_mut()
            .unwrap()
            .extend(selector.as_object().unwrap().clone());
        limit
    };
    let limit_pointer = |suffix: &str| vec![format!("{LEAF_POINTER}/limits/{suffix}")];
    assert_eq!(
        faults_of(json!([{"max_applications": 1}])),
        limit_pointer("0")
    );
    assert_eq!(faults_of(json!([{"users": ["a"]}])), limit_pointer("0"));
    assert_eq!(
        faults_of(json!([limit_for(json!({"users": ["a", "*"]}))])),
        limit_pointer("0/users")
    );
    let wildcard_first = json!([
        limit_for(json!({"users": ["*"]})),
        limit_for(json!({"users": ["a"]}))
    ]);
    assert_eq!(faults_of(wildcard_first), limit_pointer("1/users"));
    let duplicates = json!([
        limit_for(json!({"users": ["a"]})),
        limit_for(json!({"users": ["a"]}))
    ]);
    assert_eq!(faults_of(duplicates), limit_pointer("1/users"));
    assert_eq!(
        faults_of(json!([limit_for(json!({"groups": ["*"]}))])),
        limit_pointer("0/groups")
    );
    let valid = json!([
        limit_for(json!({"groups": ["dev"]})),
        limit_for(json!({"groups": ["*"]})),
        limit_for(json!({"users": ["ann"]})),
        limit_for(json!({"users": ["*"]}))
    ]);
    assert!(faults_of(valid).is_empty());
}

#[test]
fn a_limit_does_not_exceed_the_limit_above() {
    let limit = |max: u64| json!([{"users": ["ann"], "max_resources": {"vcore": max}}]);
    let document = document_with_leaf(
        &json!({"limits": limit(2), "resources": {"max": {"vcore": 9}},
        "queues": {"b": {"limits": limit(3)}}}),
    );
    let expected = format!("{LEAF_POINTER}/queues/b/limits/0/max_resources/vcore");
    assert_eq!(fault_pointers(&document), [expected]);
    let document =
        document_with_leaf(&json!({"limits": limit(10), "resources": {"max": {"vcore": 9}}}));
    assert_eq!(
        fault_pointers(&document),
        [format!("{LEAF_POINTER}/limits/0/max_resources/vcore")]
    );
    let mut document = document_with_root(&json!({"limits": limit(2)}));
    document["limits"] = limit(3);
    assert_eq!(fault_pointers(&document), ["/limits"]);
}

#[test]
fn rules_name_existing_queues() {
    let faults_of_rule = |rule: Value| {
        let queues = json!({"a": {}, "b": {"queues": {"c": {}}}});
        fault_pointers(&json!({"queues": {"root": {"queues": queues}}, "placement": [rule]}))
    };
    let value_pointer = ["/placement/0/value"];
    assert_eq!(faults_of_rule(json!({"rule": "fixed"})), value_pointer);
    assert_eq!(faults_of_rule(json!({"rule": "tag"})), value_pointer);
    assert_eq!(
        faults_of_rule(json!({"rule": "fixed", "value": "nowhere"})),
        value_pointer
    );
    assert_eq!(
        faults_of_rule(json!({"rule": "fixed", "value": "b"})),
        value_pointer
    );
    assert_eq!(
        faults_of_rule(json!({"rule": "fixed", "value": "a.d", "create": true})),
        value_pointer
    );
    assert!(faults_of_rule(json!({"rule": "fixed", "value": "b.d", "create": true})).is_empty());
    assert!(faults_of_rule(json!({"rule": "fixed", "value": "root.b.c"})).is_empty());
    let parent = |name: &str| json!({"rule": "fixed", "value": name});
    let faults_below =
        |name| faults_of_rule(json!({"rule": "user", "create": true, "parent": parent(name)}));
    assert!(faults_below("b").is_empty());
    assert_eq!(faults_below("a"), ["/placement/0/parent/value"]);
    let qualified = json!({"rule": "fixed", "value": "root.a", "parent": parent("b")});
    assert_eq!(faults_of_rule(qualified), ["/placement/0/parent"]);
    assert_eq!(
        faults_of_rule(json!({"rule": "guess"})),
        ["/placement/0/rule"]
    );
}

/// Any value is either parsed or reported, never both.
#[test]
fn every_field_tolerates_any_value() {
    let valid = json!({"queues": {"root": {"submit_acl": "*", "queues": {"a": {
        "resources": {"max": {"vcore": 4}, "guaranteed": {"vcore": 1}},
        "limits": [{"users": ["ann"], "max_applications": 1}]}}}},
        "placement": [{"rule": "fixed", "value": "a"}]});
    assert!(read(&valid).is_ok());
    let unexpected = [
        json!(null),
        json!(-1),
        json!("x"),
        json!([]),
        json!({}),
        json!([[1]]),
        json!(1e300),
    ];
    let mut pointers = Vec::new();
    collect_pointers(&valid, String::new(), &mut pointers);
    assert!(pointers.len() > 15);
    for pointer in &pointers {
        for unexpected in &unexpected {
            let mut document = valid.clone();
            *document.pointer_mut(pointer).unwrap() = unexpected.clone();
            if let Err(faults) = read(&document) {
                assert!(
                    faults.iter().all(|fault| !fault.detail.is_empty()),
                    "{pointer} {unexpected}"
                );
                assert!(!faults.is_empty());
            }
        }
    }
}

fn collect_pointers(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            collect_pointers(value, format!("{pointer}/{name}"), pointers);
        }),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| {
            collect_pointers(value, format!("{pointer}/{index}"), pointers);
        }),
        _ => {}
    }
    pointers.push(pointer);
}

#[test]
fn faults_print_amounts_in_readable_units() {
    let limits = json!([{"users": ["*"], "max_resources": {"memory": "3Gi"}}]);
    let reported = read_faults(&document_with_leaf(
        &json!({"limits": limits, "resources": {
        "guaranteed": {"vcore": 33}, "max": {"vcore": 32, "memory": "2Gi"}}}),
    ));
    let expected = [
        format!(
            "{LEAF_POINTER}/limits/0/max_resources/memory: is more than the 2 GiB of the queue"
        ),
        format!(
            "{LEAF_POINTER}/resources/guaranteed/vcore: is more than the 32 it may have at most"
        ),
    ];
    assert_eq!(reported, expected);
    let child = json!({"resources": {"guaranteed": {"vcore": "1500m"}}});
    let reported = read_faults(&document_with_leaf(
        &json!({"resources": {"guaranteed": {"vcore": 2}},
        "queues": {"x": child, "y": child}}),
    ));
    let detail = "queues below are guaranteed 3 vcore, it is guaranteed itself 2";
    assert_eq!(
        reported,
        [format!("{LEAF_POINTER}/resources/guaranteed: {detail}")]
    );
}
