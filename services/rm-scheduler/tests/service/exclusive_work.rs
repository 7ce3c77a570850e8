//! Exclusive work: however a process leaves, its successor names the end it waits for (I4).

use hayward_blocklist_api::{BlockKind, EvacuationPolicy};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::DrainOrder;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::{Role, Timestamp, WhenUnreachable};

use super::drains::{drain, order};
use super::fixture::{Fixture, stays};
use super::neighbours::block;
use super::second_places::process;

const WORK: &str = "svc_1.0";

fn exclusive() -> DemandEntry {
    DemandEntry {
        when_unreachable: WhenUnreachable::Exclusive,
        ..process(WORK, Role::Active)
    }
}

/// A way to make a process leave.
type Road = fn(&Fixture, &AllocationEntry);

fn worker_evacuated(fixture: &Fixture, worker: &AllocationEntry) {
    let item = block(BlockKind::Worker, worker.id.as_str(), None);
    fixture.around.block(&item);
}

const ROADS: [(&str, Road); 6] = [
    ("its node is evacuated at once", |fixture, old| {
        let item = block(BlockKind::Node, old.node.as_str(), None);
        fixture.around.block(&item);
    }),
    ("its worker is evacuated at once", worker_evacuated),
    ("its node is blocked for it alone", |fixture, old| {
        let mut item = block(BlockKind::Node, old.node.as_str(), None);
        item.job = Some("svc_1".parse().unwrap());
        fixture.around.block(&item);
    }),
    ("its node is evacuated by and by", |fixture, old| {
        let mut item = block(BlockKind::Node, old.node.as_str(), None);
        item.evacuation = EvacuationPolicy::Graceful { grace_ms: 600_000 };
        fixture.around.block(&item);
    }),
    ("its node is drained", |fixture, old| {
        drain(fixture, old.node.as_str(), 4, order(1));
    }),
    ("the time of a drain is over", |fixture, old| {
        let over = DrainOrder {
            deadline: Some(Timestamp::from_unix_ms(1)),
            ..order(1)
        };
        drain(fixture, old.node.as_str(), 4, over);
    }),
];

/// Running on `n1`, with space on another node.
async fn on_n1() -> (Fixture, AllocationEntry) {
    let fixture = Fixture::new(&[4]).await;
    fixture.around.ask(&exclusive());
    let old = fixture.running(WORK).await;
    fixture.around.node("n2", 4);
    fixture.around.node("n3", 4);
    fixture.settled().await;
    (fixture, old)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_of_exclusive_work_names_the_attempt_that_has_not_ended() {
    for (road, send_off) in ROADS {
        let (fixture, old) = on_n1().await;
        send_off(&fixture, &old);
        let next = |it: &AllocationEntry| stays(it) && it.id != old.id;
        let new = fixture.until_one(WORK, road, next).await;
        assert_eq!(new.predecessor.as_ref(), Some(&old.id), "{road}");
        // The successor of the successor waits for the same end, which is not proven yet.
        worker_evacuated(&fixture, &new);
        let third = |it: &AllocationEntry| stays(it) && it.incarnation > new.incarnation;
        let third = fixture.until_one(WORK, road, third).await;
        assert_eq!(third.predecessor.as_ref(), Some(&old.id), "{road}");
        fixture.report(&new, ContainerState::Ended);
        fixture.report(&old, ContainerState::Ended);
        fixture.settled().await;
        let all = fixture.allocations().await;
        let holding: Vec<_> = all.values().filter(|it| it.holds()).collect();
        assert!(holding.len() == 1 && holding[0].id == third.id, "{road}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_submitted_again_waits_for_the_end_of_its_last_attempt() {
    let (fixture, old) = on_n1().await;
    let nothing = DemandEntry {
        max_processes: 0,
        ..exclusive()
    };
    fixture.around.ask(&nothing);
    let ordered_to_leave = |it: &AllocationEntry| it.id == old.id && it.vacate.is_some();
    fixture
        .until_one(WORK, "is ordered to leave", ordered_to_leave)
        .await;
    fixture.around.ask(&exclusive());
    let next = |it: &AllocationEntry| stays(it) && it.id != old.id;
    let new = fixture.until_one(WORK, "is there again", next).await;
    assert_eq!(new.predecessor, Some(old.id));
}
