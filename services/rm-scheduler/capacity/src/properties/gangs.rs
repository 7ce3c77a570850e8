//! Gangs among plain work that fills every hole, and preemption for gangs.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::Planner;
use serde_json::json;

use super::{Random, VCORE, a_gang_is_reserved_whole, victims_are_lawful};
use crate::{
    Capacity,
    fixture::{Fixture, gang_named, queued},
};

const GANGS: [&str; 2] = ["b", "c"];

/// Creates random nodes filled by plain work. Returns their total vcores too.
fn busy(random: &mut Random) -> (Fixture, u64) {
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
    for at in 0..nodes {
        let vcore = 1 + random.below(6);
        capacity += vcore;
        fixture.node(&format!("n{at}"), &[("vcore", vcore * VCORE)]);
    }
    fixture.add_processes("job_plain", "root.a", 20_000, VCORE);
    fixture.settle();
    (fixture, capacity)
}

/// Adds two gangs. Each fits the sum of the pool, but maybe not its single nodes.
fn two_gangs(fixture: &mut Fixture, random: &mut Random, capacity: u64) {
    for gang in GANGS {
        let mut left = capacity;
        for part in 0..=random.below(2) {
            let each = 1 + random.below(left.clamp(1, 4));
            let count = (1 + random.below(4)).min(left / each);
            left -= each * count;
            if count > 0 {
                let queue = format!("root.{gang}");
                fixture.add_part(
                    &format!("job_{gang}{part}"),
                    &queue,
                    gang_named(gang, count),
                    each * VCORE,
                );
            }
        }
    }
}

/// Returns whether all parts of the gang have all processes, and whether any part has one.
fn state(fixture: &Fixture, gang: &str) -> (bool, bool) {
    let parts = fixture.snapshot.demand.iter();
    let parts = parts.filter(|(id, _)| id.as_str().starts_with(&format!("job_{gang}")));
    let has = parts.map(|(id, it)| (fixture.has(id.as_str()) as u64, it.max_processes));
    let has: Vec<(u64, u64)> = has.collect();
    let all = has.iter().all(|(has, all)| has == all);
    (all, has.iter().any(|(has, _)| *has > 0))
}

/// Returns true if the gang could start alone in an empty pool.
fn is_possible(fixture: &Fixture, gang: &str) -> bool {
    let mut alone = Fixture::from_queues(&json!({"queues": {"root": {"submit_acl": "*",
        "queues": {"a": {}, "b": {}, "c": {}}}}}));
    alone.snapshot.nodes = fixture.snapshot.nodes.clone();
    let mine = fixture.snapshot.demand.iter();
    let mine = mine.filter(|(id, _)| id.as_str().starts_with(&format!("job_{gang}")));
    alone.snapshot.demand = mine.map(|(id, it)| (id.clone(), it.clone())).collect();
    !alone.step().grants.is_empty()
}

/// Two random gangs: each possible one starts whole within a bounded number of rounds, and no
/// reservation remains.
#[test]
fn gangs_start_behind_plain_work_one_after_the_other() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let (mut fixture, capacity) = busy(&mut random);
        two_gangs(&mut fixture, &mut random, capacity);
        let possible = GANGS.into_iter().filter(|gang| is_possible(&fixture, gang));
        let mut waits: BTreeSet<&str> = possible.collect();
        for round in 0.. {
            for gang in waits.clone() {
                let (all, any) = state(&fixture, gang);
                assert!(all || !any, "seed {seed}: a gang was split");
                if all {
                    waits.remove(gang);
                    let mine = format!("job_{gang}");
                    let demand = &mut fixture.snapshot.demand;
                    demand.retain(|id, _| !id.as_str().starts_with(&mine));
                }
            }
            if waits.is_empty() {
                break;
            }
            assert!(round < 60, "seed {seed}: {waits:?} never start");
            fixture.end("job_plain", 1);
            let plan = fixture.plan();
            a_gang_is_reserved_whole(seed, &fixture, &plan);
            fixture.carry_out(&plan);
        }
        for _ in 0..3 {
            fixture.end("job_plain", 1);
            fixture.step();
        }
        assert!(
            fixture.reserved_space().is_empty(),
            "seed {seed}: reserved without need"
        );
        let plain = fixture.snapshot.demand.get_mut("job_plain").unwrap();
        plain.max_processes = capacity;
        fixture.settle();
        let has = fixture.has("job_plain") as u64;
        assert_eq!(has, capacity, "seed {seed}: space stands idle");
    }
}

/// Victims for a gang leave at once, suffice for the whole gang, and each is needed.
#[test]
fn victims_for_a_gang_suffice_for_it_and_are_all_needed() {
    let mut cleared = 0;
    for seed in 0..1_000 {
        let mut random = Random(seed);
        let leaf = |random: &mut Random, most: u64| {
            json!({"resources": {"guaranteed": {"vcore": random.below(most)}},
                "preemption_delay_ms": 1_000})
        };
        let queues = json!({"a": leaf(&mut random, 6), "b": leaf(&mut random, 14),
            "c": leaf(&mut random, 3)});
        let root = json!({"submit_acl": "*", "queues": queues});
        let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
        for at in 0..=random.below(4) {
            fixture.node(
                &format!("n{at}"),
                &[("vcore", (1 + random.below(6)) * VCORE)],
            );
        }
        for at in 0..=random.below(5) {
            let queue = random.pick(["root.a", "root.c"]);
            let (count, vcore) = (1 + random.below(6), (1 + random.below(3)) * VCORE);
            let demand = fixture.add_processes(&format!("job_{at}"), queue, count, vcore);
            queued(demand).preemptable = !random.one_in(4);
            queued(demand).originator = random.one_in(6);
        }
        fixture.settle();
        for part in 0..=random.below(2) {
            let gang = gang_named("gang", 1 + random.below(4));
            let vcore = (1 + random.below(3)) * VCORE;
            fixture.add_part(&format!("job_gang{part}"), "root.b", gang, vcore);
        }
        fixture.pass(2_000);
        let plan = fixture.plan();
        victims_are_lawful(seed, &fixture, &plan);
        if plan.receipts.is_empty() {
            continue;
        }
        cleared += 1;
        let starts = |but: Option<usize>| {
            let mut snapshot = fixture.snapshot.clone();
            snapshot.carried = plan.carried.clone();
            for (at, receipt) in plan.receipts.iter().enumerate() {
                if but != Some(at) {
                    snapshot.allocations.remove(&receipt.allocation);
                }
            }
            let plan = Capacity.schedule(&snapshot);
            let mut granted = plan.grants.iter();
            granted.any(|grant| grant.work.as_str().starts_with("job_gang"))
        };
        assert!(starts(None), "seed {seed}: it does not fit");
        for at in 0..plan.receipts.len() {
            let id = &plan.receipts[at].allocation;
            assert!(!starts(Some(at)), "seed {seed}: {id} leaves in vain");
        }
    }
    assert!(cleared > 100, "{cleared}");
}
