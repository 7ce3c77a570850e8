//! What must be avoided: until when, and what happens to what is there.

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::{Clock, SystemClock};

use super::neighbours::{block, job, service};
use super::world::{World, stays};

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_node_is_evacuated_and_left_alone() {
    let world = World::new(&[2, 2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    let first = world.until_one("job_a", "is there", |_| true).await;
    world
        .around
        .block(&block(BlockKind::Node, first.node.as_str(), None));
    let all = world.until("a successor", |all| all.len() == 2).await;
    let left = all[first.id.as_str()].vacate.as_ref().unwrap();
    assert_eq!((left.reason, left.purge), (VacateReason::Blocked, false));
    assert!(left.detail.contains("it smells"), "{}", left.detail);
    assert!(
        all.values()
            .all(|entry| entry.id == first.id || entry.node != first.node)
    );

    demand.max_processes = 4;
    world.around.ask(&demand);
    world
        .until("the other node full", |all| all.len() == 3)
        .await;
    world.settled().await;
    assert_eq!(world.allocations().await.len(), 3);
    world.report(&first, ContainerState::Ended);
    world.around.blocks.remove(&format!("node/{}", first.node));
    world
        .until("both nodes in use", |all| {
            all.values().filter(|e| stays(e)).count() == 4
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_keeps_new_work_away_and_old_work_there() {
    let world = World::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    world.until("one", |all| all.len() == 1).await;
    let mut mark = block(BlockKind::Node, "n1", None);
    mark.action = BlockAction::Mark;
    world.around.block(&mark);
    world.settled().await;
    demand.max_processes = 2;
    world.around.ask(&demand);
    world.settled().await;
    let all = world.allocations().await;
    assert!(all.len() == 1 && all.values().all(stays));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_counts_until_its_end_and_not_longer_though_blocklist_is_away() {
    let world = World::new(&[1]).await;
    let end = SystemClock.now().plus_ms(1_500);
    world.around.block(&block(BlockKind::Node, "n1", Some(end)));
    world.settled().await;
    world.around.ask(&job("job_a", "ann"));
    world.until_verdict("job_a", WaitReason::AllBlocked).await;
    world.around.blocks.answer(false);
    let granted = world.until_one("job_a", "is there", |_| true).await;
    assert!(granted.granted_at >= end);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_blocked_worker_is_replaced_and_its_neighbours_stay() {
    let world = World::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 2;
    world.around.ask(&demand);
    let all = world.until("two", |all| all.len() == 2).await;
    let worker = all.values().next().unwrap();
    world
        .around
        .block(&block(BlockKind::Worker, worker.id.as_str(), None));
    let all = world.until("a successor", |all| all.len() == 3).await;
    let leaving: Vec<_> = all.values().filter(|entry| !stays(entry)).collect();
    assert_eq!(leaving.len(), 1);
    assert_eq!(leaving[0].id, worker.id);
    assert_eq!(
        leaving[0].vacate.as_ref().unwrap().reason,
        VacateReason::Blocked
    );
    world.settled().await;
    assert_eq!(world.allocations().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_1_17_and_18_what_ends_on_a_marked_node_is_wanted_elsewhere() {
    let world = World::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    let first = world.running("job_a").await;
    let mut mark = block(BlockKind::Node, "n1", None);
    mark.action = BlockAction::Mark;
    world.block(&mark).await;
    // 16: what is there is said again, and stays.
    world.report(&first, ContainerState::Running);
    world.settled().await;
    assert!(world.allocations().await.values().all(stays));
    let done = hayward_vocabulary::Exit::of(hayward_vocabulary::ExitCause::Success, "done");
    world.end(&first, done);
    // 15, 18: the room it leaves is nobody's while the node is marked.
    world.until_verdict("job_a", WaitReason::AllBlocked).await;
    world.around.node("n2", 1);
    let next = world.until_one("job_a", "goes on", stays).await;
    assert_eq!(next.node.as_str(), "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_in_flight_is_evacuated_too() {
    let world = World::new(&[2, 2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    let first = world.until_one("job_a", "is there", stays).await;
    world.report(&first, ContainerState::Launching);
    world
        .around
        .block(&block(BlockKind::Node, first.node.as_str(), None));
    let told =
        |it: &hayward_rm_scheduler_api::AllocationEntry| it.id == first.id && it.vacate.is_some();
    let told = world.until_one("job_a", "is told", told).await;
    // Its launch succeeds after all: it has to go all the same, and is told so once.
    world.report(&first, ContainerState::Running);
    world.settled().await;
    let all = world.allocations().await;
    assert_eq!(all[first.id.as_str()].vacate, told.vacate);
    assert_eq!(all.len(), 2);
}

fn marked(entry: &AllocationEntry) -> bool {
    entry.marked.is_some() && stays(entry)
}

fn free(entry: &AllocationEntry) -> bool {
    entry.marked.is_none() && stays(entry)
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_jobs_are_told_of_a_mark_on_their_node_or_on_them() {
    let mut world = World::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    world.around.ask(&service("svc_a.0", "ann"));
    let held = world.running("job_a").await;
    world.running("svc_a.0").await;
    let mut on_node = block(BlockKind::Node, "n1", None);
    let mut for_job = on_node.clone();
    for_job.job = Some("job_a".parse().unwrap());
    let on_worker = block(BlockKind::Worker, held.id.as_str(), None);
    on_node.cause = "bad memory".into();
    for (mut mark, says) in [
        (on_node, "node n1 is marked: bad memory"),
        (for_job, "node n1 is marked for job_a: it smells"),
        (on_worker, "the worker is marked: it smells"),
    ] {
        mark.action = BlockAction::Mark;
        world.block(&mark).await;
        let told = world.until_one("job_a", "is told", marked).await;
        assert_eq!(told.marked.as_deref(), Some(says));
        let all = world.allocations().await;
        let others = all.values().filter(|it| it.id != held.id);
        assert!(
            others.into_iter().all(free),
            "a service has nothing to lease"
        );
        // It stays told over a restart, and is told when the mark is over.
        world.restart().await;
        world.settled().await;
        assert!(world.allocations().await.values().any(marked));
        world.around.blocks.remove(&mark.key());
        world.until_one("job_a", "is free again", free).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_counts_until_its_end_and_an_order_to_leave_goes_before_it() {
    let world = World::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    world.running("job_a").await;
    let end = SystemClock.now().plus_ms(1_500);
    let mut mark = block(BlockKind::Node, "n1", Some(end));
    mark.action = BlockAction::Mark;
    world.around.block(&mark);
    world.until_one("job_a", "is told", marked).await;
    world.around.blocks.answer(false);
    world.until_one("job_a", "is free again", free).await;
    world.around.blocks.answer(true);
    world.around.block(&block(BlockKind::Node, "n1", None));
    let leaves = |it: &AllocationEntry| it.vacate.is_some();
    let left = world.until_one("job_a", "has to go", leaves).await;
    assert_eq!(left.marked, None);
}
