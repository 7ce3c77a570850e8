//! Test with random small fleets in which exactly one piece of work waits. The change that the
//! verdict names (`unblock`) starts this work.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::plan::Unblock;
use hayward_rm_scheduler_scenario::{JobOutcome, Outcome, OutcomeOptions, Scenario};
use serde_json::{Value, json};

const ALL_PARTS: OutcomeOptions = OutcomeOptions {
    places: true,
    explain: true,
};
const FLEET_COUNT: u64 = 500;
/// Last cycle before the change.
const LAST_CYCLE: u64 = 6;

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn number_below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn is_one_in(&mut self, end: u64) -> bool {
        self.number_below(end) == 0
    }
}

/// A fleet in which the work `X` of user `x` may wait. One gigabyte is one quantum.
struct Fleet {
    /// Gigabytes of each node of the pool `main`.
    nodes: BTreeMap<String, u64>,
    /// The event that submits `X`.
    waiting_work: Value,
    /// Allotment of user `x` in gigabytes.
    allotment: u64,
    scenario: Value,
}

/// Returns the classes. Only this user may use the class `closed`.
fn classes(closed_class_user: &str) -> Value {
    json!([
        {"name": "fair", "policy": "FAIR_SHARE", "priority": 10, "nodepool": "main"},
        {"name": "fixed", "policy": "FIXED_SHARE", "priority": 5, "nodepool": "main"},
        {"name": "low", "policy": "FAIR_SHARE", "priority": 20, "nodepool": "main"},
        {"name": "whole", "policy": "RESERVE", "priority": 1, "nodepool": "main"},
        {"name": "closed", "policy": "FAIR_SHARE", "priority": 10, "nodepool": "main",
         "users": [closed_class_user]},
    ])
}

/// Returns the pools. The pool `main` lists these nodes, and `aside` lists `b0` and `b1`.
fn pools(main_nodes: &[&str]) -> Value {
    let mut other_nodes = vec!["b0", "b1"];
    other_nodes.retain(|node| !main_nodes.contains(node));
    json!([{"name": "main", "nodes": main_nodes}, {"name": "aside", "nodes": other_nodes}])
}

/// Returns the submission of `X`, the work whose verdict is tested.
fn random_submission(random: &mut Random) -> Value {
    let (kind, class) = [
        ("job", "closed"),
        ("job", "fair"),
        ("job", "fair"),
        ("service", "fixed"),
        ("service", "fixed"),
        ("reservation", "whole"),
        ("reservation", "whole"),
    ][usize::try_from(random.number_below(7)).expect("a small number")];
    let mut work = json!({"type": "submit", "job": "X", "kind": kind, "user": "x", "class": class,
        "memory_gb": 1 + random.number_below(8), "submit_time": 9});
    if random.is_one_in(3) {
        work["machine_list"] = match random.number_below(3) {
            0 => json!(["n0"]),
            1 => json!(["b0"]),
            _ => json!(["nowhere"]),
        };
    }
    work
}

fn random_fleet(random: &mut Random) -> Fleet {
    let mut nodes = BTreeMap::new();
    for index in 0..=random.number_below(4) {
        nodes.insert(format!("n{index}"), 1 + random.number_below(6));
    }
    let mut events: Vec<Value> = nodes
        .iter()
        .map(|(node, gb)| json!({"type": "node_report", "node": node, "memory_gb": gb}))
        .collect();
    // Allocations that stay, and allocations that can be preempted.
    for index in 0..random.number_below(4) {
        events.push(
            json!({"type": "submit", "job": format!("S{index}"), "kind": "service",
            "user": "s", "class": "fixed", "memory_gb": 1 + random.number_below(3),
            "submit_time": index}),
        );
    }
    if random.is_one_in(2) {
        events.push(
            json!({"type": "submit", "job": "J", "kind": "job", "user": "j",
            "class": "low", "memory_gb": 1, "submit_time": 5, "threads": 1, "work_items": 100,
            "max_processes": 1 + random.number_below(6), "time_per_item_ms": 1000}),
        );
    }
    let waiting_work = random_submission(random);
    let mut later = Vec::new();
    if random.is_one_in(3) {
        let node = format!("n{}", random.number_below(nodes.len() as u64));
        later.push(
            json!({"type": (if random.is_one_in(2) {"node_dead"} else {"vary_off"}),
            "node": node}),
        );
    }
    later.push(waiting_work.clone());
    let allotment = 1 + random.number_below(8);
    let scenario = json!({
        "settings": {"share_quantum_gb": 1, "initialization_cap": 0, "prediction": false,
            "profile": "default", "fragmentation_threshold": 2,
            "preemption_pool_percent_per_hour": 1_000_000,
            "preemption_user_percent_per_hour": 1_000_000},
        "nodepools": pools(&[]), "classes": classes("other"),
        "users": [{"name": "x", "max_allotment_gb": allotment}],
        "cycles": [{"cycle": 1, "events": events}, {"cycle": 3, "events": later},
            {"cycle": LAST_CYCLE}],
    });
    Fleet {
        nodes,
        waiting_work,
        allotment,
        scenario,
    }
}

fn run(scenario: &Value) -> Vec<Outcome> {
    let scenario = Scenario::read(&scenario.to_string()).expect("a scenario");
    scenario.run(ALL_PARTS).expect("outcomes")
}

/// Returns events that make the change, and the work to check.
fn events_for_change(
    fleet: &Fleet,
    change: &Unblock,
    last: &Outcome,
) -> Option<(Vec<Value>, &'static str)> {
    let job_done = |job: &str| json!({"type": "job_done", "job": job});
    let resubmitted = |field: &str, value: Value| {
        let mut work = fleet.waiting_work.clone();
        work["job"] = json!("Y");
        work[field] = value;
        (vec![job_done("X"), work], "Y")
    };
    Some(match change {
        Unblock::Wait { .. } => (Vec::new(), "X"),
        Unblock::FreeRoom { node, quanta } => {
            let mut freed = 0;
            let mut events = Vec::new();
            for (id, job) in &last.jobs {
                let places = job.places.iter().flatten();
                let processes = places.filter(|place| *place == node.as_str()).count() as u64;
                if id.as_str().starts_with('S') && processes > 0 && freed < *quanta {
                    freed += processes * job.order;
                    events.push(job_done(id.as_str()));
                }
            }
            (events, "X")
        }
        Unblock::RaiseAllotment { bytes } => {
            let limit = fleet.allotment + bytes.div_ceil(1 << 30);
            let users = json!([{"name": "x", "max_allotment_gb": limit}]);
            (vec![json!({"type": "policy", "users": users})], "X")
        }
        Unblock::AskForLess { quanta } => resubmitted("memory_gb", json!(quanta)),
        Unblock::ListNode { node } => resubmitted("machine_list", json!([node])),
        Unblock::AddNode { quanta } => {
            let listed = fleet.waiting_work["machine_list"][0].as_str();
            let node = listed.filter(|node| !fleet.nodes.contains_key(*node));
            if listed.is_some() && node.is_none() {
                return None;
            }
            let node = node.unwrap_or("new");
            let report = json!({"type": "node_report", "node": node, "memory_gb": quanta});
            let policy = json!({"type": "policy", "nodepools": pools(&[node])});
            (vec![policy, report], "X")
        }
        Unblock::OpenNode { node } => {
            let memory_gb = fleet.nodes[node.as_str()];
            let report = json!({"type": "node_report", "node": node, "memory_gb": memory_gb});
            (vec![json!({"type": "vary_on", "node": node}), report], "X")
        }
        Unblock::NameClass => resubmitted("class", json!("fair")),
        other => panic!("no fleet of this test needs {other:?}"),
    })
}

fn is_waiting(job: &JobOutcome) -> bool {
    job.processes == 0 && job.reason.is_some()
}

/// Minimum number of fleets per reason, so that the test covers all of them. A reason is written as
/// in JSON.
const MIN_FLEETS_PER_REASON: [(&str, u64); 7] = [
    ("\"no_host_large_enough\"", 20),
    ("\"no_host_of_size\"", 10),
    ("\"no_listed_machine\"", 20),
    ("\"insufficient_resources\"", 4),
    ("\"resources_exhausted\"", 3),
    ("\"allotment_exceeded\"", 3),
    ("\"not_authorised\"", 20),
];

#[test]
fn the_change_named_by_unblock_starts_the_work() {
    let mut fleets_by_reason: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..FLEET_COUNT {
        let fleet = random_fleet(&mut Random(seed));
        let outcomes = run(&fleet.scenario);
        // Rejected work has one outcome and is then dropped.
        let outcome = outcomes.iter().rev().find(|it| it.jobs.contains_key("X"));
        let last = outcome.unwrap();
        let (job_x, jobs) = (&last.jobs["X"], last.jobs.iter());
        let others_wait = jobs.filter(|(_, job)| is_waiting(job)).count() > 1;
        let is_blocked = is_waiting(job_x) && !others_wait;
        let Some(explained) = job_x.explain.as_ref().filter(|_| is_blocked) else {
            continue;
        };
        let name = serde_json::to_value(explained.reason).unwrap().to_string();
        let Some(change) = &explained.unblock else {
            panic!("{seed}: no change is named against {name}");
        };
        // With two different reasons one change is not enough.
        if explained
            .also
            .iter()
            .any(|reason| *reason != explained.reason)
        {
            continue;
        }
        let Some((events, work)) = events_for_change(&fleet, change, last) else {
            continue;
        };
        let mut scenario = fleet.scenario.clone();
        let cycles = scenario["cycles"].as_array_mut().unwrap();
        cycles.push(json!({"cycle": LAST_CYCLE + 1, "events": events}));
        cycles.push(json!({"cycle": LAST_CYCLE + 7}));
        let after = run(&scenario);
        // The change for refused work only makes a class accept it. The work may still wait then.
        let is_refused = |job: &JobOutcome| job.explain.as_ref().is_some_and(|it| it.refused);
        let only_names_class = *change == Unblock::NameClass;
        let has_effect = |outcome: &Outcome| {
            let job = outcome.jobs.get(work);
            let is_started =
                |job: &JobOutcome| job.processes > 0 || only_names_class && !is_refused(job);
            outcome.cycle > LAST_CYCLE && job.is_some_and(is_started)
        };
        assert!(
            after.iter().any(has_effect),
            "{seed}: {name}, {change:?} was done, and yet {:?}",
            after.last().unwrap().jobs.get(work)
        );
        *fleets_by_reason.entry(name).or_default() += 1;
    }
    for (reason, minimum) in MIN_FLEETS_PER_REASON {
        let fleets = fleets_by_reason.get(reason).copied().unwrap_or(0);
        assert!(
            fleets >= minimum,
            "{reason} was seen {fleets} times: {fleets_by_reason:?}"
        );
    }
}
