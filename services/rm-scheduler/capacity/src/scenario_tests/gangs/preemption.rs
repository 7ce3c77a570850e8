//! Scenarios in which a gang preempts other work by the guarantee of its queue. The freed space and
//! quota stay reserved for the gang.

use hayward_rm_scheduler_domain::{Plan, Reason};
use serde_json::json;

use super::{VCORE, fixture_with_full_nodes};
use crate::fixture::{Fixture, POOL, gang_named, granted_works, node_name, queued_mut, size};

/// Creates two leaves, each with a guarantee of half of all nodes. Plain work in one of them uses
/// everything.
fn two_half_guarantees() -> Fixture {
    let half = json!({"resources": {"guaranteed": {"vcore": 8}}, "preemption_delay_ms": 1_000});
    fixture_with_full_nodes(
        &[4, 4, 4, 4],
        &json!({"submit_acl": "*", "queues": {"a": half, "b": half}}),
    )
}

#[test]
fn victims_for_a_gang_leave_all_at_once() {
    let mut fixture = two_half_guarantees();
    fixture.add_gang_part("job_driver", "root.b", gang_named("gang", 1), 2 * VCORE);
    fixture.add_gang_part("job_workers", "root.b", gang_named("gang", 2), 3 * VCORE);
    let plan = fixture.plan();
    assert!(plan.is_empty(), "nothing is preempted before the delay");
    fixture.advance(1_000);
    let plan = fixture.step();
    // Exactly eight victims, at once.
    assert_eq!(plan.receipts.len(), 8);
    for receipt in &plan.receipts {
        let beneficiary = receipt.beneficiary.as_ref().unwrap().as_str();
        assert!(
            ["job_driver", "job_workers"].contains(&beneficiary),
            "{beneficiary}"
        );
        assert_eq!(receipt.work.as_str(), "job_plain");
    }
    let verdict = &plan.verdicts["job_workers"];
    assert_eq!(verdict.reason, Reason::WaitingForPreemption);
    let text = "0 of the 3 processes it lacks fit";
    assert!(verdict.detail.contains(text), "{}", verdict.detail);
    assert!(
        verdict.detail.contains("8 processes leave"),
        "{}",
        verdict.detail
    );
    let reservation = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert!(reservation.cleared);
    // While they leave, their space stays reserved and no other victim is taken.
    for _ in 0..3 {
        let plan = fixture.plan();
        assert!(plan.is_empty(), "{plan:#?}");
        fixture.snapshot.carried = plan.carried.clone();
        fixture.advance(1_000);
    }
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_driver"),
            fixture.count_running("job_workers")
        ),
        (1, 2)
    );
    assert_eq!(fixture.count_running("job_plain"), 8);
    fixture.advance(600_000);
    assert!(fixture.step().is_empty(), "the plan is stable");
}

/// The whole gang would exceed the guarantee, so no victim is taken for a part.
#[test]
fn a_gang_beyond_its_guarantee_preempts_nothing() {
    let mut fixture = two_half_guarantees();
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 9), VCORE);
    for _ in 0..5 {
        fixture.advance(30_000);
        assert!(fixture.step().receipts.is_empty());
    }
    assert_eq!(
        fixture.reserved_space().len(),
        4,
        "the space is reserved without victims"
    );
}

/// With protected work, space can be freed for only one of the two members.
#[test]
fn all_victims_are_found_or_none_leaves() {
    for has_protected_work in [false, true] {
        let mut fixture = two_half_guarantees();
        fixture.snapshot.demand.remove("job_plain");
        fixture.snapshot.allocations.clear();
        for node in 0..4 {
            let demand = fixture.add_processes(&format!("job_{node}"), "root.a", 4, VCORE);
            demand.node_list = [node_name(&format!("n{node}"))].into();
            // Higher priorities are never preempted.
            queued_mut(demand).priority = i32::from(node > 0 && has_protected_work);
        }
        fixture.settle();
        fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 2), 4 * VCORE);
        fixture.advance(2_000);
        let plan = fixture.step();
        assert_eq!(plan.receipts.len(), if has_protected_work { 0 } else { 8 });
        let carried = &plan.carried.queues[POOL];
        assert_eq!(
            carried.attempts.contains_key("job_gang"),
            has_protected_work
        );
        assert_eq!(carried.gang.as_ref().unwrap().cleared, !has_protected_work);
    }
}

/// With very many victims, sparing single ones is not tried by repacking all nodes.
#[test]
fn very_many_victims_are_found_in_one_round() {
    const NODES: usize = 500;
    let half = json!({"resources": {"guaranteed": {"vcore": NODES}},
        "preemption_delay_ms": 1_000});
    let root = json!({"submit_acl": "*", "queues": {"a": {}, "b": half}});
    let mut fixture = fixture_with_full_nodes(&[1; NODES], &root);
    fixture.add_gang_part(
        "job_gang",
        "root.b",
        gang_named("gang", NODES as u64),
        VCORE,
    );
    fixture.advance(1_000);
    let plan = fixture.step();
    assert_eq!(plan.receipts.len(), NODES);
}

/// Free space is used first, including the space that is reserved for another gang without victims.
#[test]
fn a_gang_preempts_no_more_than_needed_and_goes_before_reservations_without_victims() {
    let mut fixture = two_half_guarantees();
    fixture.add_gang_part("job_wide", "root.a", gang_named("wide", 4), 3 * VCORE);
    fixture.advance(2_000);
    fixture.step();
    fixture.end_processes("job_plain", 5);
    fixture.step();
    assert_eq!(fixture.reserved_space().len(), 4);
    let idle = 16 - fixture.count_running("job_plain");
    assert_eq!(idle, 5);
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 6), VCORE);
    fixture.advance(2_000);
    let plan = fixture.step();
    assert_eq!(plan.receipts.len(), 6 - idle);
    let reservation = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert_eq!(
        (reservation.work.as_str(), reservation.cleared),
        ("job_gang", true)
    );
    fixture.settle();
    assert_eq!(fixture.count_running("job_gang"), 6);
}

/// Creates a pool in which four processes of the queue `b` leave for a gang of the queue `a`. The
/// fifth node, which the gang avoids, is free for the work `job_single` of the queue `a`.
fn fixture_with_freed_space(settings_of_a: &serde_json::Value) -> Fixture {
    let mut queue = json!({"resources": {"guaranteed": {"vcore": 4}},
        "preemption_delay_ms": 1_000});
    let additional = settings_of_a.as_object().unwrap().clone();
    queue.as_object_mut().unwrap().extend(additional);
    let root = json!({"submit_acl": "*", "queues": {"a": queue, "b": {}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    for index in 1..=5 {
        fixture.add_node(&format!("n{index}"), &[("vcore", VCORE)]);
    }
    let plain = fixture.add_processes("job_plain", "root.b", 4, VCORE);
    plain.avoids = [node_name("n5")].into();
    fixture.settle();
    fixture.add_gang_part("job_gang", "root.a", gang_named("gang", 4), VCORE);
    let gang = fixture.snapshot.demand.get_mut("job_gang").unwrap();
    gang.avoids = [node_name("n5")].into();
    fixture.advance(2_000);
    let plan = fixture.plan();
    assert_eq!(plan.receipts.len(), 4);
    for vacate in &plan.vacates {
        let allocation = fixture.snapshot.allocations.get_mut(&vacate.allocation);
        allocation.unwrap().leaving = true;
    }
    fixture.snapshot.carried = plan.carried;
    fixture.add_processes("job_single", "root.a", 1, VCORE);
    fixture
}

/// If other work could use the quota of the gang, the four victims would leave in vain.
#[test]
fn the_quota_of_a_gang_with_victims_stays_reserved() {
    let user_limit = json!({"limits": [{"users": ["*"], "max_resources": {"vcore": 4}}]});
    let application_limit = json!({"limits": [{"users": ["*"], "max_applications": 1}]});
    let limits = [
        (
            json!({"resources": {"guaranteed": {"vcore": 4}, "max": {"vcore": 4}}}),
            Reason::QueueQuota,
        ),
        (json!({"max_applications": 1}), Reason::NotRunnable),
        (user_limit, Reason::UserQuota),
        (application_limit, Reason::NotRunnable),
    ];
    for (limit, reason) in limits {
        let mut fixture = fixture_with_freed_space(&limit);
        // The victims leave slowly.
        for _ in 0..10 {
            let plan = fixture.plan();
            assert!(plan.is_empty(), "{limit}: {plan:#?}");
            let verdict = &plan.verdicts["job_single"];
            assert_eq!(verdict.reason, reason, "{}", verdict.detail);
            assert!(
                verdict.detail.contains("reserved for work before it"),
                "{}",
                verdict.detail
            );
            fixture.snapshot.carried = plan.carried;
            fixture.advance(1_000);
        }
        fixture.settle();
        assert_eq!(
            (
                fixture.count_running("job_gang"),
                fixture.count_running("job_single")
            ),
            (4, 0),
            "{limit}"
        );
        // The quota is reserved as long as the gang needs it.
        fixture.snapshot.demand.remove("job_gang");
        fixture
            .snapshot
            .allocations
            .retain(|_, allocation| allocation.work.as_str() != "job_gang");
        fixture.settle();
        assert_eq!(fixture.count_running("job_single"), 1, "{limit}");
    }
}

/// Quota that the gang does not need stays usable, and the reservation ends with its lifetime.
#[test]
fn a_quota_is_reserved_only_for_the_needs_and_the_lifetime_of_a_reservation() {
    let wide = json!({"resources": {"guaranteed": {"vcore": 4}, "max": {"vcore": 5}}});
    let mut fixture = fixture_with_freed_space(&wide);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_gang"),
            fixture.count_running("job_single")
        ),
        (4, 1)
    );
    let tight = json!({"resources": {"guaranteed": {"vcore": 4}, "max": {"vcore": 4}}});
    let mut fixture = fixture_with_freed_space(&tight);
    fixture.advance(600_000);
    let plan = fixture.plan();
    assert_eq!(plan.grants.len(), 1);
}

/// A gang has a reservation without victims, and small work fills the quota of its queue.
#[test]
fn the_quota_of_a_gang_with_a_reservation_stays_reserved() {
    let limited = json!({"resources": {"max": {"vcore": 4}}});
    let root = json!({"submit_acl": "*", "queues": {"a": limited, "b": {}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    for name in ["n1", "n2"] {
        fixture.add_node(name, &[("vcore", 4 * VCORE)]);
    }
    fixture.add_processes("job_plain", "root.b", 5, VCORE);
    fixture.settle();
    fixture.add_gang_part("job_gang", "root.a", gang_named("gang", 1), 4 * VCORE);
    fixture.advance(2_000);
    fixture.step();
    assert_eq!(fixture.reserved_space().len(), 1);
    fixture.add_processes("job_single", "root.a", 1, VCORE);
    let plan = fixture.step();
    assert!(plan.grants.is_empty(), "{plan:#?}");
    let plain = fixture.snapshot.demand.get_mut("job_plain").unwrap();
    plain.max_processes = 3;
    fixture.end_processes("job_plain", 5);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_gang"),
            fixture.count_running("job_single")
        ),
        (1, 0)
    );
}

/// Creates a gang that needs the half of the pool that its queue is guaranteed, with eight victims
/// that leave slowly.
fn fixture_with_slow_victims() -> Fixture {
    let mut fixture = two_half_guarantees();
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 8), VCORE);
    fixture.advance(2_000);
    let plan = fixture.plan();
    assert_eq!(plan.receipts.len(), 8);
    mark_victims_leaving(&mut fixture, &plan);
    fixture
}

/// Marks the victims of a plan as leaving. Their allocations remain.
fn mark_victims_leaving(fixture: &mut Fixture, plan: &Plan) {
    fixture.snapshot.carried = plan.carried.clone();
    for vacate in &plan.vacates {
        let allocation = fixture.snapshot.allocations.get_mut(&vacate.allocation);
        allocation.unwrap().leaving = true;
    }
}

/// A reservation with victims does not end while they leave.
#[test]
fn a_reservation_does_not_end_while_its_victims_leave() {
    let mut fixture = fixture_with_slow_victims();
    for _ in 0..50 {
        fixture.advance(10_000);
        let plan = fixture.plan();
        assert!(plan.is_empty(), "{plan:#?}");
        fixture.snapshot.carried = plan.carried;
        assert!(fixture.reserved_space().len() >= 2);
    }
    fixture.settle();
    assert_eq!(fixture.count_running("job_gang"), 8);
    // Without leaving victims there is no reason to wait.
    let mut fixture = fixture_with_slow_victims();
    fixture
        .snapshot
        .allocations
        .retain(|_, allocation| !allocation.leaving);
    fixture.snapshot.demand.get_mut("job_gang").unwrap().avoids =
        (0..4).map(|node| node_name(&format!("n{node}"))).collect();
    fixture.advance(300_000);
    fixture.step();
    assert!(fixture.reserved_space().is_empty());
}

/// After a reservation with victims lapses, nothing is preempted for twice as long.
#[test]
fn a_gang_with_a_lapsed_reservation_preempts_nothing_for_twice_as_long() {
    let mut fixture = fixture_with_slow_victims();
    // The reservation lasts two lifetimes of 300 s, because its victims are still leaving.
    for round in 1..120 {
        fixture.advance(10_000);
        let plan = fixture.plan();
        assert!(plan.receipts.is_empty(), "round {round}");
        fixture.snapshot.carried = plan.carried;
        assert_eq!(
            fixture.reserved_space().is_empty(),
            round >= 60,
            "round {round}"
        );
    }
    fixture.advance(20_000);
    let plan = fixture.plan();
    assert!(
        plan.carried.queues[POOL].gang.is_some(),
        "it gets a new reservation"
    );
}

/// A reserved node closes. A node on which other work runs is reserved instead, but without
/// victims.
#[test]
fn a_replacement_node_counts_as_freed_only_with_victims() {
    let mut fixture = fixture_with_slow_victims();
    let before: Vec<String> = fixture
        .reserved_space()
        .iter()
        .map(|(node, _)| (*node).to_owned())
        .collect();
    let name = node_name(&before[0]);
    fixture.snapshot.nodes.get_mut(&name).unwrap().takes_work = false;
    let plan = fixture.plan();
    let reservation = plan.carried.queues[POOL].gang.as_ref().unwrap();
    let is_moved = reservation
        .nodes
        .keys()
        .any(|node| !before.contains(&node.to_string()));
    assert!(is_moved && !reservation.cleared, "{reservation:?}");
    // Free nodes count like nodes with victims.
    fixture.add_node("n4", &[("vcore", 4 * VCORE)]);
    let plain = fixture.snapshot.demand.get_mut("job_plain").unwrap();
    plain.max_processes = 8;
    let plan = fixture.plan();
    assert!(plan.is_empty(), "{plan:#?}");
    let reservation = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert!(
        reservation.nodes.contains_key("n4") && reservation.cleared,
        "{reservation:?}"
    );
}

/// One part of a gang runs, and victims leave for the other part. Work of another queue, which is
/// guaranteed memory, needs the node of the running part. If that part were preempted, the gang
/// would lack more than its victims free.
#[test]
fn a_member_of_a_gang_with_victims_is_not_preempted() {
    const ALL_MEMORY: u64 = 1 << 20;
    let guaranteed = |amounts| json!({"resources": {"guaranteed": amounts}});
    let queues = json!({"a": {}, "b": guaranteed(json!({"vcore": 1})),
        "c": guaranteed(json!({"memory": ALL_MEMORY}))});
    for has_required_node in [true, false] {
        let root = json!({"submit_acl": "*", "queues": queues});
        let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
        fixture.add_node("n0", &[("memory", ALL_MEMORY)]);
        fixture.add_node("n1", &[("vcore", VCORE)]);
        fixture.add_processes("job_a", "root.a", 1, VCORE);
        fixture.add_gang_part("job_large", "root.b", gang_named("gang", 1), 0);
        fixture.snapshot.demand.get_mut("job_large").unwrap().size =
            size(&[("memory", ALL_MEMORY)]);
        fixture.settle();
        fixture.add_gang_part("job_small", "root.b", gang_named("gang", 1), VCORE);
        fixture.advance(30_000);
        assert_eq!(
            fixture.step().receipts.len(),
            1,
            "the gang takes what it lacks"
        );
        let preempting_work = fixture.add_work("job_c", "root.c", &[("memory", ALL_MEMORY)]);
        queued_mut(preempting_work).required_node = has_required_node.then(|| node_name("n0"));
        for _ in 0..4 {
            fixture.advance(30_000);
            let plan = fixture.plan();
            assert!(plan.receipts.is_empty(), "{plan:#?}");
            fixture.carry_out_except(&plan, |_, _| true);
        }
        fixture.step();
        let started = fixture.step();
        assert_eq!(granted_works(&started), ["job_small"]);
        assert_eq!(fixture.count_running("job_large"), 1);
    }
}

/// Two queues are guaranteed half of the pool each, and each has a gang that needs its half. Space
/// that one gang preempted is not preempted back.
#[test]
fn gangs_do_not_preempt_each_other_alternately() {
    let mut fixture = two_half_guarantees();
    fixture.add_gang_part("job_b", "root.b", gang_named("b", 8), VCORE);
    fixture.add_gang_part("job_a", "root.a", gang_named("a", 4), 2 * VCORE);
    let mut preempted = 0;
    for _ in 0..60 {
        preempted += fixture.step().receipts.len();
        fixture.advance(20_000);
    }
    assert_eq!(preempted, 8);
    assert_eq!(fixture.count_running("job_b"), 8);
}
