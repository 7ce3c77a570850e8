//! Tests: all faults of an invalid scenario are reported at once, each with its location and a hint
//! how to correct it.

use hayward_rm_scheduler_scenario::{OutcomeOptions, Scenario};
use serde_json::{Value, json};

/// Returns a small valid scenario.
fn valid_scenario() -> Value {
    json!({
        "format": "hayward-scenario/1",
        "settings": {"share_quantum_gb": 1},
        "nodepools": [{"name": "top"}, {"name": "fast", "parent": "top", "nodes": ["f1"]}],
        "classes": [
            {"name": "normal", "policy": "FAIR_SHARE", "priority": 10, "weight": 100,
             "nodepool": "top"},
            {"name": "fixed", "policy": "FIXED_SHARE", "priority": 5, "weight": 7,
             "nodepool": "top"},
        ],
        "cycles": [{"cycle": 1, "events": []}],
    })
}

/// Returns the number of cycles of the run, or the chain of errors.
fn run(scenario: &Value) -> Result<usize, String> {
    let parsed = Scenario::read(&scenario.to_string());
    let outcomes = parsed.and_then(|scenario| scenario.run(OutcomeOptions::default()));
    outcomes.map(|cycles| cycles.len()).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    })
}

fn assert_rejected(scenario: &Value, parts: &[&str]) {
    let error = run(scenario).expect_err("a fault");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[test]
fn parts_that_a_scenario_does_not_need_may_be_missing() {
    // The scenario has no default class, a pool without nodes, and a weight without effect.
    let mut scenario = valid_scenario();
    scenario["nodepools"][1]["nodes"] = json!([]);
    assert_eq!(run(&scenario), Ok(1));
}

#[test]
fn all_faults_of_a_policy_are_reported_at_once() {
    let mut scenario = valid_scenario();
    scenario["nodepools"] = json!([
        {"name": "top", "nodes": ["f1.example.org"], "domain": "example.org"},
        {"name": "fast", "parent": "top", "nodes": ["f1"], "share_quantum_gb": 2},
        {"name": "fast"},
        {"name": "lost", "parent": "nowhere"},
    ]);
    scenario["classes"] = json!([
        {"name": "normal", "policy": "FAIR_SHARE", "weight": 0, "nodepool": "top"},
        {"name": "mixed", "policy": "FIXED_SHARE", "priority": 10, "nodepool": "top"},
        {"name": "astray", "policy": "RESERVE", "nodepool": "beside"},
    ]);
    scenario["users"] = json!([{"name": "ada", "max_allotment_gb.none": 3}, {"colour": 3}]);
    assert_rejected(
        &scenario,
        &[
            "nodepools[2].name (\"fast\"): nodepools[1] has this name already",
            "nodepools[3].parent (\"lost\"): there is no pool \"nowhere\"",
            "classes[0].weight (\"normal\"): must be at least 1",
            "classes[1].priority (\"mixed\"): class \"normal\" has priority 10 too",
            "classes[2].nodepool (\"astray\"): there is no pool \"beside\"",
            "there is no class \"none\"",
            "users[1].colour: is not known here",
        ],
    );
    scenario["nodepools"].as_array_mut().unwrap().truncate(2);
    assert_rejected(
        &scenario,
        &[
            "nodepools[1].nodes[0] (\"fast\"): is in pool \"top\" already, as \"f1.example.org\"",
            "nodepools[1].share_quantum_gb (\"fast\"): only a pool without parent has a quantum",
        ],
    );
}

#[test]
fn a_cycle_of_pools_and_two_default_classes_are_rejected() {
    let mut scenario = valid_scenario();
    scenario["nodepools"][0]["parent"] = json!("fast");
    assert_rejected(
        &scenario,
        &["nodepools[0].parent (\"top\"): pools form a cycle"],
    );
    let mut scenario = valid_scenario();
    for name in ["normal", "other"] {
        let class = json!({"name": name, "policy": "FAIR_SHARE", "nodepool": "top",
            "default": true});
        scenario["classes"].as_array_mut().unwrap().push(class);
    }
    scenario["classes"].as_array_mut().unwrap().remove(0);
    assert_rejected(
        &scenario,
        &["classes[2].default (\"other\"): class \"normal\" is the default"],
    );
}

#[test]
fn an_invalid_policy_event_is_reported_with_its_cycle() {
    let mut scenario = valid_scenario();
    let classes = json!([{"name": "normal", "policy": "FAIR_SHARE", "nodepool": "beside"}]);
    let event = json!({"type": "policy", "classes": classes});
    scenario["cycles"] = json!([{"cycle": 1}, {"cycle": 7, "events": [event]}]);
    assert_rejected(
        &scenario,
        &["cycle 7: its policy has 1 fault", "classes[0].nodepool"],
    );
}

#[test]
fn cycles_have_a_limit_and_an_order() {
    let mut scenario = valid_scenario();
    scenario["cycles"] = json!([{"cycle": 1}, {"cycle": 1_000_000_000_000_u64}]);
    assert_rejected(
        &scenario,
        &["cycles[1].cycle is 1000000000000", "at most 100000 cycles"],
    );
    scenario["cycles"] = json!([{"cycle": 18_446_744_073_709_551_615_u64}, {}]);
    assert_rejected(&scenario, &["cycles[0].cycle"]);
    scenario["cycles"] = json!([{"cycle": 5}, {"cycle": 5}]);
    assert_rejected(&scenario, &["cycles[1].cycle is 5: must be at least 6"]);
    scenario["cycles"] = json!([{"cycle": 5}, {"cycle": 8}]);
    assert_eq!(run(&scenario), Ok(4));
}

#[test]
fn huge_numbers_are_rejected_or_harmless() {
    let mut scenario = valid_scenario();
    scenario["simulation"] = json!({"init_time_ms": 18_000_000_000_000_000_000_u64});
    assert_rejected(
        &scenario,
        &["simulation.init_time_ms", "is no time in milliseconds"],
    );
    let mut scenario = valid_scenario();
    let max_number = json!(9_223_372_036_854_775_807_i64);
    let report = json!({"type": "node_report", "node": "f1", "memory_gb": 8});
    let mut events = vec![report];
    for job in ["a", "b", "c"] {
        events.push(
            json!({"type": "submit", "job": job, "kind": "job", "user": job,
            "class": "normal", "memory_gb": 1, "threads": 1, "max_processes": max_number,
            "work_items": 18_446_744_073_709_551_615_u64}),
        );
    }
    scenario["settings"]["initialization_cap"] = json!(0);
    scenario["cycles"] = json!([{"cycle": 1, "events": events}, {"cycle": 9}]);
    assert_eq!(run(&scenario), Ok(9));
}
