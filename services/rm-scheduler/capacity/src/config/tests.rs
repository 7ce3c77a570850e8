use serde_json::{Value, json};

use super::read;

fn faults(document: &Value) -> Vec<String> {
    let faults = read(document).err().unwrap_or_default();
    faults.into_iter().map(|fault| fault.to_string()).collect()
}

fn pointers(document: &Value) -> Vec<String> {
    let faults = read(document).err().unwrap_or_default();
    faults.into_iter().map(|fault| fault.pointer).collect()
}

fn root(root: &Value) -> Value {
    json!({"queues": {"root": root}})
}

fn leaf(leaf: &Value) -> Value {
    root(&json!({"queues": {"a": leaf}}))
}

const A: &str = "/queues/root/queues/a";

#[test]
fn a_queue_has_no_more_applications_than_its_parent() {
    let chain = |most: [u64; 4]| {
        let child = json!({"max_applications": most[3]});
        let parent1 = json!({"max_applications": most[2], "queues": {"child1": child}});
        let parent = json!({"max_applications": most[1], "queues": {"parent1": parent1}});
        let top = json!({"max_applications": most[0], "queues": {"parent": parent}});
        read(&root(&top)).is_ok()
    };
    assert!(!chain([1, 2, 3, 4]));
    assert!(chain([4, 3, 2, 1]));
    assert!(chain([0, 3, 2, 1]));
    assert!(!chain([4, 3, 2, 0]));
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
    assert_eq!(pointers(&document), expected);
}

#[test]
fn a_missing_root_is_implied() {
    let two = json!({"queues": {"A": {}, "b": {"queues": {"c": {}}}}});
    let queues = read(&two).unwrap();
    let names: Vec<&str> = queues.root.children.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(queues.root.parent && queues.root.children["b"].parent);
    let bad = json!({"queues": {"a": {"max_applications": -1}, "b": {}}});
    assert_eq!(pointers(&bad), ["/queues/a/max_applications"]);
    assert_eq!(pointers(&json!({})), ["/queues"]);
}

#[test]
fn names_are_unique_ignoring_case() {
    let twice = root(&json!({"queues": {"Dev": {}, "dev": {}}}));
    assert_eq!(faults(&twice).len(), 1, "{:?}", faults(&twice));
}

#[test]
fn a_guarantee_fits_the_maximum() {
    let over = leaf(&json!({"resources": {"guaranteed": {"vcore": 5}, "max": {"vcore": 4}}}));
    assert_eq!(pointers(&over), [format!("{A}/resources/guaranteed/vcore")]);
    let child = |it: u64| json!({"resources": {"guaranteed": {"vcore": it}}});
    let sum = |own: Value| {
        let queues = json!({"b": child(3), "c": {"queues": {"d": child(3)}}});
        pointers(&leaf(&json!({"resources": own, "queues": queues})))
    };
    let at = [format!("{A}/resources/guaranteed")];
    assert_eq!(sum(json!({"guaranteed": {"vcore": 5}})), at);
    assert_eq!(sum(json!({"max": {"vcore": 5}})), at);
    assert!(sum(json!({"guaranteed": {"vcore": 6}})).is_empty());
    let grown = leaf(&json!({"resources": {"max": {"vcore": 4}},
        "queues": {"b": {"queues": {"c": {"resources": {"max": {"vcore": 5}}}}}}}));
    let at = [format!("{A}/queues/b/queues/c/resources/max/vcore")];
    assert_eq!(pointers(&grown), at);
}

#[test]
fn limits_name_each_user_once_and_the_wildcard_last() {
    let limits = |limits: Value| pointers(&leaf(&json!({"limits": limits})));
    let one = |selector: Value| {
        let mut limit = json!({"max_applications": 1});
        limit
            .as_object_mut()
            .unwrap()
            .extend(selector.as_object().unwrap().clone());
        limit
    };
    let at = |rest: &str| vec![format!("{A}/limits/{rest}")];
    assert_eq!(limits(json!([{"max_applications": 1}])), at("0"));
    assert_eq!(limits(json!([{"users": ["a"]}])), at("0"));
    assert_eq!(
        limits(json!([one(json!({"users": ["a", "*"]}))])),
        at("0/users")
    );
    let late = json!([one(json!({"users": ["*"]})), one(json!({"users": ["a"]}))]);
    assert_eq!(limits(late), at("1/users"));
    let twice = json!([one(json!({"users": ["a"]})), one(json!({"users": ["a"]}))]);
    assert_eq!(limits(twice), at("1/users"));
    assert_eq!(
        limits(json!([one(json!({"groups": ["*"]}))])),
        at("0/groups")
    );
    let good = json!([
        one(json!({"groups": ["dev"]})),
        one(json!({"groups": ["*"]})),
        one(json!({"users": ["ann"]})),
        one(json!({"users": ["*"]}))
    ]);
    assert!(limits(good).is_empty());
}

#[test]
fn a_limit_does_not_exceed_the_limit_above() {
    let limit = |most: u64| json!([{"users": ["ann"], "max_resources": {"vcore": most}}]);
    let document = leaf(
        &json!({"limits": limit(2), "resources": {"max": {"vcore": 9}},
        "queues": {"b": {"limits": limit(3)}}}),
    );
    let at = format!("{A}/queues/b/limits/0/max_resources/vcore");
    assert_eq!(pointers(&document), [at]);
    let document = leaf(&json!({"limits": limit(10), "resources": {"max": {"vcore": 9}}}));
    assert_eq!(
        pointers(&document),
        [format!("{A}/limits/0/max_resources/vcore")]
    );
    let mut document = root(&json!({"limits": limit(2)}));
    document["limits"] = limit(3);
    assert_eq!(pointers(&document), ["/limits"]);
}

#[test]
fn rules_name_existing_queues() {
    let check = |rule: Value| {
        let queues = json!({"a": {}, "b": {"queues": {"c": {}}}});
        pointers(&json!({"queues": {"root": {"queues": queues}}, "placement": [rule]}))
    };
    let value = ["/placement/0/value"];
    assert_eq!(check(json!({"rule": "fixed"})), value);
    assert_eq!(check(json!({"rule": "tag"})), value);
    assert_eq!(check(json!({"rule": "fixed", "value": "nowhere"})), value);
    assert_eq!(check(json!({"rule": "fixed", "value": "b"})), value);
    assert_eq!(
        check(json!({"rule": "fixed", "value": "a.d", "create": true})),
        value
    );
    assert!(check(json!({"rule": "fixed", "value": "b.d", "create": true})).is_empty());
    assert!(check(json!({"rule": "fixed", "value": "root.b.c"})).is_empty());
    let parent = |name: &str| json!({"rule": "fixed", "value": name});
    let below = |name| check(json!({"rule": "user", "create": true, "parent": parent(name)}));
    assert!(below("b").is_empty());
    assert_eq!(below("a"), ["/placement/0/parent/value"]);
    let qualified = json!({"rule": "fixed", "value": "root.a", "parent": parent("b")});
    assert_eq!(check(qualified), ["/placement/0/parent"]);
    assert_eq!(check(json!({"rule": "guess"})), ["/placement/0/rule"]);
}

/// Any value is either parsed or reported, never both.
#[test]
fn every_field_tolerates_any_value() {
    let good = json!({"queues": {"root": {"submit_acl": "*", "queues": {"a": {
        "resources": {"max": {"vcore": 4}, "guaranteed": {"vcore": 1}},
        "limits": [{"users": ["ann"], "max_applications": 1}]}}}},
        "placement": [{"rule": "fixed", "value": "a"}]});
    assert!(read(&good).is_ok());
    let odd = [
        json!(null),
        json!(-1),
        json!("x"),
        json!([]),
        json!({}),
        json!([[1]]),
        json!(1e300),
    ];
    let mut places = Vec::new();
    walk(&good, String::new(), &mut places);
    assert!(places.len() > 15);
    for place in &places {
        for odd in &odd {
            let mut document = good.clone();
            *document.pointer_mut(place).unwrap() = odd.clone();
            if let Err(faults) = read(&document) {
                assert!(
                    faults.iter().all(|fault| !fault.detail.is_empty()),
                    "{place} {odd}"
                );
                assert!(!faults.is_empty());
            }
        }
    }
}

fn walk(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| walk(value, format!("{at}/{name}"), places)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| walk(value, format!("{at}/{index}"), places)),
        _ => {}
    }
    places.push(at);
}

#[test]
fn faults_print_amounts_in_readable_units() {
    let limits = json!([{"users": ["*"], "max_resources": {"memory": "3Gi"}}]);
    let reported = faults(&leaf(&json!({"limits": limits, "resources": {
        "guaranteed": {"vcore": 33}, "max": {"vcore": 32, "memory": "2Gi"}}})));
    let expected = [
        format!("{A}/limits/0/max_resources/memory: is more than the 2 GiB of the queue"),
        format!("{A}/resources/guaranteed/vcore: is more than the 32 it may have at most"),
    ];
    assert_eq!(reported, expected);
    let child = json!({"resources": {"guaranteed": {"vcore": "1500m"}}});
    let reported = faults(&leaf(&json!({"resources": {"guaranteed": {"vcore": 2}},
        "queues": {"x": child, "y": child}})));
    let detail = "queues below are guaranteed 3 vcore, it is guaranteed itself 2";
    assert_eq!(reported, [format!("{A}/resources/guaranteed: {detail}")]);
}
