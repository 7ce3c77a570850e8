//! Gangs among plain work that takes every hole, and among work that is taken back for them.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::Planner;
use serde_json::json;

use super::{Draw, VCORE, room_is_whole, victims_are_lawful};
use crate::{
    Capacity,
    fixture::{World, queued},
};

const GANGS: [&str; 2] = ["b", "c"];

/// Random nodes that plain work has all of, and how many vcores they have.
fn busy(draw: &mut Draw) -> (World, u64) {
    let leaf = if draw.one_in(2) {
        json!({"resources": {"guaranteed": {"vcore": 1 + draw.below(8)}},
            "preemption_delay_ms": 1_000})
    } else {
        json!({})
    };
    let root = json!({"submit_acl": "*", "queues": {"a": {}, "b": leaf, "c": {}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    let nodes = 1 + draw.below(4);
    let mut room = 0;
    for at in 0..nodes {
        let vcore = 1 + draw.below(6);
        room += vcore;
        world.node(&format!("n{at}"), &[("vcore", vcore * VCORE)]);
    }
    world.asks("job_plain", "root.a", (20_000, VCORE));
    world.settle();
    (world, room)
}

/// Each fits into the whole pool, and maybe not onto its nodes.
fn two_gangs(world: &mut World, draw: &mut Draw, room: u64) {
    for gang in GANGS {
        let mut left = room;
        for part in 0..=draw.below(2) {
            let each = 1 + draw.below(left.clamp(1, 4));
            let count = (1 + draw.below(4)).min(left / each);
            left -= each * count;
            if count > 0 {
                let queue = format!("root.{gang}");
                world.part(
                    &format!("job_{gang}{part}"),
                    (&queue, gang),
                    (count, each * VCORE),
                );
            }
        }
    }
}

/// Its parts that still ask, and whether each has all of its processes, or any.
fn standing(world: &World, gang: &str) -> (bool, bool) {
    let parts = world.snapshot.demand.iter();
    let parts = parts.filter(|(id, _)| id.as_str().starts_with(&format!("job_{gang}")));
    let has = parts.map(|(id, it)| (world.has(id.as_str()) as u64, it.max_processes));
    let has: Vec<(u64, u64)> = has.collect();
    let all = has.iter().all(|(has, all)| has == all);
    (all, has.iter().any(|(has, _)| *has > 0))
}

/// Alone in an empty pool.
fn is_possible(world: &World, gang: &str) -> bool {
    let mut alone = World::of(&json!({"queues": {"root": {"submit_acl": "*",
        "queues": {"a": {}, "b": {}, "c": {}}}}}));
    alone.snapshot.nodes = world.snapshot.nodes.clone();
    let mine = world.snapshot.demand.iter();
    let mine = mine.filter(|(id, _)| id.as_str().starts_with(&format!("job_{gang}")));
    alone.snapshot.demand = mine.map(|(id, it)| (id.clone(), it.clone())).collect();
    !alone.step().grants.is_empty()
}

/// Two gangs of random sizes: each that can be is served within a bounded number of rounds, whole,
/// and nothing is kept any more then.
#[test]
fn i23_gangs_get_in_behind_plain_work_one_after_the_other() {
    for seed in 0..400 {
        let mut draw = Draw(seed);
        let (mut world, room) = busy(&mut draw);
        two_gangs(&mut world, &mut draw, room);
        let possible = GANGS.into_iter().filter(|gang| is_possible(&world, gang));
        let mut waits: BTreeSet<&str> = possible.collect();
        for round in 0.. {
            for gang in waits.clone() {
                let (all, any) = standing(&world, gang);
                assert!(all || !any, "seed {seed}: a gang was torn");
                if all {
                    waits.remove(gang);
                    let mine = format!("job_{gang}");
                    let demand = &mut world.snapshot.demand;
                    demand.retain(|id, _| !id.as_str().starts_with(&mine));
                }
            }
            if waits.is_empty() {
                break;
            }
            assert!(round < 60, "seed {seed}: {waits:?} never start");
            world.end("job_plain", 1);
            let plan = world.plan();
            room_is_whole(seed, &world, &plan);
            world.carry_out(&plan);
        }
        for _ in 0..3 {
            world.end("job_plain", 1);
            world.step();
        }
        assert!(world.room().is_empty(), "seed {seed}: kept for nobody");
        let plain = world.snapshot.demand.get_mut("job_plain").unwrap();
        plain.max_processes = room;
        world.settle();
        let has = world.has("job_plain") as u64;
        assert_eq!(has, room, "seed {seed}: room stands idle");
    }
}

/// For a gang so many go at once that the whole of it fits, and none of them in vain.
#[test]
fn s10_who_goes_for_a_gang_goes_for_all_of_it_and_is_needed() {
    let mut cleared = 0;
    for seed in 0..1_000 {
        let mut draw = Draw(seed);
        let leaf = |draw: &mut Draw, most: u64| {
            json!({"resources": {"guaranteed": {"vcore": draw.below(most)}},
                "preemption_delay_ms": 1_000})
        };
        let queues = json!({"a": leaf(&mut draw, 6), "b": leaf(&mut draw, 14),
            "c": leaf(&mut draw, 3)});
        let root = json!({"submit_acl": "*", "queues": queues});
        let mut world = World::of(&json!({"queues": {"root": root}}));
        for at in 0..=draw.below(4) {
            world.node(&format!("n{at}"), &[("vcore", (1 + draw.below(6)) * VCORE)]);
        }
        for at in 0..=draw.below(5) {
            let queue = draw.pick(["root.a", "root.c"]);
            let size = (1 + draw.below(6), (1 + draw.below(3)) * VCORE);
            let demand = world.asks(&format!("job_{at}"), queue, size);
            queued(demand).preemptable = !draw.one_in(4);
            queued(demand).originator = draw.one_in(6);
        }
        world.settle();
        for part in 0..=draw.below(2) {
            let size = (1 + draw.below(4), (1 + draw.below(3)) * VCORE);
            world.part(&format!("job_gang{part}"), ("root.b", "gang"), size);
        }
        world.pass(2_000);
        let plan = world.plan();
        victims_are_lawful(seed, &world, &plan);
        if plan.receipts.is_empty() {
            continue;
        }
        cleared += 1;
        let starts = |but: Option<usize>| {
            let mut snapshot = world.snapshot.clone();
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
            assert!(!starts(Some(at)), "seed {seed}: {id} is told to go in vain");
        }
    }
    assert!(cleared > 100, "{cleared}");
}
