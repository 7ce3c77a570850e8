//! Scenarios of the rules of preemption: victims, guarantees, fences, priorities and delays.

use serde_json::{Value, json};

use super::VCORE;
use crate::fixture::{Fixture, POOL, granted_works, node_name, queued_mut};

/// Default of `preemption_delay_ms`.
const DELAY_MS: u64 = 30_000;

fn guaranteed(vcore: u64) -> Value {
    json!({"resources": {"guaranteed": {"vcore": vcore}}})
}

/// Creates a pool with these queues below the root, and the nodes `n0`, `n1` and so on with these
/// vcores.
fn fixture(queues: &Value, nodes: &[u64]) -> Fixture {
    let root = json!({"submit_acl": "*", "queues": queues});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    for (index, vcore) in nodes.iter().enumerate() {
        fixture.add_node(&format!("n{index}"), &[("vcore", vcore * VCORE)]);
    }
    fixture
}

#[test]
fn the_newest_process_leaves_for_guaranteed_work() {
    let parent = json!({"resources": {"max": {"vcore": 10}},
        "queues": {"leaf1": guaranteed(5), "leaf2": guaranteed(5)}});
    let mut fixture = fixture(&json!({"parent": parent}), &[10, 10]);
    fixture.add_processes("job_1", "root.parent.leaf1", 1, 5 * VCORE);
    fixture.step();
    fixture.add_processes("job_2", "root.parent.leaf1", 1, 5 * VCORE);
    fixture.step();
    fixture.add_processes("job_3", "root.parent.leaf2", 1, 5 * VCORE);
    let plan = fixture.step();
    assert!(plan.is_empty(), "no victim leaves before the delay");
    fixture.advance(DELAY_MS);
    let plan = fixture.step();
    assert_eq!(Fixture::preempted_allocations(&plan), ["alc_000002"]);
    assert_eq!(
        plan.receipts[0].beneficiary.as_ref().unwrap().as_str(),
        "job_3"
    );
    assert_eq!(
        fixture.queue("root.parent.leaf1").leaving["vcore"],
        5 * VCORE
    );
    assert_eq!(plan.carried.queues[POOL].reservations.len(), 1);
    // The victim leaves.
    assert!(fixture.step().is_empty());
    let plan = fixture.step();
    assert_eq!(granted_works(&plan), ["job_3"]);
    assert!(plan.carried.queues[POOL].reservations.is_empty());
}

#[test]
fn preemption_stops_at_the_guarantee() {
    let queue = json!({"resources": {"guaranteed": {"vcore": 5}, "max": {"vcore": 10}}});
    let parent = json!({"resources": {"max": {"vcore": 12}},
        "queues": {"queue-1": queue, "queue-2": queue}});
    let mut fixture = fixture(&json!({"parent": parent}), &[12, 12]);
    fixture.add_processes("job_1", "root.parent.queue-1", 10, VCORE);
    fixture.step();
    fixture.add_processes("job_2", "root.parent.queue-2", 10, VCORE);
    let mut preempted = 0;
    for _ in 0..40 {
        preempted += Fixture::preempted_allocations(&fixture.step()).len();
        fixture.advance(DELAY_MS);
    }
    assert_eq!(
        (
            fixture.count_running("job_1"),
            fixture.count_running("job_2"),
            preempted
        ),
        (7, 5, 3)
    );
}

#[test]
fn a_queue_without_guarantee_preempts_nothing() {
    let mut fixture = fixture(&json!({"a": {}, "b": {}}), &[4]);
    fixture.add_processes("job_1", "root.a", 4, VCORE);
    fixture.settle();
    fixture.add_processes("job_2", "root.b", 1, VCORE);
    fixture.advance(DELAY_MS);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_1"),
            fixture.count_running("job_2")
        ),
        (4, 0)
    );
}

#[test]
fn a_higher_priority_is_never_preempted() {
    let count_preempted = |priority: i32| {
        let mut fixture = fixture(&json!({"a": {}, "b": guaranteed(2)}), &[4]);
        queued_mut(fixture.add_processes("job_1", "root.a", 4, VCORE)).priority = priority;
        fixture.settle();
        fixture.add_processes("job_2", "root.b", 1, VCORE);
        fixture.advance(DELAY_MS);
        Fixture::preempted_allocations(&fixture.step()).len()
    };
    assert_eq!((count_preempted(0), count_preempted(1)), (1, 0));
}

#[test]
fn no_victim_is_outside_the_fence() {
    let count_preempted = |policy: &str| {
        let fenced = json!({"preemption": policy, "queues": {"b": guaranteed(2)}});
        let mut fixture = fixture(&json!({"a": {}, "fenced": fenced}), &[4]);
        fixture.add_processes("job_1", "root.a", 4, VCORE);
        fixture.settle();
        fixture.add_processes("job_2", "root.fenced.b", 1, VCORE);
        fixture.advance(DELAY_MS);
        Fixture::preempted_allocations(&fixture.step()).len()
    };
    assert_eq!(
        (count_preempted("default"), count_preempted("fence")),
        (1, 0)
    );
}

#[test]
fn a_queue_with_disabled_preemption_loses_nothing() {
    let protected = json!({"preemption": "disabled"});
    let mut fixture = fixture(&json!({"a": protected, "b": guaranteed(2)}), &[4]);
    fixture.add_processes("job_1", "root.a", 4, VCORE);
    fixture.settle();
    fixture.add_processes("job_2", "root.b", 1, VCORE);
    fixture.advance(DELAY_MS);
    assert!(fixture.step().is_empty());
}

#[test]
fn reluctant_processes_and_originators_are_preempted_last() {
    let mut fixture = fixture(&json!({"a": {}, "b": guaranteed(1)}), &[1, 1, 1]);
    for (index, (id, preemptable, originator)) in [
        ("job_first", true, true),
        ("job_stays", false, false),
        ("job_goes", true, false),
    ]
    .into_iter()
    .enumerate()
    {
        let demand = fixture.add_processes(id, "root.a", 1, VCORE);
        demand.node_list = [node_name(&format!("n{index}"))].into();
        queued_mut(demand).preemptable = preemptable;
        queued_mut(demand).originator = originator;
    }
    fixture.settle();
    fixture.add_processes("job_b", "root.b", 1, VCORE);
    fixture.advance(DELAY_MS);
    let plan = fixture.step();
    assert_eq!(plan.receipts[0].work.as_str(), "job_goes");
}

/// A large process is skipped if its loss would break a guarantee.
#[test]
fn oversized_victims_are_skipped() {
    let mut fixture = fixture(&json!({"a": guaranteed(3), "b": guaranteed(1)}), &[4]);
    fixture.add_processes("job_small", "root.a", 1, VCORE);
    fixture.step();
    fixture.add_processes("job_large", "root.a", 1, 3 * VCORE);
    fixture.step();
    fixture.add_processes("job_b", "root.b", 1, VCORE);
    fixture.advance(DELAY_MS);
    let plan = fixture.step();
    let preempted: Vec<&str> = plan.receipts.iter().map(|it| it.work.as_str()).collect();
    assert_eq!(preempted, ["job_small"]);
}

#[test]
fn no_victim_is_taken_without_effect() {
    let mut fixture = fixture(&json!({"a": {}, "b": guaranteed(4)}), &[2, 2]);
    fixture.add_processes("job_1", "root.a", 4, VCORE);
    fixture.settle();
    fixture.add_processes("job_2", "root.b", 1, 3 * VCORE);
    fixture.advance(DELAY_MS);
    assert!(fixture.step().is_empty());
}

#[test]
fn a_required_node_loses_no_more_than_needed() {
    let mut fixture = fixture(&json!({"a": guaranteed(4), "b": {}}), &[4]);
    fixture.add_processes("job_1", "root.a", 3, VCORE);
    fixture.settle();
    let demand = fixture.add_processes("job_2", "root.b", 1, 2 * VCORE);
    queued_mut(demand).required_node = Some(node_name("n0"));
    let plan = fixture.step();
    // One vcore is free and two are needed, so one victim leaves, regardless of guarantees.
    assert_eq!(Fixture::preempted_allocations(&plan).len(), 1);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_1"),
            fixture.count_running("job_2")
        ),
        (2, 1)
    );
}

#[test]
fn a_lowered_maximum_is_enforced_only_when_enabled() {
    let document = |max: u64, enforced: bool| {
        let leaf = json!({"resources": {"max": {"vcore": max}},
            "quota_preemption_delay_ms": 60_000});
        let root = json!({"submit_acl": "*", "queues": {"a": leaf}});
        json!({"queues": {"root": root}, "quota_preemption": enforced})
    };
    let mut fixture = Fixture::from_queues(&document(4, false));
    fixture.add_node("n0", &[("vcore", 4 * VCORE)]);
    fixture.add_processes("job_1", "root.a", 4, VCORE);
    fixture.settle();
    fixture.configure(&document(2, false));
    fixture.advance(600_000);
    assert!(fixture.step().is_empty());
    fixture.configure(&document(2, true));
    assert!(
        fixture.step().is_empty(),
        "no victim leaves before the delay"
    );
    fixture.advance(60_000);
    assert_eq!(Fixture::preempted_allocations(&fixture.step()).len(), 2);
    fixture.settle();
    assert_eq!(fixture.count_running("job_1"), 2);
}

/// The two queues have no guarantee of their own and share that of their parent. Preempted work
/// always returns.
#[test]
fn siblings_below_one_guarantee_do_not_preempt_each_other_forever() {
    let parent = json!({"resources": {"guaranteed": {"vcore": 4}}, "queues": {"a": {}, "b": {}}});
    let mut fixture = fixture(&json!({"parent": parent}), &[4]);
    fixture.add_processes("job_1", "root.parent.a", 4, VCORE);
    fixture.settle();
    fixture.add_processes("job_2", "root.parent.b", 4, VCORE);
    let mut preempted = 0;
    for _ in 0..40 {
        preempted += Fixture::preempted_allocations(&fixture.step()).len();
        fixture.advance(DELAY_MS);
    }
    assert_eq!(preempted, 0);
}

#[test]
fn a_returned_process_is_protected_for_a_while() {
    let mut fixture = fixture(&json!({"a": {}, "b": guaranteed(2)}), &[2, 2]);
    let preempted_at = fixture.snapshot.now;
    fixture.add_processes("job_1", "root.a", 4, VCORE);
    fixture.advance(1_000);
    fixture.settle();
    let carried = fixture
        .snapshot
        .carried
        .queues
        .entry(POOL.to_owned())
        .or_default();
    carried
        .last_loss
        .insert("job_1".parse().unwrap(), preempted_at);
    fixture.add_processes("job_2", "root.b", 1, VCORE);
    fixture.advance(DELAY_MS);
    assert!(Fixture::preempted_allocations(&fixture.step()).is_empty());
    // The cooldown of 60 s, in which returned work is protected, is over.
    fixture.advance(60_000);
    assert_eq!(Fixture::preempted_allocations(&fixture.step()).len(), 1);
}
