//! Tests of exclusive work, of which two processes never run at once. However a process leaves, the
//! successor names the attempt whose end it waits for (I4).

use hayward_blocklist_api::{BlockKind, EvacuationPolicy};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::DrainOrder;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::{Role, Timestamp, WhenUnreachable};

use super::drains::{drain, drain_order};
use super::fixture::{Fixture, is_staying};
use super::neighbours::block;
use super::successor_requests::process;

const WORK: &str = "svc_1.0";

fn exclusive_demand() -> DemandEntry {
    DemandEntry {
        when_unreachable: WhenUnreachable::Exclusive,
        ..process(WORK, Role::Active)
    }
}

/// An event that makes a process leave.
type LeaveCause = fn(&Fixture, &AllocationEntry);

fn evacuate_worker(fixture: &Fixture, worker: &AllocationEntry) {
    let item = block(BlockKind::Worker, worker.id.as_str(), None);
    fixture.neighbours.block(&item);
}

const LEAVE_CAUSES: [(&str, LeaveCause); 6] = [
    ("its node is evacuated at once", |fixture, old| {
        let item = block(BlockKind::Node, old.node.as_str(), None);
        fixture.neighbours.block(&item);
    }),
    ("its worker is evacuated at once", evacuate_worker),
    ("its node is blocked for it alone", |fixture, old| {
        let mut item = block(BlockKind::Node, old.node.as_str(), None);
        item.job = Some("svc_1".parse().unwrap());
        fixture.neighbours.block(&item);
    }),
    ("its node is evacuated gracefully", |fixture, old| {
        let mut item = block(BlockKind::Node, old.node.as_str(), None);
        item.evacuation = EvacuationPolicy::Graceful { grace_ms: 600_000 };
        fixture.neighbours.block(&item);
    }),
    ("its node is drained", |fixture, old| {
        drain(fixture, old.node.as_str(), 4, drain_order(1));
    }),
    ("the time of a drain is over", |fixture, old| {
        let over = DrainOrder {
            deadline: Some(Timestamp::from_unix_ms(1)),
            ..drain_order(1)
        };
        drain(fixture, old.node.as_str(), 4, over);
    }),
];

/// Starts the work on `n1`. Then `n2` and `n3` have space for a successor.
async fn start_on_n1() -> (Fixture, AllocationEntry) {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&exclusive_demand());
    let old = fixture.report_running(WORK).await;
    fixture.neighbours.node("n2", 4);
    fixture.neighbours.node("n3", 4);
    fixture.settle().await;
    (fixture, old)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_of_exclusive_work_names_the_attempt_that_has_not_ended() {
    for (name, make_leave) in LEAVE_CAUSES {
        let (fixture, old) = start_on_n1().await;
        make_leave(&fixture, &old);
        let next = |it: &AllocationEntry| is_staying(it) && it.id != old.id;
        let new = fixture.until_one(WORK, name, next).await;
        assert_eq!(new.predecessor.as_ref(), Some(&old.id), "{name}");
        // The successor of the successor waits for the same end, which is not proven yet.
        evacuate_worker(&fixture, &new);
        let third = |it: &AllocationEntry| is_staying(it) && it.incarnation > new.incarnation;
        let third = fixture.until_one(WORK, name, third).await;
        assert_eq!(third.predecessor.as_ref(), Some(&old.id), "{name}");
        fixture.report(&new, ContainerState::Ended);
        fixture.report(&old, ContainerState::Ended);
        fixture.settle().await;
        let all = fixture.allocations().await;
        let holding: Vec<_> = all.values().filter(|it| it.holds()).collect();
        assert!(holding.len() == 1 && holding[0].id == third.id, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_submitted_again_waits_for_the_end_of_its_last_attempt() {
    let (fixture, old) = start_on_n1().await;
    let without_processes = DemandEntry {
        max_processes: 0,
        ..exclusive_demand()
    };
    fixture.neighbours.submit(&without_processes);
    let is_vacated = |it: &AllocationEntry| it.id == old.id && it.vacate.is_some();
    fixture.until_one(WORK, "is vacated", is_vacated).await;
    fixture.neighbours.submit(&exclusive_demand());
    let next = |it: &AllocationEntry| is_staying(it) && it.id != old.id;
    let new = fixture.until_one(WORK, "is there again", next).await;
    assert_eq!(new.predecessor, Some(old.id));
}
