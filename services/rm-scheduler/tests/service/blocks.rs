//! Blocks: how long they count, and what happens to existing allocations.

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::{Clock, SystemClock};

use super::fixture::{Fixture, stays};
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
            all.values().filter(|e| stays(e)).count() == 4
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_stops_new_work_and_keeps_existing_work() {
    let fixture = Fixture::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    fixture.until("one", |all| all.len() == 1).await;
    let mut mark = block(BlockKind::Node, "n1", None);
    mark.action = BlockAction::Mark;
    fixture.neighbours.block(&mark);
    fixture.settle().await;
    demand.max_processes = 2;
    fixture.neighbours.submit(&demand);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert!(all.len() == 1 && all.values().all(stays));
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
    let all = fixture.until("two", |all| all.len() == 2).await;
    let worker = all.values().next().unwrap();
    fixture
        .neighbours
        .block(&block(BlockKind::Worker, worker.id.as_str(), None));
    let all = fixture.until("a successor", |all| all.len() == 3).await;
    let leaving: Vec<_> = all.values().filter(|entry| !stays(entry)).collect();
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
    assert!(fixture.allocations().await.values().all(stays));
    let done = hayward_vocabulary::Exit::of(hayward_vocabulary::ExitCause::Success, "done");
    fixture.end(&first, done);
    // Its space is not granted while the node is marked.
    fixture.until_verdict("job_a", WaitReason::AllBlocked).await;
    fixture.neighbours.node("n2", 1);
    let next = fixture.until_one("job_a", "goes on", stays).await;
    assert_eq!(next.node.as_str(), "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_in_flight_is_evacuated_too() {
    let fixture = Fixture::new(&[2, 2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    let first = fixture.until_one("job_a", "is there", stays).await;
    fixture.report(&first, ContainerState::Launching);
    fixture
        .neighbours
        .block(&block(BlockKind::Node, first.node.as_str(), None));
    let leaves = |it: &AllocationEntry| it.id == first.id && it.vacate.is_some();
    let leaving = fixture
        .until_one("job_a", "is ordered to leave", leaves)
        .await;
    // Its launch succeeds after the order to leave, which stays and is given once.
    fixture.report(&first, ContainerState::Running);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert_eq!(all[first.id.as_str()].vacate, leaving.vacate);
    assert_eq!(all.len(), 2);
}

fn marked(entry: &AllocationEntry) -> bool {
    entry.marked.is_some() && stays(entry)
}

fn free(entry: &AllocationEntry) -> bool {
    entry.marked.is_none() && stays(entry)
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
    let mut on_node = block(BlockKind::Node, "n1", None);
    let mut for_job = on_node.clone();
    for_job.job = Some("job_a".parse().unwrap());
    let on_worker = block(BlockKind::Worker, held.id.as_str(), None);
    on_node.cause = "bad memory".into();
    for (mut mark, text) in [
        (on_node, "node n1 is marked: bad memory"),
        (for_job, "node n1 is marked for job_a: it smells"),
        (on_worker, "the worker is marked: it smells"),
    ] {
        mark.action = BlockAction::Mark;
        fixture.block(&mark).await;
        let held_entry = fixture.until_one("job_a", "is notified", marked).await;
        assert_eq!(held_entry.marked.as_deref(), Some(text));
        let all = fixture.allocations().await;
        let others = all.values().filter(|it| it.id != held.id);
        assert!(
            others.into_iter().all(free),
            "a service has nothing to lease"
        );
        // The order survives a restart and the end of the mark.
        fixture.restart().await;
        fixture.settle().await;
        assert!(fixture.allocations().await.values().any(marked));
        fixture.neighbours.blocks.remove(&mark.key());
        fixture.until_one("job_a", "is free again", free).await;
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
    fixture.until_one("job_a", "is notified", marked).await;
    fixture.neighbours.blocks.set_responding(false);
    fixture.until_one("job_a", "is free again", free).await;
    fixture.neighbours.blocks.set_responding(true);
    fixture
        .neighbours
        .block(&block(BlockKind::Node, "n1", None));
    let leaves = |it: &AllocationEntry| it.vacate.is_some();
    let left = fixture.until_one("job_a", "has to go", leaves).await;
    assert_eq!(left.marked, None);
}
