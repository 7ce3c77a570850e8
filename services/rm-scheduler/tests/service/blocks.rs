//! Tests of blocks: how long a block counts, and what happens to existing allocations. A block
//! evacuates its node or worker, or only marks it. A marked node keeps its work and gets no new
//! work. The publication `clearings` has the progress of each block.

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::node_publications::ClearingEntry;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::{Clock, SystemClock};
use hayward_testkit::until;

use super::drains::until_clearing;
use super::fixture::{Fixture, allocations_of, is_staying};
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
            all.values().filter(|entry| is_staying(entry)).count() == 4
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
async fn a_mark_counts_until_its_end_and_a_vacate_takes_precedence() {
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

#[tokio::test(flavor = "multi_thread")]
async fn every_block_publishes_the_revision_that_put_it_in_force() {
    let mut fixture = Fixture::new(&[3]).await;
    let before = fixture.revision();
    let mut item = block(BlockKind::Node, "n1", None);
    item.action = BlockAction::Mark;
    item.removal_no = 3;
    fixture.neighbours.block(&item);
    let progress = until_clearing(&fixture, "node/n1", "is in force", |_| true).await;
    assert!(progress.revision > before && progress.revision <= fixture.revision());
    assert_eq!(
        (progress.number, progress.total, progress.remaining),
        (3, 0, 0)
    );
    fixture.restart().await;
    fixture.settle().await;
    let entries = fixture.entries::<ClearingEntry>("clearings").await;
    assert_eq!(entries["node/n1"], progress);
    // Another block of the same key is independent.
    item.removal_no = 4;
    fixture.neighbours.block(&item);
    let next = until_clearing(&fixture, "node/n1", "is the next", |it| it.number == 4).await;
    assert!(next.revision > progress.revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_becomes_an_evacuation_runs_at_once_and_only_once() {
    let fixture = Fixture::new(&[2, 2]).await;
    fixture.neighbours.submit(&service("svc_a.0", "ann"));
    let first = fixture.report_running("svc_a.0").await;
    let key = format!("node/{}", first.node);
    let mut item = block(BlockKind::Node, first.node.as_str(), None);
    item.action = BlockAction::Mark;
    fixture.block(&item).await;
    fixture.settle().await;
    // Existing processes survive a mark.
    assert!(fixture.allocations().await.values().all(is_staying));
    item.action = BlockAction::Evacuate;
    fixture.neighbours.block(&item);
    let is_vacated = |it: &AllocationEntry| it.id == first.id && it.vacate.is_some();
    fixture.until_one("svc_a.0", "is vacated", is_vacated).await;
    let vacate = fixture.allocations().await[first.id.as_str()]
        .vacate
        .clone();
    // A new cause of the block gives no second vacate.
    item.cause = "it smells worse".into();
    fixture.neighbours.block(&item);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert_eq!(all[first.id.as_str()].vacate, vacate);
    assert_eq!(allocations_of(&all, "svc_a.0").len(), 2);
    fixture.report(&first, ContainerState::Ended);
    fixture.report_running("svc_a.0").await;
    let progress = until_clearing(&fixture, &key, "is done", |it| it.moved == 1).await;
    assert_eq!(
        (progress.total, progress.failed, progress.remaining),
        (1, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_for_one_job_moves_only_that_job() {
    let fixture = Fixture::new(&[4]).await;
    for (work, user) in [("svc_a.0", "ann"), ("svc_b.0", "ben")] {
        fixture.neighbours.submit(&service(work, user));
        fixture.report_running(work).await;
    }
    let mut item = block(BlockKind::Node, "n1", None);
    item.job = Some("svc_a".parse().unwrap());
    fixture.neighbours.block(&item);
    let is_vacated = |it: &AllocationEntry| it.vacate.is_some();
    let left = fixture.until_one("svc_a.0", "is vacated", is_vacated).await;
    assert_eq!(left.vacate.as_ref().unwrap().reason, VacateReason::Blocked);
    fixture.report(&left, ContainerState::Ended);
    let verdict = fixture
        .until_verdict("svc_a.0", WaitReason::AllBlocked)
        .await;
    assert!(!verdict.refused);
    // Other work stays on the node, and new work is granted there.
    let mut other = job("job_c", "cy");
    other.max_processes = 2;
    fixture.neighbours.submit(&other);
    fixture
        .until("two processes of job_c", |all| {
            allocations_of(all, "job_c").len() == 2
        })
        .await;
    assert!(
        allocations_of(&fixture.allocations().await, "svc_b.0")
            .iter()
            .all(is_staying)
    );
    assert_eq!(
        allocations_of(&fixture.allocations().await, "svc_a.0").len(),
        1
    );
    let progress = until_clearing(&fixture, "node/n1@svc_a", "is cleared", |it| {
        it.remaining == 0
    })
    .await;
    assert_eq!((progress.total, progress.failed), (1, 1));
    fixture.neighbours.blocks.remove("node/n1@svc_a");
    fixture.until_one("svc_a.0", "is back", is_staying).await;
}

/// The end of a block causes one round (BL-8).
#[tokio::test(flavor = "multi_thread")]
async fn a_block_withdrawn_after_its_end_causes_no_second_round() {
    let fixture = Fixture::new(&[2]).await;
    let end = SystemClock.now().plus_ms(1_200);
    let mut item = block(BlockKind::Node, "n1", Some(end));
    item.action = BlockAction::Mark;
    fixture.block(&item).await;
    fixture.settle().await;
    let round = fixture.shares().await.unwrap().round;
    until("the end", async || {
        let now = fixture.shares().await?.round;
        (SystemClock.now() > end && now > round).then_some(())
    })
    .await;
    fixture.neighbours.blocks.remove("node/n1");
    // `force_round` causes one round itself.
    fixture.force_round().await;
    assert_eq!(fixture.shares().await.unwrap().round, round + 2);
}
