//! What waits: reservations (9.3), back-off (9.4), gangs (17.1), and what is said of it.

use hayward_rm_scheduler_domain::{
    Reason,
    plan::Unblock,
    snapshot::{Block, BlockEffect},
};
use serde_json::json;

use super::VCORE;
use crate::fixture::{POOL, World, placed, queued, work};

fn world(nodes: &[(&str, u64)]) -> World {
    let root = json!({"submit_acl": "*", "queues": {"a": {}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    for (name, vcore) in nodes {
        world.node(name, &[("vcore", vcore * VCORE)]);
    }
    world
}

#[test]
fn s9_3_a_node_is_kept_for_who_waited() {
    let mut world = world(&[("n1", 4)]);
    world.asks("job_1", "root.a", (4, VCORE));
    world.settle();
    world.asks("job_large", "root.a", (1, 4 * VCORE));
    world.pass(2_000);
    let plan = world.step();
    let kept = &plan.carried.queues[POOL].reservations;
    let kept: Vec<(&str, &str)> = kept
        .iter()
        .map(|(n, r)| (n.as_str(), r.work.as_str()))
        .collect();
    assert_eq!(kept, [("n1", "job_large")]);
    // One of those on its node ends: the room stays for who waits.
    world
        .snapshot
        .demand
        .get_mut("job_1")
        .unwrap()
        .max_processes = 2;
    world.settle();
    world.asks("job_small", "root.a", (3, VCORE));
    let plan = world.step();
    assert_eq!(world.has("job_small"), 0, "{plan:#?}");
    assert_eq!(plan.verdicts["job_small"].reason, Reason::NodesReserved);
    // All of them end.
    world.snapshot.demand.remove("job_1");
    world.settle();
    assert_eq!(world.has("job_large"), 1);
}

#[test]
fn s9_3_a_reservation_has_one_lifetime() {
    let mut world = world(&[("n1", 4)]);
    world.asks("job_1", "root.a", (3, VCORE));
    world.settle();
    world.asks("job_large", "root.a", (1, 4 * VCORE));
    world.pass(3_000);
    world.step();
    world.asks("job_small", "root.a", (1, VCORE));
    world.step();
    assert_eq!(world.has("job_small"), 0);
    world.pass(300_000);
    world.step();
    assert_eq!(world.has("job_small"), 1);
    assert!(world.snapshot.carried.queues[POOL].reservations.is_empty());
    // Not kept again at once for the same work.
    world.pass(10_000);
    world.step();
    assert!(world.snapshot.carried.queues[POOL].reservations.is_empty());
    world.pass(300_000);
    world.step();
    assert_eq!(world.snapshot.carried.queues[POOL].reservations.len(), 1);
}

#[test]
fn s9_3_who_is_larger_than_every_node_keeps_none() {
    let mut world = world(&[("n1", 4)]);
    world.asks("job_huge", "root.a", (1, 5 * VCORE));
    world.pass(60_000);
    let plan = world.step();
    assert!(plan.carried.queues[POOL].reservations.is_empty());
    assert_eq!(plan.verdicts["job_huge"].reason, Reason::NoHostLargeEnough);
}

#[test]
fn s9_4_an_application_that_fails_backs_off() {
    let root = json!({"submit_acl": "*", "backoff_asks": 2, "backoff_ms": 30_000,
        "queues": {"a": {}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 4 * VCORE)]);
    for (id, vcore) in [("job_1", 9), ("job_2", 9), ("job_3", 1)] {
        let demand = world.asks(id, "root.a", (1, vcore * VCORE));
        queued(demand).application = Some("app".to_owned());
    }
    world.asks("job_other", "root.a", (1, VCORE));
    let plan = world.step();
    assert_eq!(placed(&plan), ["job_other"]);
    assert_eq!(plan.verdicts["job_3"].reason, Reason::BackingOff);
    assert_eq!(placed(&world.step()), [""; 0]);
    world.pass(30_000);
    world.snapshot.demand.remove("job_1");
    assert_eq!(placed(&world.step()), ["job_3"]);
}

#[test]
fn s17_1_a_gang_starts_whole_or_not_at_all() {
    let mut world = world(&[("n1", 4), ("n2", 4)]);
    world.part("job_driver", ("root.a", "gang"), (1, 3 * VCORE));
    world.part("job_workers", ("root.a", "gang"), (6, VCORE));
    let plan = world.step();
    assert!(plan.is_empty(), "{plan:#?}");
    let verdict = &plan.verdicts["job_workers"];
    assert_eq!(verdict.reason, Reason::GangIncomplete);
    assert!(
        verdict.detail.contains("6 of the 7 processes"),
        "{}",
        verdict.detail
    );
    world.node("n3", &[("vcore", VCORE)]);
    world.settle();
    assert_eq!((world.has("job_driver"), world.has("job_workers")), (1, 6));
}

/// The fair order spreads small parts over both nodes, and the large one would not fit any more.
#[test]
fn s17_1_a_gang_that_fits_is_found_room_for() {
    let mut world = world(&[("n1", 4), ("n2", 4)]);
    world.asks("job_0", "root.a", (1, VCORE));
    world.settle();
    world.part("job_a", ("root.a", "gang"), (1, 3 * VCORE));
    world.part("job_b", ("root.a", "gang"), (2, 2 * VCORE));
    world.settle();
    assert_eq!((world.has("job_a"), world.has("job_b")), (1, 2));
}

#[test]
fn s17_1_a_gang_below_its_least_is_repaired_first() {
    let mut world = world(&[("n1", 4)]);
    world.part("job_a", ("root.a", "gang"), (3, VCORE));
    world.settle();
    let lost = world.snapshot.allocations.keys().next().unwrap().clone();
    world.snapshot.allocations.remove(&lost);
    world.asks("job_b", "root.a", (4, VCORE));
    world.settle();
    assert_eq!((world.has("job_a"), world.has("job_b")), (3, 1));
}

#[test]
fn what_has_no_room_is_told_the_nearest() {
    let mut world = world(&[("n1", 4), ("n2", 2)]);
    world.asks("job_1", "root.a", (1, 3 * VCORE));
    world.settle();
    world.asks("job_2", "root.a", (1, 4 * VCORE));
    let verdict = &world.plan().verdicts[&work("job_2")];
    assert_eq!(verdict.reason, Reason::ResourcesExhausted);
    assert!(
        verdict
            .detail
            .contains("n1 comes nearest and lacks 3 vcore")
    );
    assert!(
        matches!(&verdict.unblock, Some(Unblock::FreeRoom { node, .. }) if node.as_str() == "n1")
    );
}

#[test]
fn closed_and_missing_machines_are_named() {
    let mut world = world(&[("n1", 4)]);
    let demand = world.asks("job_1", "root.a", (1, VCORE));
    demand.machines = ["nowhere".parse().unwrap()].into();
    world.asks("job_2", "root.a", (1, VCORE));
    world.node("n1", &[]).block = Some(Block {
        effect: BlockEffect::Mark,
        reason: "a test".to_owned(),
    });
    let plan = world.step();
    assert_eq!(plan.verdicts["job_1"].reason, Reason::NoListedMachine);
    assert_eq!(plan.verdicts["job_2"].reason, Reason::AllBlocked);
}

#[test]
fn a_queue_that_is_not_there_is_refused_by_name() {
    let mut world = world(&[("n1", 4)]);
    world.asks("job_1", "root.b", (1, VCORE));
    let verdict = &world.plan().verdicts[&work("job_1")];
    assert_eq!(
        (verdict.reason, verdict.refused),
        (Reason::UnknownClass, true)
    );
    assert_eq!(
        verdict.detail,
        "there is no queue root.b; the nearest is root"
    );
}

#[test]
fn parts_of_gpus_are_packed_onto_one() {
    let mut world = world(&[]);
    world.node("n1", &[("vcore", 9 * VCORE), ("gpu", 2_000)]);
    for (id, gpu) in [("job_1", 500), ("job_2", 500), ("job_3", 1_000)] {
        world.ask(id, "root.a", &[("vcore", VCORE), ("gpu", gpu)]);
    }
    let plan = world.step();
    let gpus: Vec<&[u64]> = plan.grants.iter().map(|grant| &grant.gpus[..]).collect();
    assert_eq!(gpus, [[0], [0], [1]]);
}

#[test]
fn what_can_never_start_is_said_at_once_with_the_nearest_size_that_can() {
    let half = json!({"submit_acl": "*", "resources": {"max": {"vcore": 4}}});
    let mut world = World::of(&json!({"queues": {"a": half, "b": {"submit_acl": "*"}}}));
    world.node("n1", &[("vcore", 4 * VCORE)]);
    world.node("n2", &[("vcore", 4 * VCORE)]);
    world.asks("job_0", "root.b", (8, VCORE));
    world.settle();
    // Larger than its queue may ever be, which is refused; larger than the pool; more than the
    // nodes take of its size.
    world.part("job_a", ("root.a", "queue"), (6, VCORE));
    world.part("job_b", ("root.b", "pool"), (9, VCORE));
    world.part("job_c", ("root.b", "nodes"), (3, 2_500));
    world.part("job_d", ("root.b", "fits"), (8, VCORE));
    let verdicts = world.plan().verdicts;
    for (work, reason, told) in [
        (
            "job_a",
            Reason::QueueQuota,
            "needs 6 vcore together, and queue root.a may have 4: 4 of them would fit",
        ),
        (
            "job_b",
            Reason::GangIncomplete,
            "its pool with all nodes may have 8: it can never start; 8 of the 9",
        ),
        (
            "job_c",
            Reason::GangIncomplete,
            "2 nodes have room for 2 when they are empty: it can never start; 2 could",
        ),
    ] {
        let verdict = &verdicts[work];
        assert_eq!(verdict.reason, reason);
        assert_eq!(verdict.refused, work == "job_a");
        assert!(verdict.detail.contains(told), "{}", verdict.detail);
    }
    assert!(!verdicts["job_d"].detail.contains("never"));
}
