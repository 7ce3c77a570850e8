//! Scenarios of waiting work: reservations, back-off, gangs, and verdicts. Work gets a reservation
//! after a wait of 2 s, and a reservation ends after 300 s.

use hayward_rm_scheduler_domain::{
    Reason,
    plan::Unblock,
    snapshot::{Block, BlockEffect},
};
use serde_json::json;

use super::VCORE;
use crate::fixture::{Fixture, POOL, gang_named, granted_works, queued_mut, work_id};

/// Creates a pool with the queue `a` and these nodes, as name and vcores.
fn fixture(nodes: &[(&str, u64)]) -> Fixture {
    let root = json!({"submit_acl": "*", "queues": {"a": {}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    for (name, vcore) in nodes {
        fixture.add_node(name, &[("vcore", vcore * VCORE)]);
    }
    fixture
}

#[test]
fn a_node_is_reserved_for_work_that_has_waited() {
    let mut fixture = fixture(&[("n1", 4)]);
    fixture.add_processes("job_1", "root.a", 4, VCORE);
    fixture.settle();
    fixture.add_processes("job_large", "root.a", 1, 4 * VCORE);
    fixture.advance(2_000);
    let plan = fixture.step();
    let reserved = &plan.carried.queues[POOL].reservations;
    let reserved: Vec<(&str, &str)> = reserved
        .iter()
        .map(|(node, reservation)| (node.as_str(), reservation.work.as_str()))
        .collect();
    assert_eq!(reserved, [("n1", "job_large")]);
    // A process on the node ends, and the space stays reserved.
    fixture
        .snapshot
        .demand
        .get_mut("job_1")
        .unwrap()
        .max_processes = 2;
    fixture.settle();
    fixture.add_processes("job_small", "root.a", 3, VCORE);
    let plan = fixture.step();
    assert_eq!(fixture.count_running("job_small"), 0, "{plan:#?}");
    assert_eq!(plan.verdicts["job_small"].reason, Reason::NodesReserved);
    // All processes end.
    fixture.snapshot.demand.remove("job_1");
    fixture.settle();
    assert_eq!(fixture.count_running("job_large"), 1);
}

#[test]
fn a_reservation_has_one_lifetime() {
    let mut fixture = fixture(&[("n1", 4)]);
    fixture.add_processes("job_1", "root.a", 3, VCORE);
    fixture.settle();
    fixture.add_processes("job_large", "root.a", 1, 4 * VCORE);
    fixture.advance(3_000);
    fixture.step();
    fixture.add_processes("job_small", "root.a", 1, VCORE);
    fixture.step();
    assert_eq!(fixture.count_running("job_small"), 0);
    fixture.advance(300_000);
    fixture.step();
    assert_eq!(fixture.count_running("job_small"), 1);
    assert!(
        fixture.snapshot.carried.queues[POOL]
            .reservations
            .is_empty()
    );
    // The same work gets no new reservation at once.
    fixture.advance(10_000);
    fixture.step();
    assert!(
        fixture.snapshot.carried.queues[POOL]
            .reservations
            .is_empty()
    );
    fixture.advance(300_000);
    fixture.step();
    assert_eq!(fixture.snapshot.carried.queues[POOL].reservations.len(), 1);
}

#[test]
fn work_larger_than_every_node_reserves_none() {
    let mut fixture = fixture(&[("n1", 4)]);
    fixture.add_processes("job_huge", "root.a", 1, 5 * VCORE);
    fixture.advance(60_000);
    let plan = fixture.step();
    assert!(plan.carried.queues[POOL].reservations.is_empty());
    assert_eq!(plan.verdicts["job_huge"].reason, Reason::NoHostLargeEnough);
}

#[test]
fn an_application_without_nodes_backs_off() {
    let root = json!({"submit_acl": "*", "backoff_asks": 2, "backoff_ms": 30_000,
        "queues": {"a": {}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 4 * VCORE)]);
    for (id, vcore) in [("job_1", 9), ("job_2", 9), ("job_3", 1)] {
        let demand = fixture.add_processes(id, "root.a", 1, vcore * VCORE);
        queued_mut(demand).application = Some("app".to_owned());
    }
    fixture.add_processes("job_other", "root.a", 1, VCORE);
    let plan = fixture.step();
    assert_eq!(granted_works(&plan), ["job_other"]);
    assert_eq!(plan.verdicts["job_3"].reason, Reason::BackingOff);
    assert_eq!(granted_works(&fixture.step()), [""; 0]);
    fixture.advance(30_000);
    fixture.snapshot.demand.remove("job_1");
    assert_eq!(granted_works(&fixture.step()), ["job_3"]);
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let mut fixture = fixture(&[("n1", 4), ("n2", 4)]);
    fixture.add_gang_part("job_driver", "root.a", gang_named("gang", 1), 3 * VCORE);
    fixture.add_gang_part("job_workers", "root.a", gang_named("gang", 6), VCORE);
    let plan = fixture.step();
    assert!(plan.is_empty(), "{plan:#?}");
    let verdict = &plan.verdicts["job_workers"];
    assert_eq!(verdict.reason, Reason::GangIncomplete);
    assert!(
        verdict.detail.contains("6 of the 7 processes"),
        "{}",
        verdict.detail
    );
    fixture.add_node("n3", &[("vcore", VCORE)]);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_driver"),
            fixture.count_running("job_workers")
        ),
        (1, 6)
    );
}

/// In the fair order, the small parts would be spread over both nodes. The large part would then no
/// longer fit.
#[test]
fn a_gang_that_fits_is_placed() {
    let mut fixture = fixture(&[("n1", 4), ("n2", 4)]);
    fixture.add_processes("job_0", "root.a", 1, VCORE);
    fixture.settle();
    fixture.add_gang_part("job_a", "root.a", gang_named("gang", 1), 3 * VCORE);
    fixture.add_gang_part("job_b", "root.a", gang_named("gang", 2), 2 * VCORE);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_a"),
            fixture.count_running("job_b")
        ),
        (1, 2)
    );
}

#[test]
fn a_gang_below_its_minimum_is_repaired_first() {
    let mut fixture = fixture(&[("n1", 4)]);
    fixture.add_gang_part("job_a", "root.a", gang_named("gang", 3), VCORE);
    fixture.settle();
    let removed = fixture.snapshot.allocations.keys().next().unwrap().clone();
    fixture.snapshot.allocations.remove(&removed);
    fixture.add_processes("job_b", "root.a", 4, VCORE);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_a"),
            fixture.count_running("job_b")
        ),
        (3, 1)
    );
}

#[test]
fn the_verdict_names_the_nearest_node() {
    let mut fixture = fixture(&[("n1", 4), ("n2", 2)]);
    fixture.add_processes("job_1", "root.a", 1, 3 * VCORE);
    fixture.settle();
    fixture.add_processes("job_2", "root.a", 1, 4 * VCORE);
    let verdict = &fixture.plan().verdicts[&work_id("job_2")];
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
fn the_verdict_names_closed_and_missing_nodes() {
    let mut fixture = fixture(&[("n1", 4)]);
    let demand = fixture.add_processes("job_1", "root.a", 1, VCORE);
    demand.node_list = ["nowhere".parse().unwrap()].into();
    fixture.add_processes("job_2", "root.a", 1, VCORE);
    fixture.add_node("n1", &[]).block = Some(Block {
        effect: BlockEffect::Mark,
        reason: "a test".to_owned(),
    });
    let plan = fixture.step();
    assert_eq!(plan.verdicts["job_1"].reason, Reason::NoListedMachine);
    assert_eq!(plan.verdicts["job_2"].reason, Reason::AllBlocked);
}

#[test]
fn a_missing_queue_is_refused_by_name() {
    let mut fixture = fixture(&[("n1", 4)]);
    fixture.add_processes("job_1", "root.b", 1, VCORE);
    let verdict = &fixture.plan().verdicts[&work_id("job_1")];
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
fn an_impossible_gang_is_reported_at_once_with_the_largest_possible_size() {
    let half = json!({"submit_acl": "*", "resources": {"max": {"vcore": 4}}});
    let mut fixture =
        Fixture::from_queues(&json!({"queues": {"a": half, "b": {"submit_acl": "*"}}}));
    fixture.add_node("n1", &[("vcore", 4 * VCORE)]);
    fixture.add_node("n2", &[("vcore", 4 * VCORE)]);
    fixture.add_processes("job_0", "root.b", 8, VCORE);
    fixture.settle();
    // The first gang exceeds the maximum of its queue, the second the pool, the third the nodes.
    fixture.add_gang_part("job_a", "root.a", gang_named("queue", 6), VCORE);
    fixture.add_gang_part("job_b", "root.b", gang_named("pool", 9), VCORE);
    fixture.add_gang_part("job_c", "root.b", gang_named("nodes", 3), 2_500);
    fixture.add_gang_part("job_d", "root.b", gang_named("fits", 8), VCORE);
    let verdicts = fixture.plan().verdicts;
    for (work, reason, text) in [
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
        assert!(verdict.detail.contains(text), "{}", verdict.detail);
    }
    assert!(!verdicts["job_d"].detail.contains("never"));
}
