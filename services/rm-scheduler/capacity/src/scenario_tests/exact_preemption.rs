//! Scenarios in which exactly the needed victims are preempted, although victims take time to stop.
//! Work may preempt after it has waited for 30 s, the default delay.

use hayward_rm_scheduler_domain::{Plan, Reason};
use serde_json::{Value, json};

use super::VCORE;
use crate::fixture::{Fixture, gang_named, node_name, queued_mut};

/// Returns the configuration of a queue with this guarantee.
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

fn victim_works(plan: &Plan) -> Vec<&str> {
    plan.receipts.iter().map(|it| it.work.as_str()).collect()
}

/// Runs several rounds in which the allocations of `slow` works do not stop. Returns the number of
/// preempted processes.
fn run_rounds_with_slow_victims(fixture: &mut Fixture, slow: &[&str], rounds: usize) -> usize {
    let mut preempted = 0;
    for _ in 0..rounds {
        let plan = fixture.plan();
        preempted += plan.receipts.len();
        fixture.carry_out_except(&plan, |_, allocation| {
            slow.contains(&allocation.work.as_str())
        });
    }
    preempted
}

/// Until the preemption delay ends, the node is reserved for the process without a victim.
#[test]
fn one_victim_leaves_for_one_process_after_any_wait() {
    for delay in [1_000, 5_000, 30_000] {
        let preempting_leaf = json!({"resources": {"guaranteed": {"vcore": 5}},
            "preemption_delay_ms": delay});
        let mut fixture = fixture(&json!({"a": {}, "b": preempting_leaf}), &[40]);
        fixture.add_processes("job_a", "root.a", 8, 5 * VCORE);
        fixture.settle();
        fixture.add_processes("job_b", "root.b", 1, 5 * VCORE);
        let mut preempted = 0;
        for _ in 0..50 {
            preempted += fixture.step().receipts.len();
        }
        let counts = (
            fixture.count_running("job_a"),
            fixture.count_running("job_b"),
        );
        assert_eq!((preempted, counts), (1, (7, 1)), "after {delay} ms");
    }
}

/// The node `n0` is reserved first, without victims. Then `n1` is reserved with two victims, of
/// which one stops slowly.
#[test]
fn a_reservation_with_victims_goes_before_one_without() {
    let mut fixture = fixture(&json!({"a": {}, "b": guaranteed(3)}), &[4, 4]);
    for (id, node, vcore) in [
        ("job_a", "n0", 4),
        ("job_slow", "n1", 2),
        ("job_fast", "n1", 2),
    ] {
        let demand = fixture.add_processes(id, "root.a", 1, vcore * VCORE);
        demand.node_list = [node_name(node)].into();
        queued_mut(demand).preemptable = id != "job_a";
    }
    fixture.settle();
    fixture.add_processes("job_b", "root.b", 1, 3 * VCORE);
    fixture.advance(3_000);
    fixture.step();
    fixture.advance(30_000);
    let plan = fixture.step();
    assert_eq!(victim_works(&plan).len(), 2);
    run_rounds_with_slow_victims(&mut fixture, &["job_slow"], 3);
    assert_eq!(fixture.count_running("job_fast"), 0);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_a"),
            fixture.count_running("job_b")
        ),
        (1, 1)
    );
}

#[test]
fn the_quota_stays_reserved_while_victims_stop() {
    let parent = json!({"resources": {"max": {"vcore": 8}},
        "queues": {"one": {}, "two": guaranteed(5)}});
    let mut fixture = fixture(&json!({"parent": parent}), &[20]);
    fixture.add_processes("job_one", "root.parent.one", 2, 2 * VCORE);
    fixture.settle();
    fixture.add_processes("job_two", "root.parent.two", 1, 5 * VCORE);
    fixture.advance(30_000);
    let preempted = run_rounds_with_slow_victims(&mut fixture, &["job_one"], 4);
    assert_eq!((preempted, fixture.count_running("job_one")), (1, 1));
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_one"),
            fixture.count_running("job_two")
        ),
        (1, 1)
    );
}

#[test]
fn a_fast_victim_does_not_return_while_a_slow_one_stops() {
    let parent = json!({"resources": {"max": {"vcore": 9}},
        "queues": {"one": {}, "two": guaranteed(9)}});
    let mut fixture = fixture(&json!({"parent": parent}), &[20]);
    fixture.add_processes("job_slow", "root.parent.one", 1, 5 * VCORE);
    fixture.add_processes("job_fast", "root.parent.one", 1, 4 * VCORE);
    fixture.settle();
    fixture.add_processes("job_two", "root.parent.two", 1, 9 * VCORE);
    fixture.advance(30_000);
    let preempted = run_rounds_with_slow_victims(&mut fixture, &["job_slow"], 10);
    assert_eq!((preempted, fixture.count_running("job_fast")), (2, 0));
    let detail = &fixture.plan().verdicts["job_fast"].detail;
    let expected = "9 vcore, and 4 more are needed; 9 of that is reserved for work before it";
    assert!(detail.contains(expected), "{detail}");
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_two"),
            fixture.count_running("job_slow")
        ),
        (1, 0)
    );
}

/// The victim of the later work is still stopping. The space that was freed first belongs to the
/// earlier work, so the earlier work starts.
#[test]
fn work_starts_once_its_own_victims_have_left() {
    let parent = json!({"resources": {"max": {"vcore": 4}},
        "queues": {"one": {}, "two": guaranteed(1), "three": guaranteed(3)}});
    for (first_is_gang, second_is_gang) in [(false, false), (false, true), (true, false)] {
        let mut fixture = fixture(&json!({"parent": parent}), &[20, 20]);
        fixture.add_processes("job_slow", "root.parent.one", 1, 3 * VCORE);
        fixture.step();
        fixture.add_processes("job_fast", "root.parent.one", 1, VCORE);
        fixture.settle();
        for (id, queue, vcore, gang) in [
            ("job_two", "root.parent.two", 1, first_is_gang),
            ("job_three", "root.parent.three", 3, second_is_gang),
        ] {
            if gang {
                fixture.add_gang_part(id, queue, gang_named("gang", 1), vcore * VCORE);
            } else {
                fixture.add_processes(id, queue, 1, vcore * VCORE);
            }
            fixture.advance(30_000);
            let plan = fixture.plan();
            assert_eq!(victim_works(&plan).len(), 1);
            fixture.carry_out_except(&plan, |_, _| true);
        }
        run_rounds_with_slow_victims(&mut fixture, &["job_slow"], 2);
        assert_eq!(
            (
                fixture.count_running("job_two"),
                fixture.count_running("job_three")
            ),
            (1, 0)
        );
        fixture.settle();
        assert_eq!(
            (
                fixture.count_running("job_two"),
                fixture.count_running("job_three")
            ),
            (1, 1)
        );
    }
}

/// The user may have two of the three processes.
#[test]
fn no_victim_leaves_for_work_over_the_limit_of_its_user() {
    let preempting_leaf = json!({"resources": {"guaranteed": {"vcore": 3}},
        "limits": [{"users": ["*"], "max_resources": {"vcore": 2}}]});
    let mut fixture = fixture(&json!({"a": {}, "b": preempting_leaf}), &[4]);
    fixture.add_processes("job_a", "root.a", 4, VCORE);
    fixture.settle();
    fixture.add_processes("job_b", "root.b", 3, VCORE);
    fixture.advance(30_000);
    let preempted = run_rounds_with_slow_victims(&mut fixture, &[], 60);
    assert_eq!(
        (
            preempted,
            fixture.count_running("job_a"),
            fixture.count_running("job_b")
        ),
        (2, 2, 2)
    );
}

/// Two applications wait, and one may run.
#[test]
fn no_victim_leaves_for_applications_over_the_limit() {
    let preempting_leaf = json!({"resources": {"guaranteed": {"vcore": 3}}, "max_applications": 1});
    let mut fixture = fixture(&json!({"a": {}, "b": preempting_leaf}), &[2, 2]);
    fixture.add_processes("job_a", "root.a", 4, VCORE);
    fixture.settle();
    fixture.add_processes("job_b1", "root.b", 1, VCORE);
    fixture.add_processes("job_b2", "root.b", 1, VCORE);
    fixture.advance(30_000);
    let preempted = run_rounds_with_slow_victims(&mut fixture, &[], 60);
    assert_eq!(
        (
            preempted,
            fixture.count_running("job_b1"),
            fixture.count_running("job_b2")
        ),
        (1, 1, 0)
    );
}

/// The small victim is taken first and is unnecessary once the large one leaves.
#[test]
fn a_victim_made_unnecessary_by_a_larger_one_is_spared() {
    let parent = json!({"resources": {"max": {"vcore": 6}},
        "queues": {"one": {}, "two": guaranteed(5)}});
    let mut fixture = fixture(&json!({"parent": parent}), &[20]);
    fixture.add_processes("job_large", "root.parent.one", 1, 5 * VCORE);
    fixture.step();
    fixture.add_processes("job_small", "root.parent.one", 1, VCORE);
    fixture.settle();
    fixture.add_processes("job_two", "root.parent.two", 1, 5 * VCORE);
    fixture.advance(30_000);
    assert_eq!(victim_works(&fixture.step()), ["job_large"]);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_small"),
            fixture.count_running("job_two")
        ),
        (1, 1)
    );
}

#[test]
fn an_unnecessary_victim_on_a_required_node_is_spared() {
    let mut fixture = fixture(&json!({"a": {}, "b": {}}), &[4]);
    fixture.add_processes("job_large", "root.a", 1, 3 * VCORE);
    fixture.step();
    fixture.add_processes("job_small", "root.a", 1, VCORE);
    fixture.settle();
    let demand = fixture.add_processes("job_b", "root.b", 1, 3 * VCORE);
    queued_mut(demand).required_node = Some(node_name("n0"));
    assert_eq!(victim_works(&fixture.step()), ["job_large"]);
}

/// The sibling uses the whole guarantee of the parent. Space that its victims free is not counted
/// twice.
#[test]
fn a_sibling_over_its_guarantee_gives_within_the_guarantee_of_the_parent() {
    let parent = json!({"resources": {"guaranteed": {"vcore": 10}},
        "queues": {"one": guaranteed(5), "two": {}}});
    for running in [10, 12] {
        let mut fixture = fixture(&json!({"parent": parent, "other": {}}), &[running]);
        fixture.add_processes("job_one", "root.parent.one", running, VCORE);
        fixture.settle();
        fixture.add_processes("job_two", "root.parent.two", 10, VCORE);
        fixture.advance(30_000);
        let preempted = run_rounds_with_slow_victims(&mut fixture, &[], 200);
        let counts = (
            fixture.count_running("job_one"),
            fixture.count_running("job_two"),
        );
        let remaining = usize::try_from(running).unwrap() - 5;
        assert_eq!((preempted, counts), (5, (remaining, 5)), "{running} ran");
    }
}

/// The guarantee of the parent is exhausted, so no victim outside it is taken.
#[test]
fn an_exhausted_guarantee_takes_no_victim_outside_it() {
    let parent = json!({"resources": {"guaranteed": {"vcore": 6}},
        "queues": {"one": guaranteed(3), "two": {}}});
    let mut fixture = fixture(&json!({"parent": parent, "other": {}}), &[10]);
    fixture.add_processes("job_one", "root.parent.one", 6, VCORE);
    fixture.add_processes("job_other", "root.other", 4, VCORE);
    fixture.settle();
    fixture.add_processes("job_two", "root.parent.two", 3, VCORE);
    fixture.advance(30_000);
    run_rounds_with_slow_victims(&mut fixture, &[], 100);
    let counts = ["job_one", "job_two", "job_other"].map(|id| fixture.count_running(id));
    assert_eq!(counts, [3, 3, 4]);
}

/// A queue that only shares the guarantee of its parent yields to the own guarantee of a sibling,
/// at every depth.
#[test]
fn an_explicit_guarantee_wins_over_a_part_of_a_shared_one() {
    let deeper = json!({"resources": {"guaranteed": {"vcore": 1}}, "queues": {"below": {}}});
    for (two, path) in [(guaranteed(1), "two"), (deeper, "two.below")] {
        let parent = json!({"resources": {"guaranteed": {"vcore": 10}},
            "queues": {"one": {}, "two": two}});
        let mut fixture = fixture(&json!({"parent": parent}), &[4]);
        fixture.add_processes("job_one", "root.parent.one", 4, VCORE);
        fixture.settle();
        fixture.add_processes("job_two", &format!("root.parent.{path}"), 4, VCORE);
        fixture.advance(30_000);
        let preempted = run_rounds_with_slow_victims(&mut fixture, &[], 200);
        let counts = (
            fixture.count_running("job_one"),
            fixture.count_running("job_two"),
        );
        assert_eq!((preempted, counts), (1, (3, 1)), "{path}");
    }
}

/// Returns the document of one queue `a` with these resources, whose maximum is enforced after 1 s.
fn document_with_maximum(max: &Value, resources: &Value) -> Value {
    let mut leaf = json!({"resources": resources, "quota_preemption_delay_ms": 1_000});
    leaf["resources"]["max"] = max.clone();
    let root = json!({"submit_acl": "*", "queues": {"a": leaf}});
    json!({"queues": {"root": root}, "quota_preemption": true})
}

#[test]
fn a_lowered_maximum_is_enforced_while_other_types_have_limits_too() {
    for (resources, remaining) in [(json!({}), 10), (json!({"guaranteed": {"vcore": 12}}), 12)] {
        let mut fixture = Fixture::from_queues(&document_with_maximum(
            &json!({"memory": 1_500, "vcore": 15}),
            &resources,
        ));
        fixture.add_node("n0", &[("vcore", 40 * VCORE)]);
        let demand = fixture.add_work("job_a", "root.a", &[("memory", 100), ("vcore", VCORE)]);
        demand.max_processes = 15;
        fixture.settle();
        assert_eq!(fixture.count_running("job_a"), 15);
        fixture.configure(&document_with_maximum(
            &json!({"memory": 1_000, "vcore": 15}),
            &resources,
        ));
        run_rounds_with_slow_victims(&mut fixture, &[], 10);
        assert_eq!(fixture.count_running("job_a"), remaining);
    }
}

/// Each child would have to lose a third of the excess, which is less than one process.
#[test]
fn a_lowered_maximum_is_enforced_by_whole_processes() {
    let document = |max: u64| {
        let parent = json!({"resources": {"max": {"vcore": max}},
            "quota_preemption_delay_ms": 1_000, "queues": {"a": {}, "b": {}, "c": {}}});
        let root = json!({"submit_acl": "*", "queues": {"parent": parent}});
        json!({"queues": {"root": root}, "quota_preemption": true})
    };
    let mut fixture = Fixture::from_queues(&document(3));
    fixture.add_node("n0", &[("vcore", 4 * VCORE)]);
    for id in ["a", "b", "c"] {
        fixture.add_processes(&format!("job_{id}"), &format!("root.parent.{id}"), 1, VCORE);
    }
    fixture.settle();
    fixture.configure(&document(1));
    run_rounds_with_slow_victims(&mut fixture, &[], 10);
    let remaining: usize = ["job_a", "job_b", "job_c"]
        .iter()
        .map(|id| fixture.count_running(id))
        .sum();
    assert_eq!(remaining, 1);
}

#[test]
fn the_verdict_names_leaving_victims_until_they_have_left() {
    let mut fixture = fixture(&json!({"a": {}, "b": guaranteed(2)}), &[2]);
    fixture.add_processes("job_a", "root.a", 2, VCORE);
    fixture.settle();
    fixture.add_processes("job_b", "root.b", 1, VCORE);
    fixture.advance(30_000);
    for _ in 0..5 {
        let plan = fixture.plan();
        let verdict = &plan.verdicts["job_b"];
        assert_eq!(verdict.reason, Reason::WaitingForPreemption);
        assert_eq!(
            verdict.detail,
            "others leave node n0, which is reserved for it"
        );
        fixture.carry_out_except(&plan, |_, _| true);
    }
    fixture.settle();
    assert_eq!(fixture.count_running("job_b"), 1);
}

/// The quota of the parent is exhausted, and the free space is on another node than the victim.
#[test]
fn a_victim_on_another_node_is_informed_about_the_maximum_only() {
    let parent = json!({"resources": {"max": {"vcore": 2}},
        "queues": {"one": {}, "two": guaranteed(1)}});
    let mut fixture = fixture(&json!({"parent": parent}), &[2, 2]);
    let demand = fixture.add_processes("job_one", "root.parent.one", 2, VCORE);
    demand.node_list = [node_name("n0")].into();
    fixture.settle();
    let demand = fixture.add_processes("job_two", "root.parent.two", 1, VCORE);
    demand.node_list = [node_name("n1")].into();
    fixture.advance(30_000);
    let plan = fixture.plan();
    let detail = &plan.vacates[0].detail;
    let expected = "work of queue root.parent.two is due a part of what queue root.parent may \
                    have at most, by its guarantee";
    assert_eq!(detail, expected);
    let detail = &plan.verdicts["job_two"].detail;
    let expected = "others leave so that queue root.parent.two may have more, and node n1 is \
                    reserved for it";
    assert_eq!(detail, expected);
}
