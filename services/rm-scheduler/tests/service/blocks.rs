//! Tests of blocks: how long a block counts, and what happens to existing allocations. A block
//! evacuates its node or worker, or only marks it. A marked node keeps its work and gets no new
//! work.

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::{Clock, SystemClock};

use super::fixture::{Fixture, is_staying};
use super::neighbours::{block, job, service};

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_node_is_evacuated_and_gets_no_new_work() {
    let fixture = Fixture::new(&[2, 2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    let first = fixture.until_one("job_a", "is there", |_| true).await;
    fixture
        .neighbours
        .block(&block(BlockKind::Node, first.node.as_str(), None));
    let all = fixture.until("a successor", |all| all.len() == 2).await;
    let left = all[first.id.as_str()].vacate.as_ref().unwrap();
    assert_eq!((left.reason, left.purge), (VacateReason::Blocked, false));
    assert!(left.detail.contains("it smells"), "{}", left.detail);
    assert!(
        all.values()
            .all(|entry| entry.id == first.id || entry.node != first.node)
    );

    demand.max_processes = 4;
    fixture.neighbours.submit(&demand);
    fixture
        .until("the other node full", |all| all.len() == 3)
        .await;
    fixture.settle().await;
    assert_eq!(fixture.allocations().await.len(), 3);
    fixture.report(&first, ContainerState::Ended);
    fixture
        .neighbours
        .blocks
        .remove(&format!("node/{}", first.node));
    fixture
        .until("both nodes in use", |all| {
            all.values().filter(|e| is_staying(e)).count() == 4
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_stops_new_work_and_keeps_existing_work() {
    let fixture = Fixture::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    fixture.until("one process", |all| all.len() == 1).await;
    let mut mark = block(BlockKind::Node, "n1", None);
    mark.action = BlockAction::Mark;
    fixture.neighbours.block(&mark);
    fixture.settle().await;
    demand.max_processes = 2;
    fixture.neighbours.submit(&demand);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert!(all.len() == 1 && all.values().all(is_staying));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_ends_at_its_end_also_while_blocklist_is_unavailable() {
    let fixture = Fixture::new(&[1]).await;
    let end = SystemClock.now().plus_ms(1_500);
    fixture
        .neighbours
        .block(&block(BlockKind::Node, "n1", Some(end)));
    fixture.settle().await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.until_verdict("job_a", WaitReason::AllBlocked).await;
    fixture.neighbours.blocks.set_responding(false);
    let granted = fixture.until_one("job_a", "is there", |_| true).await;
    assert!(granted.granted_at >= end);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_blocked_worker_is_replaced_and_others_on_its_node_stay() {
    let fixture = Fixture::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 2;
    fixture.neighbours.submit(&demand);
    let all = fixture.until("two processes", |all| all.len() == 2).await;
    let worker = all.values().next().unwrap();
    fixture
        .neighbours
        .block(&block(BlockKind::Worker, worker.id.as_str(), None));
    let all = fixture.until("a successor", |all| all.len() == 3).await;
    let leaving: Vec<_> = all.values().filter(|entry| !is_staying(entry)).collect();
    assert_eq!(leaving.len(), 1);
    assert_eq!(leaving[0].id, worker.id);
    assert_eq!(
        leaving[0].vacate.as_ref().unwrap().reason,
        VacateReason::Blocked
    );
    fixture.settle().await;
    assert_eq!(fixture.allocations().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_ends_on_a_marked_node_is_granted_elsewhere() {
    let fixture = Fixture::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    let first = fixture.report_running("job_a").await;
    let mut mark = block(BlockKind::Node, "n1", None);
    mark.action = BlockAction::Mark;
    fixture.block(&mark).await;
    // The allocation is reported again and stays.
    fixture.report(&first, ContainerState::Running);
    fixture.settle().await;
    assert!(fixture.allocations().await.values().all(is_staying));
    let done = hayward_vocabulary::Exit::of(hayward_vocabulary::ExitCause::Success, "done");
    fixture.end(&first, done);
    // The free space of the marked node is not granted.
    fixture.until_verdict("job_a", WaitReason::AllBlocked).await;
    fixture.neighbours.node("n2", 1);
    let next = fixture.until_one("job_a", "goes on", is_staying).await;
    assert_eq!(next.node.as_str(), "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_in_flight_is_evacuated_too() {
    let fixture = Fixture::new(&[2, 2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    let first = fixture.until_one("job_a", "is there", is_staying).await;
    fixture.report(&first, ContainerState::Launching);
    fixture
        .neighbours
        .block(&block(BlockKind::Node, first.node.as_str(), None));
    let leaves = |it: &AllocationEntry| it.id == first.id && it.vacate.is_some();
    let leaving = fixture.until_one("job_a", "is vacated", leaves).await;
    // The launch succeeds after the vacate. The vacate stays, and there is no second one.
    fixture.report(&first, ContainerState::Running);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert_eq!(all[first.id.as_str()].vacate, leaving.vacate);
    assert_eq!(all.len(), 2);
}

fn is_marked(entry: &AllocationEntry) -> bool {
    entry.marked.is_some() && is_staying(entry)
}

fn is_unmarked(entry: &AllocationEntry) -> bool {
    entry.marked.is_none() && is_staying(entry)
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_on_a_node_or_a_worker_are_published_with_processes_of_jobs() {
    let mut fixture = Fixture::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    fixture.neighbours.submit(&service("svc_a.0", "ann"));
    let held = fixture.report_running("job_a").await;
    fixture.report_running("svc_a.0").await;
    let mut node_mark = block(BlockKind::Node, "n1", None);
    let mut job_mark = node_mark.clone();
    job_mark.job = Some("job_a".parse().unwrap());
    let worker_mark = block(BlockKind::Worker, held.id.as_str(), None);
    node_mark.cause = "bad memory".into();
    for (mut mark, text) in [
        (node_mark, "node n1 is marked: bad memory"),
        (job_mark, "node n1 is marked for job_a: it smells"),
        (worker_mark, "the worker is marked: it smells"),
    ] {
        mark.action = BlockAction::Mark;
        fixture.block(&mark).await;
        let held_entry = fixture.until_one("job_a", "is marked", is_marked).await;
        assert_eq!(held_entry.marked.as_deref(), Some(text));
        let all = fixture.allocations().await;
        let others = all.values().filter(|it| it.id != held.id);
        assert!(
            others.into_iter().all(is_unmarked),
            "a service leases no tasks, so its process gets no mark"
        );
        // The mark survives a restart.
        fixture.restart().await;
        fixture.settle().await;
        assert!(fixture.allocations().await.values().any(is_marked));
        fixture.neighbours.blocks.remove(&mark.key());
        fixture
            .until_one("job_a", "is no longer marked", is_unmarked)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_counts_until_its_end_and_an_order_to_leave_takes_precedence() {
    let fixture = Fixture::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    fixture.report_running("job_a").await;
    let end = SystemClock.now().plus_ms(1_500);
    let mut mark = block(BlockKind::Node, "n1", Some(end));
    mark.action = BlockAction::Mark;
    fixture.neighbours.block(&mark);
    fixture.until_one("job_a", "is marked", is_marked).await;
    fixture.neighbours.blocks.set_responding(false);
    fixture
        .until_one("job_a", "is no longer marked", is_unmarked)
        .await;
    fixture.neighbours.blocks.set_responding(true);
    fixture
        .neighbours
        .block(&block(BlockKind::Node, "n1", None));
    let leaves = |it: &AllocationEntry| it.vacate.is_some();
    let left = fixture.until_one("job_a", "is vacated", leaves).await;
    assert_eq!(left.marked, None);
}
