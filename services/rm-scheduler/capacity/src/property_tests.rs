//! Properties of the plans of every pool, tested with random queues, limits, gangs, work and
//! events.

mod checks;
mod gangs;
mod preemption;
mod random_pool;

use hayward_rm_scheduler_domain::{
    Planner, SnapshotDelta,
    fleet_invariants::{self, Memory, Sequence, WaitCheckInput},
    snapshot::queues::Queue,
};
use hayward_vocabulary::invariant_finding::Outcome as Found;
use serde_json::json;

use checks::{check_gang_reservation, check_gangs_start_whole, check_limits, check_victims};
use random_pool::{Random, apply_random_event, for_each_random_pool};

use crate::{
    Capacity,
    fixture::{Fixture, gang_named, queued_mut},
};

const VCORE: u64 = 1_000;
/// Number of random pools per property.
const POOLS: u64 = 300;

/// `Fixture::plan` verifies every plan with `check`, which knows nodes, maxima and users.
#[test]
fn no_plan_overcommits_and_each_depends_on_the_snapshot_only() {
    for_each_random_pool(|seed, fixture, random| {
        for round in 0..8 {
            let plan = fixture.plan();
            assert!(plan == Capacity.schedule(&fixture.snapshot), "seed {seed}");
            let text = serde_json::to_string(&fixture.snapshot).unwrap();
            let parsed = serde_json::from_str(&text).unwrap();
            assert!(
                plan == Capacity.schedule(&parsed),
                "seed {seed}: after serialization"
            );
            check_gangs_start_whole(fixture, &plan);
            check_gang_reservation(seed, fixture, &plan);
            check_victims(seed, fixture, &plan);
            fixture.carry_out(&plan);
            apply_random_event(fixture, random, round);
            check_limits(seed, fixture);
        }
    });
}

/// The checks that also run in a live fleet hold for every pool.
#[test]
fn the_live_checks_hold_in_every_round() {
    for_each_random_pool(|seed, fixture, random| {
        let (mut sequence, mut memory) = (Sequence::default(), Memory::default());
        sequence.restart(&fixture.snapshot);
        for round in 0..8_u64 {
            let before = fixture.snapshot.clone();
            sequence.record_round();
            let plan = fixture.plan();
            fixture.carry_out(&plan);
            let after = &fixture.snapshot;
            for (name, node) in &after.nodes {
                sequence.record_node(name, before.nodes.get(name), node);
            }
            let unplanned = SnapshotDelta {
                allocations: SnapshotDelta::between(&before, after).allocations,
                ..SnapshotDelta::default()
            };
            for (id, allocation) in &unplanned.allocations {
                sequence.record_allocation(id, allocation.is_some());
                let allocation = allocation.as_ref().or(before.allocations.get(id));
                sequence.record_change_on_node(&allocation.unwrap().node);
            }
            let inputs = WaitCheckInput {
                snapshot: after,
                verdicts: &plan.verdicts,
                unplanned: &unplanned,
                settled: true,
                sequence: &sequence,
                round,
                now_ms: round,
            };
            for finding in [
                fleet_invariants::check_over_commit(after, &sequence),
                fleet_invariants::check_explanations(&inputs),
                fleet_invariants::check_work_conserving(&inputs, &mut memory),
                fleet_invariants::check_gangs(after, |_| 0, &mut memory, round),
            ] {
                let is_violated = matches!(finding.outcome, Found::Violated { .. });
                assert!(!is_violated, "seed {seed}, round {round}: {finding:#?}");
            }
            if round % 4 == 3 {
                apply_random_event(fixture, random, round);
            }
        }
    });
}

/// Without events plans stabilize, and preemption ends.
#[test]
fn plans_stabilize_without_events() {
    for_each_random_pool(|seed, fixture, _| {
        let demanded: u64 = fixture
            .snapshot
            .demand
            .values()
            .map(|it| it.max_processes)
            .sum();
        let mut preempted = 0;
        let mut last_busy_round = 0;
        for round in 0..60 {
            let plan = fixture.step();
            preempted += plan.receipts.len() as u64;
            if !plan.is_empty() {
                last_busy_round = round;
            }
            fixture.advance(30_000);
        }
        assert!(
            last_busy_round < 50,
            "seed {seed}: still busy in round {last_busy_round}"
        );
        assert!(
            preempted <= 2 * demanded,
            "seed {seed}: {preempted} processes were preempted for {demanded} demanded ones"
        );
    });
}

/// At the same instant, a second plan after a carried-out one is empty.
#[test]
fn a_carried_out_plan_leaves_nothing_to_do() {
    for_each_random_pool(|seed, fixture, _| {
        fixture.step();
        fixture.snapshot.now = fixture.snapshot.now.minus_ms(1_000);
        let next_plan = fixture.plan();
        let granted: Vec<&str> = crate::fixture::granted_works(&next_plan);
        assert!(
            next_plan.vacates.is_empty() && granted.is_empty(),
            "seed {seed}: {granted:?}"
        );
    });
}

/// Work within a guarantee is served before work that borrows, if all else is equal.
#[test]
fn guaranteed_work_is_served_before_borrowing() {
    for seed in 0..POOLS {
        let mut random = Random(seed);
        let (guarantee_a, guarantee_b) = (1 + random.below(5), 1 + random.below(5));
        let queue = |it: u64| json!({"resources": {"guaranteed": {"vcore": it}}});
        let root = json!({"submit_acl": "*", "queues": {"a": queue(guarantee_a),
            "b": queue(guarantee_b)}});
        let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
        let vcores = guarantee_a + guarantee_b + random.below(4);
        fixture.add_node("n1", &[("vcore", vcores * VCORE)]);
        let (demand_a, demand_b) = (1 + random.below(12), 1 + random.below(12));
        fixture.add_processes("job_a", "root.a", demand_a, VCORE);
        fixture.add_processes("job_b", "root.b", demand_b, VCORE);
        fixture.settle();
        let count = |id: &str| fixture.count_running(id) as u64;
        assert!(count("job_a") >= guarantee_a.min(demand_a), "seed {seed}");
        assert!(count("job_b") >= guarantee_b.min(demand_b), "seed {seed}");
    }
}

/// Two gangs that each fit alone never block each other with partial reservations.
#[test]
fn two_gangs_never_block_each_other() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let root = json!({"submit_acl": "*", "queues": {"a": {}, "b": {}}});
        let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
        let capacity = 2 + random.below(5);
        fixture.add_node("n1", &[("vcore", capacity * VCORE)]);
        for id in ["a", "b"] {
            let parts = 1 + random.below(capacity - 1);
            let queue = format!("root.{id}");
            fixture.add_gang_part(&format!("job_{id}1"), &queue, gang_named(id, parts), VCORE);
            fixture.add_gang_part(
                &format!("job_{id}2"),
                &queue,
                gang_named(id, capacity - parts),
                VCORE,
            );
        }
        fixture.settle();
        let count = |id: &str| {
            (fixture.count_running(&format!("job_{id}1"))
                + fixture.count_running(&format!("job_{id}2"))) as u64
        };
        let counts = [count("a"), count("b")];
        assert!(
            counts == [capacity, 0] || counts == [0, capacity],
            "seed {seed}: {counts:?} of {capacity}"
        );
    }
}

/// Without gangs, plans are the same as before gang reservations existed. The expected digest
/// (FNV-1a) of the plans was recorded then.
#[test]
fn gang_reservations_change_nothing_without_gangs() {
    const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const FNV_PRIME: u64 = 0x0100_0000_01b3;
    let mut digest = FNV_OFFSET;
    for_each_random_pool(|_, fixture, random| {
        for queues in fixture.snapshot.queues.values_mut() {
            remove_group_limits(&mut queues.root);
        }
        for round in 0..8 {
            for demand in fixture.snapshot.demand.values_mut() {
                queued_mut(demand).gang = None;
            }
            let plan = fixture.plan();
            let mut hashed = plan.clone();
            // Texts are not part of the digest.
            for verdict in hashed.verdicts.values_mut() {
                verdict.detail = String::new();
            }
            for vacate in &mut hashed.vacates {
                vacate.detail.clear();
            }
            hashed.grants.iter_mut().for_each(|it| it.group = None);
            for byte in serde_json::to_string(&hashed).unwrap().bytes() {
                digest = (digest ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
            }
            fixture.carry_out(&plan);
            apply_random_event(fixture, random, round);
        }
    });
    assert_eq!(format!("{digest:016x}"), "d5014a5d16c45387");
}

/// Removes group limits, which were charged differently before gang reservations existed.
fn remove_group_limits(queue: &mut Queue) {
    queue.limits.retain(|limit| limit.groups.is_empty());
    queue.children.values_mut().for_each(remove_group_limits);
}
