//! Tests of task runners: leases and reports of tasks.

use hayward_job_converter_api::tasks::LeaseRequest;
use hayward_job_converter_api::{Timeline, WorkState, WorkView};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_testkit::until;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};
use serde_json::json;

use crate::fixture::{Fixture, empty_request, job_with_tasks, refusal, report};

pub fn task_numbers(answer: &hayward_job_converter_api::tasks::LeaseAnswer) -> Vec<u64> {
    answer.tasks.iter().map(|task| task.task).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_to_its_end() {
    let fixture = Fixture::new().await;
    let body = json!({
        "command": ["/bin/echo", "{task}"], "tasks": { "arguments": [["a"], ["{task}"]] },
        "environment": { "K": "v" }, "working_directory": "/tmp",
    });
    let job = fixture.submit(body).await;
    let demand = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&demand);
    let view = fixture.wait_for_state(&job.id, WorkState::Running).await;
    assert_eq!(view.processes[0].allocation, process.id);

    let runner = fixture.runner(&demand);
    let first = runner.lease(&process.id, 10).await;
    assert_eq!(
        (first.tasks.len(), first.done, first.lease_ms),
        (2, false, 60_000)
    );
    assert_eq!(first.tasks[0].argv, ["/bin/echo", "0", "a"]);
    assert_eq!(first.tasks[1].argv, ["/bin/echo", "1", "{task}"]);
    assert_eq!(first.tasks[0].environment["K"], "v");
    let half = runner.report(&process.id, vec![report(0, 1, 0)]).await;
    assert!(!half.done);
    let waiter = {
        let (ann, id) = (fixture.user("ann"), job.id.clone());
        tokio::spawn(async move {
            ann.get::<WorkView>(&format!("/v1/jobs/{id}?wait=20&until=final"))
                .await
        })
    };
    let last = runner
        .report(&process.id, vec![report(0, 1, 0), report(1, 1, 0)])
        .await;
    assert!(last.done);
    let view = waiter.await.unwrap().unwrap();
    assert_eq!(
        (view.state, view.tasks.unwrap().succeeded),
        (WorkState::Completed, 2)
    );
    assert!(view.ended_at.is_some());
    assert!(
        fixture.demand().await.is_empty(),
        "the demand ends with the last outcome"
    );
    let tasks = fixture.tasks(&job.id).await.tasks;
    assert_eq!(tasks.len(), 2);
    assert_eq!(
        (tasks[1].node.as_str(), tasks[1].output.as_str()),
        ("node-1", "output of 1\n")
    );
    // A late repetition changes nothing.
    assert!(runner.report(&process.id, vec![report(1, 1, 7)]).await.done);
    assert!(fixture.tasks(&job.id).await.tasks[1].succeeded);

    let logs = reqwest::Client::new()
        .get(format!("{}/v1/jobs/{}/logs?limit=1", fixture.url(), job.id))
        .bearer_auth(fixture.token("ann", &[hayward_service::Scope::Submitter]))
        .send()
        .await
        .unwrap();
    assert_eq!(logs.headers()["hayward-next-cursor"], "1");
    assert_eq!(logs.text().await.unwrap(), "output of 0\n");
    let path = format!("/v1/jobs/{}/timeline", job.id);
    let timeline: Timeline = fixture.user("ann").get(&path).await.unwrap();
    let events: Vec<&str> = timeline
        .events
        .iter()
        .map(|event| event.event.as_str())
        .collect();
    assert_eq!(
        (events[0], *events.last().unwrap()),
        ("submitted", "completed")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_retried_and_interruptions_are_not_counted() {
    let fixture = Fixture::new().await;
    let mut body = job_with_tasks(2);
    body["max_attempts"] = json!(2);
    let job = fixture.submit(body).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    let holder = &process.id;
    runner.lease(holder, 2).await;
    let mut interrupted = report(1, 1, 0);
    (
        interrupted.exit_code,
        interrupted.signal,
        interrupted.interrupted,
    ) = (None, Some(15), true);
    runner
        .report(holder, vec![report(0, 1, 3), interrupted])
        .await;
    let again = runner.lease(holder, 2).await;
    let attempts: Vec<_> = again
        .tasks
        .iter()
        .map(|task| (task.task, task.attempt))
        .collect();
    assert_eq!(attempts, [(0, 2), (1, 1)]);
    let answer = runner
        .report(holder, vec![report(0, 2, 3), report(1, 1, 0)])
        .await;
    assert!(answer.done);
    let view = fixture.wait_for_state(&job.id, WorkState::Failed).await;
    let tasks = view.tasks.unwrap();
    assert_eq!((tasks.failed, tasks.succeeded), (1, 1));
    assert!(view.reason.unwrap().contains("1 of 2"));
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.attempt")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_lost_process_go_to_another_that_waits() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(2)).await;
    let demand = fixture.demand_of(&job.id).await;
    let (lost, other) = (
        fixture.scheduler.grant(&demand),
        fixture.scheduler.grant(&demand),
    );
    let runner = fixture.runner(&demand);
    assert_eq!(runner.lease(&lost.id, 2).await.tasks.len(), 2);
    let waiting = {
        let (runner, holder) = (fixture.runner(&demand), other.id.clone());
        tokio::spawn(async move {
            let request = LeaseRequest {
                want: 2,
                wait_ms: 20_000,
                ..empty_request(&holder)
            };
            runner.send(&request).await
        })
    };
    fixture
        .scheduler
        .end(&lost, Exit::of(ExitCause::Node, "the node was lost"));
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(task_numbers(&answer), [0, 1]);
    assert_eq!(answer.tasks[0].attempt, 1, "a lost node uses up no attempt");
    // The end is settled, and forgotten once the scheduler has removed it.
    until("the end to be settled", async || {
        fixture
            .demand_of(&job.id)
            .await
            .settled
            .contains(&lost.id)
            .then_some(())
    })
    .await;
    fixture.scheduler.remove(&lost);
    until("the removed allocation to be dropped", async || {
        fixture
            .demand_of(&job.id)
            .await
            .settled
            .is_empty()
            .then_some(())
    })
    .await;
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.settled")
            .await,
        0
    );
    // Late results of the lost process count.
    runner.report(&lost.id, vec![report(0, 1, 0)]).await;
    let late = &fixture.tasks(&job.id).await.tasks[0];
    assert_eq!((&late.allocation, &late.node), (&lost.id, &lost.node));
    let nothing = runner.lease(&lost.id, 1).await;
    assert!(
        nothing.done && nothing.tasks.is_empty(),
        "its node was given up"
    );
    assert!(
        runner
            .report(&other.id, vec![report(1, 1, 0), report(0, 1, 0)])
            .await
            .done
    );
    assert_eq!(fixture.tasks(&job.id).await.tasks.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn unrenewed_leases_end_and_tasks_of_lost_answers_return() {
    let fixture = Fixture::with_settings(|settings| settings.task_lease_ms = 300).await;
    let job = fixture.submit(job_with_tasks(3)).await;
    let demand = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&demand);
    fixture.wait_for_state(&job.id, WorkState::Running).await;
    let runner = fixture.runner(&demand);
    let silent = AllocationId::new("alc_silent").unwrap();
    assert_eq!(task_numbers(&runner.lease(&silent, 1).await), [0]);
    // This response is lost. The next request lists the held tasks.
    assert_eq!(task_numbers(&runner.lease(&process.id, 1).await), [1]);
    let request = LeaseRequest {
        want: 2,
        held: Some(Vec::new()),
        ..empty_request(&process.id)
    };
    assert_eq!(task_numbers(&runner.send(&request).await.unwrap()), [1, 2]);
    let waiting_request = LeaseRequest {
        want: 1,
        wait_ms: 20_000,
        ..empty_request(&process.id)
    };
    let (first, second) = (runner.send(&waiting_request), async {
        until("a renewal and an end", async || {
            runner.report(&process.id, Vec::new()).await;
            fixture
                .view(&job.id)
                .await
                .tasks
                .filter(|tasks| tasks.leased == 3)
        })
        .await
    });
    let (answer, _) = tokio::join!(first, second);
    assert_eq!(
        task_numbers(&answer.unwrap()),
        [0],
        "an unrenewed task goes to the waiting request"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_environment_reduces_the_tasks_of_one_lease() {
    let fixture = Fixture::new().await;
    let mut body = job_with_tasks(2_000);
    let environment: std::collections::BTreeMap<String, String> = (0..200)
        .map(|index| (format!("V{index}"), "x".repeat(4_000)))
        .collect();
    body["environment"] = json!(environment);
    let (large, small) = (
        fixture.submit(body).await,
        fixture.submit(job_with_tasks(2_000)).await,
    );
    let holder = AllocationId::new("alc_any").unwrap();
    for (job, tasks) in [(large, 5), (small, 1_024)] {
        let runner = fixture.runner(&fixture.demand_of(&job.id).await);
        assert_eq!(runner.lease(&holder, 2_000).await.tasks.len(), tasks);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vacating_process_gets_no_tasks_and_other_tokens_are_refused() {
    let fixture = Fixture::new().await;
    let (job, other_job) = (
        fixture.submit(job_with_tasks(5)).await,
        fixture.submit(job_with_tasks(5)).await,
    );
    let demand = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&demand);
    let runner = fixture.runner(&demand);
    assert_eq!(runner.lease(&process.id, 2).await.tasks.len(), 2);
    fixture.scheduler.vacate(&process);
    let request = LeaseRequest {
        want: 2,
        returned: vec![1],
        wait_ms: 20_000,
        ..empty_request(&process.id)
    };
    until("the vacate to be applied", async || {
        runner.send(&request).await.unwrap().done.then_some(())
    })
    .await;
    assert_eq!(
        runner
            .send(&LeaseRequest {
                want: 9,
                ..empty_request(&process.id)
            })
            .await
            .unwrap()
            .tasks,
        []
    );

    let other_runner = hayward_service::Scope::Runner(other_job.id.clone());
    let path = format!("/v1/jobs/{}/tasks/leases", job.id);
    let client = fixture.client("eve", &[other_runner]);
    let refused = client
        .post::<_, serde_json::Value>(&path, &empty_request(&process.id), None)
        .await;
    assert_eq!(refusal(refused).0, 403);
    let user = fixture.user("ann");
    let refused = user
        .post::<_, serde_json::Value>(&path, &empty_request(&process.id), None)
        .await;
    assert_eq!(refusal(refused).0, 403);
    let none = LeaseRequest {
        finished: vec![report(5, 1, 0)],
        ..empty_request(&process.id)
    };
    assert_eq!(refusal(runner.send(&none).await).0, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marked_process_gets_no_tasks_and_its_end_is_not_counted() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(1_000)).await;
    let demand = fixture.demand_of(&job.id).await;
    let (marked, other) = (
        fixture.scheduler.grant(&demand),
        fixture.scheduler.grant_on(&demand, "node-2"),
    );
    let runner = fixture.runner(&demand);
    assert_eq!(runner.lease(&marked.id, 3).await.tasks.len(), 3);
    let idle = fixture.scheduler.grant(&demand);
    fixture.wait_for_state(&job.id, WorkState::Running).await;
    let mark = Some("node node-1 is marked: bad memory".to_owned());
    for process in [&marked, &idle] {
        fixture.scheduler.publish(&AllocationEntry {
            marked: mark.clone(),
            ..process.clone()
        });
    }
    for process in [&marked, &idle] {
        until("the mark to be applied", async || {
            runner.lease(&process.id, 0).await.done.then_some(())
        })
        .await;
    }
    // A request that waits for tasks is answered at once.
    let request = LeaseRequest {
        want: 9,
        wait_ms: 20_000,
        ..empty_request(&idle.id)
    };
    let answer = runner.send(&request).await.unwrap();
    assert!(answer.done && answer.tasks.is_empty());
    // Held tasks may be finished or returned.
    let last = LeaseRequest {
        want: 9,
        returned: vec![2],
        finished: vec![report(0, 1, 0), report(1, 1, 0)],
        ..empty_request(&marked.id)
    };
    let answer = runner.send(&last).await.unwrap();
    assert!(answer.done && answer.tasks.is_empty());
    assert_eq!(task_numbers(&runner.lease(&other.id, 2).await), [2, 3]);

    // Both processes succeed. Neither end counts as a failure, and the remaining tasks run
    // elsewhere.
    for process in [&idle, &marked] {
        let entry = AllocationEntry {
            marked: mark.clone(),
            ..process.clone()
        };
        fixture
            .scheduler
            .end(&entry, Exit::of(ExitCause::Success, "done"));
    }
    until("the ends to be settled", async || {
        let settled = fixture.demand_of(&job.id).await.settled;
        (settled.len() == 2).then_some(())
    })
    .await;
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.brake where strikes > 0")
            .await,
        0
    );
    let path = format!("/v1/jobs/{}/timeline", job.id);
    let timeline: Timeline = fixture.user("ann").get(&path).await.unwrap();
    let mark_events = timeline.events.iter();
    let mark_events = mark_events.filter(|it| {
        it.event
            .contains("is given no new tasks: node node-1 is marked")
    });
    assert_eq!(mark_events.count(), 2);
    let view = fixture.view(&job.id).await;
    assert_eq!(view.reason, None, "{view:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_gets_tasks_again_when_its_mark_is_lifted() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(1_000)).await;
    let demand = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&demand);
    let runner = fixture.runner(&demand);
    for marked in [Some("node node-1 is marked: bad memory".to_owned()), None] {
        let accepts_tasks = marked.is_none();
        fixture.scheduler.publish(&AllocationEntry {
            marked,
            ..process.clone()
        });
        until("the mark to be applied", async || {
            let answer = runner.lease(&process.id, 0).await;
            (answer.done != accepts_tasks).then_some(())
        })
        .await;
    }
    assert_eq!(runner.lease(&process.id, 1).await.tasks.len(), 1);
}
