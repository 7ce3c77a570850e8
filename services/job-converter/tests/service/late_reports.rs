//! Reports of runners that outlive their allocation.

use hayward_job_converter_api::WorkState;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause, WorkId};

use crate::fixture::{Fixture, job_with_tasks, report};

/// Ends an allocation because its node was lost, and waits until the end is settled.
async fn end_by_node_loss(fixture: &Fixture, job: &WorkId, lost: &AllocationEntry) {
    fixture
        .scheduler
        .end(lost, Exit::of(ExitCause::Node, "the node was lost"));
    until("the end to be settled", async || {
        let settled = fixture.demand_of(job).await.settled;
        settled.contains(&lost.id).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_names_its_node_after_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let job = fixture.submit(job_with_tasks(2)).await;
    let demand = fixture.demand_of(&job.id).await;
    let lost = fixture.scheduler.grant_on(&demand, "node-7");
    let other = fixture.scheduler.grant(&demand);
    let runner = fixture.runner(&demand);
    assert_eq!(runner.lease(&lost.id, 2).await.tasks.len(), 2);
    end_by_node_loss(&fixture, &job.id, &lost).await;
    fixture.scheduler.remove(&lost);
    until("the removed allocation to be dropped", async || {
        let settled = fixture.demand_of(&job.id).await.settled;
        settled.is_empty().then_some(())
    })
    .await;

    fixture.kill_and_restart().await;
    let runner = fixture.runner(&fixture.demand_of(&job.id).await);
    let late = runner.report(&lost.id, vec![report(0, 1, 0)]).await;
    assert!(late.done, "a lost process gets no new tasks");
    let task = &fixture.tasks(&job.id).await.tasks[0];
    assert_eq!((&task.allocation, &task.node), (&lost.id, &lost.node));

    runner.lease(&other.id, 1).await;
    runner.report(&other.id, vec![report(1, 1, 0)]).await;
    fixture.wait_for_state(&job.id, WorkState::Completed).await;
    let rows = "select count(*) from job_converter.past";
    assert_eq!(
        fixture.query_number(rows).await,
        0,
        "deleted with the end of the job"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_names_its_node_after_a_removal_during_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let job = fixture.submit(job_with_tasks(2)).await;
    let demand = fixture.demand_of(&job.id).await;
    let lost = fixture.scheduler.grant_on(&demand, "node-7");
    let runner = fixture.runner(&demand);
    assert_eq!(runner.lease(&lost.id, 2).await.tasks.len(), 2);
    end_by_node_loss(&fixture, &job.id, &lost).await;

    fixture.kill();
    fixture.scheduler.remove(&lost);
    fixture.start().await;
    let runner = fixture.runner(&fixture.demand_of(&job.id).await);
    runner.report(&lost.id, vec![report(0, 1, 0)]).await;
    let task = &fixture.tasks(&job.id).await.tasks[0];
    assert_eq!((&task.allocation, &task.node), (&lost.id, &lost.node));
}
