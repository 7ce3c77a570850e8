//! Tests that leases and outcomes of tasks survive crashes of the service.

use hayward_job_converter_api::WorkState;
use hayward_job_converter_api::tasks::LeaseRequest;
use hayward_testkit::until;
use hayward_vocabulary::AllocationId;

use crate::fixture::{Fixture, Runner, empty_request, job_with_tasks, report};

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_keeps_leases_and_outcomes() {
    let mut fixture = Fixture::with_short_lease().await;
    let job = fixture.submit(job_with_tasks(100)).await;
    let demand = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&demand);
    let holder = &process.id;
    let runner = fixture.runner(&demand);
    assert_eq!(runner.lease(holder, 10).await.tasks.len(), 10);
    runner
        .report(
            holder,
            (0..4)
                .map(|task| report(task, 1, i32::from(task == 3)))
                .collect(),
        )
        .await;

    fixture.kill_and_restart().await;
    // Progress is published periodically, so the view from before the crash may be older than the
    // rows.
    let counts = until("the recorded outcomes to be published", async || {
        let tasks = fixture.view(&job.id).await.tasks.unwrap();
        (tasks.succeeded == 3).then_some(tasks)
    })
    .await;
    assert_eq!((counts.leased, counts.waiting), (6, 91));
    let runner = fixture.runner(&fixture.demand_of(&job.id).await);
    let other = fixture.scheduler.grant(&demand);
    let more = runner.lease(&other.id, 3).await;
    let numbers: Vec<u64> = more.tasks.iter().map(|task| task.task).collect();
    assert_eq!(numbers, [3, 10, 11]);
    assert_eq!(more.tasks[0].attempt, 2);
    // Reports without a response are repeated.
    runner
        .report(holder, (0..3).map(|task| report(task, 1, 0)).collect())
        .await;
    runner
        .report(holder, (4..10).map(|task| report(task, 1, 0)).collect())
        .await;
    assert_eq!(fixture.tasks(&job.id).await.tasks.len(), 9);
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.outcome")
            .await,
        9
    );
}

/// Runs tasks until the job has ended or the service does not respond.
async fn run_tasks(runner: Runner, holder: AllocationId) {
    let mut finished = Vec::new();
    loop {
        // Tasks leased by a response before the crash are not held any more.
        let held = Some(Vec::new());
        let request = LeaseRequest {
            want: 7,
            held,
            finished,
            ..empty_request(&holder)
        };
        match runner.send(&request).await {
            Ok(answer) if answer.done => return,
            Ok(answer) => {
                finished = answer
                    .tasks
                    .iter()
                    .map(|it| report(it.task, it.attempt, 0))
                    .collect();
            }
            Err(_) => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_task_is_recorded_once_although_the_service_is_killed_repeatedly() {
    const TASKS: u64 = 2_000;
    let mut fixture = Fixture::with_short_lease().await;
    let job = fixture.submit(job_with_tasks(TASKS)).await;
    let demand = fixture.demand_of(&job.id).await;
    let processes: Vec<_> = (0..4).map(|_| fixture.scheduler.grant(&demand)).collect();
    for kills in 1..=3 {
        let workers: Vec<_> = processes
            .iter()
            .map(|process| tokio::spawn(run_tasks(fixture.runner(&demand), process.id.clone())))
            .collect();
        if kills < 3 {
            let (id, enough) = (&job.id, kills * 200);
            until("some progress", async || {
                fixture
                    .view(id)
                    .await
                    .tasks
                    .filter(|tasks| tasks.succeeded >= enough)
            })
            .await;
            fixture.kill_and_restart().await;
        }
        for worker in workers {
            worker.await.unwrap();
        }
    }
    let view = fixture.wait_for_state(&job.id, WorkState::Completed).await;
    assert_eq!(view.tasks.unwrap().succeeded, TASKS);
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.outcome")
            .await,
        2_000
    );
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.lease")
            .await,
        0
    );
    let distinct = "select count(distinct task) from job_converter.outcome where succeeded";
    assert_eq!(fixture.query_number(distinct).await, 2_000);
}
