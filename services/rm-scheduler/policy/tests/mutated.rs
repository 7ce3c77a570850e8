//! Random changes of documents and stanza files: reading never panics, and an accepted document can
//! be translated, written and read again. The fuzzer (`fuzz/`) does the same without a limit; here
//! `PROPTEST_CASES` sets the number of cases.

use hayward_rm_scheduler_domain::Snapshot;
use hayward_rm_scheduler_policy::import::{Input, Source, import};
use hayward_rm_scheduler_policy::{
    Document, Identity, Policy, Rules, differences, faults, notes, read,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns a document that uses every feature.
fn sound() -> Value {
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
fn odd() -> impl Strategy<Value = Value> {
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
    /// Replaces the value at the place of this number.
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
        (any::<usize>(), odd()).prop_map(|(at, value)| Mutation::Replace(at, value)),
        any::<usize>().prop_map(Mutation::Remove),
        (any::<usize>(), name, odd()).prop_map(|(at, name, value)| Mutation::Add(at, name, value)),
    ]
}

/// Collects the pointers of all places of a document.
fn places(at: &str, value: &Value, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let step = hayward_rm_scheduler_policy::pointer(&[name]);
                places(&format!("{at}{step}"), value, all);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                places(&format!("{at}/{place}"), item, all);
            }
        }
        _ => {}
    }
}

fn apply(value: &mut Value, mutation: &Mutation) {
    let mut all = Vec::new();
    places("", value, &mut all);
    let chosen = |at: usize| all[at % all.len()].clone();
    match mutation {
        Mutation::Replace(at, new) => {
            if let Some(place) = value.pointer_mut(&chosen(*at)) {
                *place = new.clone();
            }
        }
        Mutation::Remove(at) => {
            let pointer = chosen(*at);
            let (above, last) = pointer.rsplit_once('/').unwrap_or(("", ""));
            if let Some(fields) = value.pointer_mut(above).and_then(Value::as_object_mut) {
                fields.remove(&last.replace("~1", "/").replace("~0", "~"));
            }
        }
        Mutation::Add(at, name, new) => {
            if let Some(fields) = value
                .pointer_mut(&chosen(*at))
                .and_then(Value::as_object_mut)
            {
                fields.insert(name.clone(), new.clone());
            }
        }
    }
}

/// Checks the guarantees for an accepted policy.
fn resolves(policy: &Policy) {
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
    rules.write(&mut Snapshot::empty());
    notes(policy);
}

fn round_trips(policy: &Policy) {
    let json = serde_json::to_string(policy).expect("a policy can be written");
    let document: Document = serde_json::from_str(&json).expect("what was written is JSON");
    assert_eq!(
        &read(document).expect("what was accepted is accepted again"),
        policy
    );
    let yaml = yaml_serde::to_string(policy).expect("a policy can be written");
    let document: Document = yaml_serde::from_str(&yaml).expect("what was written is YAML");
    let again = read(document).expect("what was accepted is accepted again");
    assert!(differences(policy, &again).is_empty());
}

const CLASSES: &str = include_str!("../samples/village.classes");

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
        let mut value = sound();
        for mutation in &mutations {
            apply(&mut value, mutation);
        }
        match read(Document::from(value)) {
            Ok(policy) => {
                resolves(&policy);
                round_trips(&policy);
            }
            Err(faults) => {
                prop_assert!(!faults.is_empty());
                prop_assert!(faults.iter().all(|fault| !fault.detail.is_empty()));
            }
        }
    }

    #[test]
    fn mutated_stanzas_are_rejected_or_become_a_policy(
        cuts in prop::collection::vec((any::<usize>(), 0_usize..30, 0..WORDS.len()), 0..5)
    ) {
        let mut text: Vec<char> = CLASSES.chars().collect();
        for (at, length, word) in cuts {
            let at = at % (text.len() + 1);
            let end = (at + length).min(text.len());
            text.splice(at..end, WORDS[word].chars());
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
                resolves(&imported.policy);
                round_trips(&imported.policy);
            }
            Err(faults) => {
                prop_assert!(!faults.is_empty());
                let there = |line: usize| (1..=lines).contains(&line);
                let own = faults.iter().filter(|fault| fault.file == "c");
                prop_assert!(own.filter_map(|fault| fault.line).all(there));
            }
        }
    }
}

#[test]
fn the_document_with_every_feature_is_valid() {
    let policy = read(Document::from(sound())).unwrap_or_else(|faults| panic!("{faults:#?}"));
    resolves(&policy);
    round_trips(&policy);
}
