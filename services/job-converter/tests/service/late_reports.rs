//! Reports of runners that outlive their allocation.

use hayward_job_converter_api::WorkState;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause, WorkId};

use crate::world::{World, count, ended};

async fn lose(world: &World, job: &WorkId, lost: &AllocationEntry) {
    world
        .scheduler
        .ended(lost, Exit::of(ExitCause::Node, "the node was lost"));
    until("the end to be settled", async || {
        let settled = world.demand_of(job).await.settled;
        settled.contains(&lost.id).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_names_its_node_after_a_restart() {
    let mut world = World::mortal().await;
    let job = world.submit(count(2)).await;
    let demand = world.demand_of(&job.id).await;
    let lost = world.scheduler.grant_on(&demand, "node-7");
    let other = world.scheduler.grant(&demand);
    let runner = world.runner(&demand);
    assert_eq!(runner.lease(&lost.id, 2).await.tasks.len(), 2);
    lose(&world, &job.id, &lost).await;
    world.scheduler.bury(&lost);
    until("the settled one to be dropped", async || {
        let settled = world.demand_of(&job.id).await.settled;
        settled.is_empty().then_some(())
    })
    .await;

    world.kill_and_restart().await;
    let runner = world.runner(&world.demand_of(&job.id).await);
    let late = runner.report(&lost.id, vec![ended(0, 1, 0)]).await;
    assert!(late.done, "a lost process gets no new tasks");
    let task = &world.tasks(&job.id).await.tasks[0];
    assert_eq!((&task.allocation, &task.node), (&lost.id, &lost.node));

    runner.lease(&other.id, 1).await;
    runner.report(&other.id, vec![ended(1, 1, 0)]).await;
    world.in_state(&job.id, WorkState::Completed).await;
    let rows = "select count(*) from job_converter.past";
    assert_eq!(world.rows(rows).await, 0, "deleted with the end of the job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_names_its_node_when_it_was_buried_during_a_restart() {
    let mut world = World::mortal().await;
    let job = world.submit(count(2)).await;
    let demand = world.demand_of(&job.id).await;
    let lost = world.scheduler.grant_on(&demand, "node-7");
    let runner = world.runner(&demand);
    assert_eq!(runner.lease(&lost.id, 2).await.tasks.len(), 2);
    lose(&world, &job.id, &lost).await;

    world.kill();
    world.scheduler.bury(&lost);
    world.start().await;
    let runner = world.runner(&world.demand_of(&job.id).await);
    runner.report(&lost.id, vec![ended(0, 1, 0)]).await;
    let task = &world.tasks(&job.id).await.tasks[0];
    assert_eq!((&task.allocation, &task.node), (&lost.id, &lost.node));
}
