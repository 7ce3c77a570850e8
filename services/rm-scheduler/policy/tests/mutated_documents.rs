//! Property tests with random changes of documents and stanza files. Reading never panics, and an
//! accepted document can be translated, written and read again. `PROPTEST_CASES` sets the number of
//! cases. The fuzzer (`fuzz/`) does the same without a limit.

use hayward_rm_scheduler_domain::Snapshot;
use hayward_rm_scheduler_policy::import::{Input, Source, import};
use hayward_rm_scheduler_policy::{
    Document, Identity, Policy, Rules, differences, faults, notes, read,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns a document that uses every feature.
fn full_document() -> Value {
    json!({
        "quantum": {"memory_bytes": 1 << 30, "cpu_milli": 500},
        "pools": {
            "all": {"place": 1, "domain": "example.org", "nodes": ["n1", "10.0.0.1"]},
            "gpu": {"parent": "all", "search_order": 5, "pattern": "gpu-[0-9]+", "place": 2},
            "own": {"quantum": {"memory_bytes": 4_u64 << 30}, "declared": false, "place": 3,
                    "planner": {"url": "http://[::1]:9000/plan", "timeout_ms": 50}},
        },
        "classes": {
            "base": {"abstract": true, "policy": "FAIR_SHARE", "pool": "all", "weight": 3},
            "normal": {"parent": "base", "default": true, "users": ["ada"], "debug": "fixed"},
            "fast": {"parent": "normal", "pool": "gpu", "initialization_cap": 4},
            "fixed": {"policy": "FIXED_SHARE", "pool": "all", "default": true},
            "whole": {"policy": "RESERVE", "pool": "own", "default": true, "enforce": true},
        },
        "users": {"ada": {"max_allotment_gb": 7, "max_allotment_gb_by_class": {"fixed": 3}}},
        "tunables": {"global_allotment_gb": 30, "prediction": false, "node_reserved_gb": 1},
        "preset": "reference",
        "settings": {"lend_idle": true, "churn_rounds": 2},
    })
}

/// Generates values of unexpected types.
fn unexpected_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "all",
            "gpu",
            "base",
            "FAIR_SHARE",
            "n1",
            "a/~b",
            "(",
            "é"
        ])
        .prop_map(Value::from),
        Just(json!({})),
        Just(json!([])),
        Just(json!(["n1", "n1.example.org"])),
        Just(json!({"parent": "all"})),
        Just(json!({"policy": "RESERVE", "pool": "all"})),
    ]
}

#[derive(Debug, Clone)]
enum Mutation {
    /// Replaces the value of this number. All values of the document are numbered.
    Replace(usize, Value),
    Remove(usize),
    /// Adds a field to the object of this number.
    Add(usize, String, Value),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let names = vec![
        "parent", "pool", "weight", "abstract", "pattern", "place", "extra", "all", "",
    ];
    let name = prop::sample::select(names).prop_map(str::to_owned);
    prop_oneof![
        (any::<usize>(), unexpected_value())
            .prop_map(|(number, value)| Mutation::Replace(number, value)),
        any::<usize>().prop_map(Mutation::Remove),
        (any::<usize>(), name, unexpected_value())
            .prop_map(|(number, name, value)| Mutation::Add(number, name, value)),
    ]
}

/// Collects the JSON pointers of all values of a document.
fn collect_pointers(pointer: &str, value: &Value, pointers: &mut Vec<String>) {
    pointers.push(pointer.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let step = hayward_rm_scheduler_policy::pointer(&[name]);
                collect_pointers(&format!("{pointer}{step}"), value, pointers);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_pointers(&format!("{pointer}/{index}"), item, pointers);
            }
        }
        _ => {}
    }
}

fn apply_mutation(value: &mut Value, mutation: &Mutation) {
    let mut pointers = Vec::new();
    collect_pointers("", value, &mut pointers);
    let choose = |number: usize| pointers[number % pointers.len()].clone();
    match mutation {
        Mutation::Replace(number, new) => {
            if let Some(target) = value.pointer_mut(&choose(*number)) {
                *target = new.clone();
            }
        }
        Mutation::Remove(number) => {
            let pointer = choose(*number);
            let (parent, last) = pointer.rsplit_once('/').unwrap_or(("", ""));
            if let Some(fields) = value.pointer_mut(parent).and_then(Value::as_object_mut) {
                fields.remove(&last.replace("~1", "/").replace("~0", "~"));
            }
        }
        Mutation::Add(number, name, new) => {
            if let Some(fields) = value
                .pointer_mut(&choose(*number))
                .and_then(Value::as_object_mut)
            {
                fields.insert(name.clone(), new.clone());
            }
        }
    }
}

/// Checks that an accepted policy is translated completely: each class has a pool and a weight, and
/// each node has a pool.
fn check_translation(policy: &Policy) {
    let rules = Rules::new(policy);
    for (name, class) in &rules.classes {
        assert!(rules.pools.contains_key(&class.pool), "{name}");
        assert!(class.weight > 0, "{name}");
    }
    let serving = policy.classes.values().filter(|class| !class.is_abstract);
    assert_eq!(rules.classes.len(), serving.count());
    for name in ["n1", "n1.example.org", "gpu-7", "other", "10.0.0.1"] {
        let node = Identity {
            name,
            address: Some("10.0.0.1"),
            declared: Some("gpu"),
        };
        let pool = rules.pool_of(node).expect("there is a first pool");
        assert!(rules.pools.contains_key(pool), "{name} is in {pool}");
    }
    rules.apply_to(&mut Snapshot::empty());
    notes(policy);
}

/// Checks that a policy can be written as JSON and YAML and read again.
fn check_round_trip(policy: &Policy) {
    let json = serde_json::to_string(policy).expect("a policy can be written");
    let document: Document = serde_json::from_str(&json).expect("the written policy is JSON");
    assert_eq!(
        &read(document).expect("an accepted policy is accepted again"),
        policy
    );
    let yaml = yaml_serde::to_string(policy).expect("a policy can be written");
    let document: Document = yaml_serde::from_str(&yaml).expect("the written policy is YAML");
    let reread = read(document).expect("an accepted policy is accepted again");
    assert!(differences(policy, &reread).is_empty());
}

const CLASSES: &str = include_str!("../samples/village.classes");

/// Returns the node files that the sample of classes names.
fn node_file(name: &str) -> Option<String> {
    let text = match name {
        "all.nodes" => include_str!("../samples/all.nodes"),
        "far.nodes" => include_str!("../samples/far.nodes"),
        "barn.nodes" => include_str!("../samples/barn.nodes"),
        "mill.regex" => include_str!("../samples/mill.regex"),
        _ => return None,
    };
    Some(text.to_owned())
}

/// Words with a meaning in stanza files.
const WORDS: [&str; 12] = [
    "{",
    "}",
    ";",
    "=",
    "#",
    ",",
    "\n",
    "Class",
    "Nodepool x",
    "parent = barn",
    "weight = 0",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(512)
    ))]

    #[test]
    fn mutated_documents_are_rejected_or_translated(
        mutations in prop::collection::vec(mutation(), 0..5)
    ) {
        let mut value = full_document();
        for mutation in &mutations {
            apply_mutation(&mut value, mutation);
        }
        match read(Document::from(value)) {
            Ok(policy) => {
                check_translation(&policy);
                check_round_trip(&policy);
            }
            Err(faults) => {
                prop_assert!(!faults.is_empty());
                prop_assert!(faults.iter().all(|fault| !fault.detail.is_empty()));
            }
        }
    }

    #[test]
    fn mutated_stanzas_are_rejected_or_become_a_policy(
        // Start and length of the replaced text, and the index of the word that replaces it.
        cuts in prop::collection::vec((any::<usize>(), 0_usize..30, 0..WORDS.len()), 0..5)
    ) {
        let mut text: Vec<char> = CLASSES.chars().collect();
        for (start, length, word) in cuts {
            let start = start % (text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, WORDS[word].chars());
        }
        let text: String = text.into_iter().collect();
        let lines = text.lines().count();
        let input = Input {
            classes: Source { name: "c", text: &text },
            users: None,
            properties: None,
            node_file: &node_file,
        };
        match import(input) {
            Ok(imported) => {
                prop_assert!(faults(&imported.policy).is_empty());
                check_translation(&imported.policy);
                check_round_trip(&imported.policy);
            }
            Err(faults) => {
                prop_assert!(!faults.is_empty());
                let is_in_file = |line: usize| (1..=lines).contains(&line);
                let class_file_faults = faults.iter().filter(|fault| fault.file == "c");
                prop_assert!(class_file_faults.filter_map(|fault| fault.line).all(is_in_file));
            }
        }
    }
}

#[test]
fn the_document_with_every_feature_is_valid() {
    let policy =
        read(Document::from(full_document())).unwrap_or_else(|faults| panic!("{faults:#?}"));
    check_translation(&policy);
    check_round_trip(&policy);
}
