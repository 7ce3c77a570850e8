//! Tests: the rules that result from small policy documents, and from changes to the default
//! policy.

use hayward_rm_scheduler_api::policy::{Class, Pool, PoolMount};
use hayward_vocabulary::resources::GIB;
use serde_json::json;

use super::*;
use crate::{Document, read};

fn read_policy(document: serde_json::Value) -> Policy {
    read(Document::from(document)).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

#[test]
fn attributes_are_inherited_and_templates_dropped() {
    let policy = read_policy(json!({
        "pools": {"default": {}},
        "classes": {
            "base": {"abstract": true, "policy": "FAIR_SHARE", "pool": "default", "weight": 30,
                     "users": ["ada"], "initialization_cap": 4},
            "mid": {"parent": "base", "weight": 60, "default": true},
            "leaf": {"parent": "mid", "users": [], "prediction_fudge_ms": 7},
        },
    }));
    let rules = Rules::new(&policy);
    let names: Vec<&str> = rules.classes.keys().map(String::as_str).collect();
    assert_eq!(names, ["leaf", "mid"]);
    let (mid, leaf) = (&rules.classes["mid"], &rules.classes["leaf"]);
    assert_eq!((mid.weight, leaf.weight, leaf.priority), (60, 60, 10));
    assert!(mid.default && !leaf.default, "`default` is not inherited");
    assert!(
        mid.users.contains("ada") && leaf.users.is_empty(),
        "an empty list replaces the inherited list"
    );
    assert_eq!(leaf.growth.initialization_cap, Some(4));
    assert_eq!(leaf.growth.prediction_fudge_ms, Some(7));
}

#[test]
fn defaults_are_filled_in_after_inheritance() {
    let rules = Rules::new(&read_policy(json!({
        "pools": {"p": {}},
        "classes": {
            "f": {"policy": "FAIR_SHARE", "pool": "p", "default": true},
            "s": {"policy": "FIXED_SHARE", "pool": "p", "default": true},
            "r": {"policy": "RESERVE", "pool": "p", "default": true},
        },
    })));
    let priority_and_weight =
        |name: &str| (rules.classes[name].priority, rules.classes[name].weight);
    assert_eq!(
        [
            priority_and_weight("f"),
            priority_and_weight("s"),
            priority_and_weight("r")
        ],
        [(10, 100), (5, 100), (1, 100)]
    );
}

#[test]
fn classes_without_fair_shares_grow_by_the_global_values() {
    let mut policy = Policy::default();
    let base = Class {
        is_abstract: true,
        initialization_cap: Some(9),
        ..Class::default()
    };
    policy.classes.insert("base".into(), base);
    for name in ["service", "normal"] {
        policy.classes.entry(name.into()).or_default().parent = Some("base".into());
    }
    let rules = Rules::new(&policy);
    assert_eq!(rules.classes["service"].growth.initialization_cap, None);
    assert_eq!(rules.classes["normal"].growth.initialization_cap, Some(9));
}

#[test]
fn debug_is_inherited_and_only_for_fair_classes() {
    let mut policy = Policy::default();
    policy.classes.entry("normal".into()).or_default().debug = Some("service".into());
    policy.classes.entry("low".into()).or_default().parent = Some("normal".into());
    let rules = Rules::new(&policy);
    assert_eq!(rules.classes["low"].debug_class.as_deref(), Some("service"));
    assert_eq!(rules.classes["high"].debug_class, None);
}

#[test]
fn users_have_limits_in_total_and_by_class() {
    let rules = Rules::new(&read_policy(json!({
        "pools": {"default": {}},
        "classes": {"s": {"policy": "FIXED_SHARE", "pool": "default", "default": true}},
        "users": {"ada": {"max_allotment_gb": 7, "max_allotment_gb_by_class": {"s": 3}},
                  "ben": {"max_allotment_quanta": 2}},
        "tunables": {"global_allotment_gb": 5},
    })));
    let ada = &rules.users["ada"];
    assert_eq!(ada.max_allotment_bytes, Some(7 * GIB));
    assert_eq!(ada.max_allotment_by_class["s"], 3 * GIB);
    assert_eq!(rules.users["ben"].max_allotment_bytes, Some(2 * GIB));
    assert_eq!(rules.tunables.global_allotment_bytes, Some(5 * GIB));
}

#[test]
fn the_global_allotment_can_be_disabled() {
    let mut policy = Policy::default();
    policy.tunables.global_allotment_gb = Some(5);
    policy.tunables.use_global_allotment = false;
    assert_eq!(Rules::new(&policy).tunables.global_allotment_bytes, None);
}

#[test]
fn a_tree_has_the_quantum_of_its_root() {
    let policy = read_policy(json!({
        "quantum": {"memory_bytes": GIB, "cpu_milli": 500},
        "pools": {"a": {}, "b": {"quantum": {"memory_bytes": 4 * GIB, "gpu_milli": 1000}}},
        "classes": {},
    }));
    let rules = Rules::new(&policy);
    assert_eq!(rules.quantum.0.cpu_milli, 500);
    assert_eq!(rules.pools["a"].quantum, None);
    let own = rules.pools["b"].quantum.as_ref().unwrap();
    assert_eq!((own.0.memory_bytes, own.0.gpu_milli), (4 * GIB, 1000));
}

#[test]
fn the_field_place_sets_the_order_of_definition() {
    let policy = read_policy(json!({
        "pools": {"a": {"place": 2}, "b": {"place": 1}, "default": {}, "c": {}},
        "classes": {
            "x": {"policy": "FIXED_SHARE", "pool": "a", "place": 2, "default": true},
            "y": {"policy": "FIXED_SHARE", "pool": "a", "place": 1},
            "w": {"policy": "FIXED_SHARE", "pool": "a"},
        },
    }));
    let rules = Rules::new(&policy);
    let pool = |name: &str| rules.pools[name].position;
    assert_eq!(
        [pool("b"), pool("a"), pool("default"), pool("c")],
        [0, 1, 2, 3]
    );
    let class = |name: &str| rules.classes[name].position;
    assert_eq!([class("y"), class("x"), class("w")], [0, 1, 2]);
    let node = Identity {
        name: "n1",
        ..Identity::default()
    };
    assert_eq!(
        rules.pool_of(node),
        Some("b"),
        "the first top-level pool is the default"
    );
}

#[test]
fn memory_is_withheld_on_every_node() {
    let mut policy = Policy::default();
    policy.tunables.node_reserved_gb = 2;
    let reported = Size {
        cpu_milli: 7,
        ..Size::memory(8 * GIB)
    };
    let capacity = Rules::new(&policy).capacity(&reported);
    assert_eq!((capacity.memory_bytes, capacity.cpu_milli), (6 * GIB, 7));
    assert_eq!(
        Rules::new(&policy)
            .capacity(&Size::memory(GIB))
            .memory_bytes,
        0
    );
    policy.tunables.node_memory_override_gb = 32;
    assert_eq!(
        Rules::new(&policy).capacity(&reported).memory_bytes,
        30 * GIB
    );
}

#[test]
fn a_profile_is_a_set_of_settings() {
    let settings_of = |field: &str, profile: &str, settings: serde_json::Value| {
        let document = json!({
            "pools": {"default": {}}, "classes": {}, field: profile, "settings": settings,
        });
        Rules::new(&read_policy(document)).tunables.settings
    };
    for field in ["profile", "preset"] {
        let (default, reference) = (Settings::default(), Settings::reference());
        assert_eq!(settings_of(field, "default", json!({})), default);
        assert_eq!(settings_of(field, "reference", json!({})), reference);
    }
    let expected = Settings {
        lend_idle: false,
        churn_rounds: None,
        ..Settings::default()
    };
    let switches = json!({"lend_idle": false, "churn_rounds": 0});
    assert_eq!(settings_of("profile", "default", switches), expected);
}

/// Each setting of the planner is a switch of the document, and has an effect or a note.
#[test]
fn a_switch_has_an_effect_or_a_note() {
    let values = serde_json::to_value(Settings::default()).unwrap();
    for (name, value) in values.as_object().unwrap() {
        let other = match value {
            serde_json::Value::Bool(is_on) => json!(!is_on),
            _ => json!(7),
        };
        let document = json!({
            "pools": {"default": {}}, "classes": {}, "settings": {name: other},
        });
        let policy = read_policy(document);
        let notes = crate::notes(&policy);
        let has_effect = Rules::new(&policy).tunables.settings != Settings::default();
        assert_eq!(has_effect, notes.is_empty(), "{name}: {notes:?}");
        if let [note] = notes.as_slice() {
            let ending = "is accepted and has no effect; use `profile`";
            assert_eq!(*note, format!("/settings/{name}: {ending}"));
        }
    }
}

#[test]
fn faulty_entries_of_a_policy_are_skipped() {
    let mut policy = Policy::default();
    policy.classes.insert("lost".into(), Class::default());
    let cycle = Class {
        parent: Some("circle".into()),
        ..Class::default()
    };
    policy.classes.insert("circle".into(), cycle);
    let invalid = Pool {
        pattern: Some("(".into()),
        ..Pool::default()
    };
    policy.pools.insert("odd".into(), invalid);
    let rules = Rules::new(&policy);
    // The five classes of the default policy remain. The new pool remains without its pattern.
    assert_eq!(rules.classes.len(), 5);
    assert_eq!(rules.pools.len(), 2);
}

#[test]
fn nodes_with_an_engine_get_the_mounts_of_their_pool() {
    let mount = |source: &str, writable| PoolMount {
        source: source.into(),
        writable,
    };
    let mut policy = Policy::default();
    let pool = Pool {
        mounts: vec![mount("/srv/in", false), mount("/srv/out", true)],
        ..Pool::default()
    };
    policy.pools.insert("data".into(), pool);
    let rules = Rules::new(&policy);
    let reported = |extras: &[&str]| Size {
        extras: extras.iter().map(|name| ((*name).to_owned(), 7)).collect(),
        ..Size::memory(GIB)
    };
    let names = |pool: &str, extras: &[&str]| -> Vec<String> {
        rules
            .offer(pool, &reported(extras))
            .extras
            .into_keys()
            .collect()
    };
    let with_engine = [
        "docker",
        "mount:/srv/in:ro",
        "mount:/srv/out:ro",
        "mount:/srv/out:rw",
    ];
    assert_eq!(names("data", &["docker"]), with_engine);
    assert_eq!(names("data", &["fpga"]), ["fpga"], "no engine, no mounts");
    assert_eq!(names("other", &["docker"]), ["docker"]);
    // An agent cannot add mounts that the policy does not list.
    assert_eq!(names("other", &["docker", "mount:/etc:rw"]), ["docker"]);
}
