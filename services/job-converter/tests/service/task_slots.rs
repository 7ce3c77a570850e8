//! Tests of task runners with several slots: idle slots, reserves and running tasks.

use hayward_job_converter_api::WorkState;
use hayward_job_converter_api::tasks::{LeaseRequest, RunningReport};
use hayward_testkit::until;
use hayward_vocabulary::AllocationId;

use crate::fixture::{Fixture, empty_request, job_with_tasks, report};
use crate::task_leases::task_numbers;

/// Creates a request of a runner with this number of slots, of which some are idle.
fn slot_request(allocation: &AllocationId, slots: u32, idle: u32, want: u32) -> LeaseRequest {
    LeaseRequest {
        want,
        slots: Some(slots),
        idle,
        held: Some(Vec::new()),
        ..empty_request(allocation)
    }
}

fn running(task: u64) -> RunningReport {
    RunningReport {
        task,
        attempt: 1,
        run_ms: 700,
    }
}

/// A runner of unknown pace gets one task for each idle slot, whatever it wants (TC-3).
#[tokio::test(flavor = "multi_thread")]
async fn equal_tasks_are_spread_over_all_idle_slots() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(4)).await;
    let demand = fixture.demand_of(&job.id).await;
    let runner = fixture.runner(&demand);
    for expected in [vec![0], vec![1]] {
        let process = fixture.scheduler.grant(&demand);
        let request = slot_request(&process.id, 1, 1, 257);
        assert_eq!(
            task_numbers(&runner.send(&request).await.unwrap()),
            expected
        );
    }
    let process = fixture.scheduler.grant(&demand);
    let request = slot_request(&process.id, 8, 8, 264);
    assert_eq!(task_numbers(&runner.send(&request).await.unwrap()), [2, 3]);
}

/// Tasks count as running once their runner says so. All counts add up to the total (TC-11).
#[tokio::test(flavor = "multi_thread")]
async fn reported_tasks_count_as_running_until_they_end() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(5)).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    fixture.wait_for_state(&job.id, WorkState::Running).await;
    let counts = async |expected: (u64, u64, u64, u64)| {
        until("the counts", async || {
            let tasks = fixture.view(&job.id).await.tasks?;
            let sum = tasks.waiting + tasks.leased + tasks.running + tasks.succeeded;
            assert_eq!(sum + tasks.failed, tasks.total, "{tasks:?}");
            let counts = (tasks.waiting, tasks.leased, tasks.running, tasks.succeeded);
            (counts == expected).then_some(())
        })
        .await;
    };
    let request = slot_request(&process.id, 2, 2, 2);
    assert_eq!(task_numbers(&runner.send(&request).await.unwrap()), [0, 1]);
    counts((3, 2, 0, 0)).await;
    let busy = LeaseRequest {
        running: vec![running(0), running(1)],
        held: Some(vec![0, 1]),
        ..slot_request(&process.id, 2, 0, 0)
    };
    runner.send(&busy).await.unwrap();
    counts((3, 0, 2, 0)).await;
    let half = LeaseRequest {
        finished: vec![report(0, 1, 0)],
        running: vec![running(1)],
        held: Some(vec![1]),
        ..slot_request(&process.id, 2, 1, 1)
    };
    assert_eq!(task_numbers(&runner.send(&half).await.unwrap()), [2]);
    counts((2, 1, 1, 1)).await;
}

/// A process whose slots are all idle ends after a while, while another runs the last task (TC-8).
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_ends_while_the_last_task_runs() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(1)).await;
    let demand = fixture.demand_of(&job.id).await;
    let (busy, idle) = (
        fixture.scheduler.grant(&demand),
        fixture.scheduler.grant(&demand),
    );
    let runner = fixture.runner(&demand);
    let first = runner.send(&slot_request(&busy.id, 1, 1, 1)).await.unwrap();
    assert_eq!(task_numbers(&first), [0]);
    let request = LeaseRequest {
        wait_ms: 20_000,
        ..slot_request(&idle.id, 1, 1, 1)
    };
    let answer = runner.send(&request).await.unwrap();
    assert!(answer.done && answer.tasks.is_empty());
    // A process with a busy slot stays.
    let request = LeaseRequest {
        wait_ms: 10,
        held: Some(vec![0]),
        ..slot_request(&busy.id, 2, 1, 1)
    };
    assert!(!runner.send(&request).await.unwrap().done);
}

/// The response to a request that its runner gave up is lost. If the request arrives late, it takes
/// no tasks from the runner.
#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_request_leases_and_returns_nothing() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(3)).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    let numbered = |request| LeaseRequest {
        request,
        ..slot_request(&process.id, 2, 1, 1)
    };
    assert_eq!(task_numbers(&runner.send(&numbered(2)).await.unwrap()), [0]);
    let outdated = runner.send(&numbered(1)).await.unwrap();
    assert_eq!((task_numbers(&outdated), outdated.done), (vec![], false));
    let next = LeaseRequest {
        held: Some(vec![0]),
        ..numbered(3)
    };
    assert_eq!(task_numbers(&runner.send(&next).await.unwrap()), [1]);
}
