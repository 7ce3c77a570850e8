//! Properties of gangs in pools that are full of plain work, and of preemption for gangs. Plain
//! work is in no gang, and fills every gap at once.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::Planner;
use serde_json::json;

use super::{Random, VCORE, check_gang_reservation, check_victims};
use crate::{
    Capacity,
    fixture::{Fixture, gang_named, queued_mut},
};

const GANGS: [&str; 2] = ["b", "c"];

/// Creates random nodes that plain work fills. Also returns the total vcores of the nodes.
fn busy_fixture(random: &mut Random) -> (Fixture, u64) {
    let leaf = if random.one_in(2) {
        json!({"resources": {"guaranteed": {"vcore": 1 + random.below(8)}},
            "preemption_delay_ms": 1_000})
    } else {
        json!({})
    };
    let root = json!({"submit_acl": "*", "queues": {"a": {}, "b": leaf, "c": {}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    let nodes = 1 + random.below(4);
    let mut capacity = 0;
    for index in 0..nodes {
        let vcore = 1 + random.below(6);
        capacity += vcore;
        fixture.add_node(&format!("n{index}"), &[("vcore", vcore * VCORE)]);
    }
    fixture.add_processes("job_plain", "root.a", 20_000, VCORE);
    fixture.settle();
    (fixture, capacity)
}

/// Adds two gangs. Each fits the sum of the pool, but maybe not its single nodes.
fn add_two_gangs(fixture: &mut Fixture, random: &mut Random, capacity: u64) {
    for gang in GANGS {
        let mut remaining = capacity;
        for part in 0..=random.below(2) {
            let vcores = 1 + random.below(remaining.clamp(1, 4));
            let count = (1 + random.below(4)).min(remaining / vcores);
            remaining -= vcores * count;
            if count > 0 {
                let queue = format!("root.{gang}");
                fixture.add_gang_part(
                    &format!("job_{gang}{part}"),
                    &queue,
                    gang_named(gang, count),
                    vcores * VCORE,
                );
            }
        }
    }
}

/// Returns whether all parts of the gang have all processes, and whether any part has one.
fn completeness(fixture: &Fixture, gang: &str) -> (bool, bool) {
    let parts = fixture.snapshot.demand.iter();
    let parts = parts.filter(|(id, _)| id.as_str().starts_with(&format!("job_{gang}")));
    let counts =
        parts.map(|(id, it)| (fixture.count_running(id.as_str()) as u64, it.max_processes));
    let counts: Vec<(u64, u64)> = counts.collect();
    let is_complete = counts
        .iter()
        .all(|(count, max_processes)| count == max_processes);
    (is_complete, counts.iter().any(|(count, _)| *count > 0))
}

/// Returns true if the gang could start alone in an empty pool.
fn is_possible(fixture: &Fixture, gang: &str) -> bool {
    let mut alone = Fixture::from_queues(&json!({"queues": {"root": {"submit_acl": "*",
        "queues": {"a": {}, "b": {}, "c": {}}}}}));
    alone.snapshot.nodes = fixture.snapshot.nodes.clone();
    let own_demand = fixture.snapshot.demand.iter();
    let own_demand = own_demand.filter(|(id, _)| id.as_str().starts_with(&format!("job_{gang}")));
    alone.snapshot.demand = own_demand
        .map(|(id, it)| (id.clone(), it.clone()))
        .collect();
    !alone.step().grants.is_empty()
}

/// Two random gangs: each possible one starts whole within a bounded number of rounds, and no
/// reservation remains.
#[test]
fn gangs_start_behind_plain_work_one_after_the_other() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let (mut fixture, capacity) = busy_fixture(&mut random);
        add_two_gangs(&mut fixture, &mut random, capacity);
        let possible = GANGS.into_iter().filter(|gang| is_possible(&fixture, gang));
        let mut waiting: BTreeSet<&str> = possible.collect();
        for round in 0.. {
            for gang in waiting.clone() {
                let (is_complete, has_any) = completeness(&fixture, gang);
                assert!(is_complete || !has_any, "seed {seed}: a gang was split");
                if is_complete {
                    waiting.remove(gang);
                    let prefix = format!("job_{gang}");
                    let demand = &mut fixture.snapshot.demand;
                    demand.retain(|id, _| !id.as_str().starts_with(&prefix));
                }
            }
            if waiting.is_empty() {
                break;
            }
            assert!(round < 60, "seed {seed}: {waiting:?} never start");
            // One plain process ends in each round, and another one is ready to use its space.
            fixture.end_processes("job_plain", 1);
            let plan = fixture.plan();
            check_gang_reservation(seed, &fixture, &plan);
            fixture.carry_out(&plan);
        }
        for _ in 0..3 {
            fixture.end_processes("job_plain", 1);
            fixture.step();
        }
        assert!(
            fixture.reserved_space().is_empty(),
            "seed {seed}: space is reserved without need"
        );
        let plain = fixture.snapshot.demand.get_mut("job_plain").unwrap();
        plain.max_processes = capacity;
        fixture.settle();
        let count = fixture.count_running("job_plain") as u64;
        assert_eq!(count, capacity, "seed {seed}: space stands idle");
    }
}

/// Victims for a gang leave at once, suffice for the whole gang, and each is needed.
#[test]
fn victims_for_a_gang_suffice_for_it_and_are_all_needed() {
    let mut with_victims = 0;
    for seed in 0..1_000 {
        let mut random = Random(seed);
        let leaf = |random: &mut Random, limit: u64| {
            json!({"resources": {"guaranteed": {"vcore": random.below(limit)}},
                "preemption_delay_ms": 1_000})
        };
        let queues = json!({"a": leaf(&mut random, 6), "b": leaf(&mut random, 14),
            "c": leaf(&mut random, 3)});
        let root = json!({"submit_acl": "*", "queues": queues});
        let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
        for index in 0..=random.below(4) {
            fixture.add_node(
                &format!("n{index}"),
                &[("vcore", (1 + random.below(6)) * VCORE)],
            );
        }
        for index in 0..=random.below(5) {
            let queue = random.pick(["root.a", "root.c"]);
            let (count, vcore) = (1 + random.below(6), (1 + random.below(3)) * VCORE);
            let demand = fixture.add_processes(&format!("job_{index}"), queue, count, vcore);
            queued_mut(demand).preemptable = !random.one_in(4);
            queued_mut(demand).originator = random.one_in(6);
        }
        fixture.settle();
        for part in 0..=random.below(2) {
            let gang = gang_named("gang", 1 + random.below(4));
            let vcore = (1 + random.below(3)) * VCORE;
            fixture.add_gang_part(&format!("job_gang{part}"), "root.b", gang, vcore);
        }
        fixture.advance(2_000);
        let plan = fixture.plan();
        check_victims(seed, &fixture, &plan);
        if plan.receipts.is_empty() {
            continue;
        }
        with_victims += 1;
        // Returns true if the gang starts after all victims except `staying` have left.
        let starts = |staying: Option<usize>| {
            let mut snapshot = fixture.snapshot.clone();
            snapshot.carried = plan.carried.clone();
            for (index, receipt) in plan.receipts.iter().enumerate() {
                if staying != Some(index) {
                    snapshot.allocations.remove(&receipt.allocation);
                }
            }
            let plan = Capacity.schedule(&snapshot);
            let mut granted = plan.grants.iter();
            granted.any(|grant| grant.work.as_str().starts_with("job_gang"))
        };
        assert!(starts(None), "seed {seed}: the gang does not fit");
        for index in 0..plan.receipts.len() {
            let id = &plan.receipts[index].allocation;
            assert!(!starts(Some(index)), "seed {seed}: {id} leaves in vain");
        }
    }
    assert!(with_victims > 100, "only {with_victims} pools had victims");
}
