//! Tests of the cancellation of single tasks (TC-134).

use hayward_job_converter_api::task_commands::{
    CommandKind, CommandList, SignalsSent, TasksCancelled,
};
use hayward_job_converter_api::tasks::{
    Blame, EndCause, LeaseRequest, RunningReport, TaskHistory, TaskReport, TaskState,
};
use hayward_job_converter_api::{TaskCounts, WorkState};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::ClientError;
use hayward_vocabulary::{AllocationId, WorkId};
use serde_json::json;

use crate::fixture::{Fixture, Runner, empty_request, fresh_key, job_with_tasks, refusal, report};
use crate::task_leases::task_numbers;

async fn cancel(
    fixture: &Fixture,
    user: &str,
    job: &WorkId,
    tasks: &[&str],
) -> Result<TasksCancelled, ClientError> {
    let path = format!("/v1/jobs/{job}/tasks/cancel");
    let body = json!({ "tasks": tasks });
    fixture
        .user(user)
        .post(&path, &body, Some(&fresh_key()))
        .await
}

/// Cancels tasks of ann. Returns how many are cancelled, stopped, and had ended.
async fn cancel_own(fixture: &Fixture, job: &WorkId, tasks: &[&str]) -> [u64; 3] {
    let effect = cancel(fixture, "ann", job, tasks).await.unwrap();
    [effect.cancelled, effect.stopping, effect.ended]
}

async fn commands(
    runner: &Runner,
    allocation: &AllocationId,
    after: u64,
    wait: u64,
) -> CommandList {
    let path = format!(
        "/v1/jobs/{}/tasks/commands?allocation={allocation}&after={after}&wait={wait}",
        runner.job
    );
    runner.client.get(&path).await.unwrap()
}

/// Creates the report of a run that Hayward stopped.
fn stopped_report(task: u64, exit_code: i32) -> TaskReport {
    TaskReport {
        interrupted: true,
        ..report(task, 1, exit_code)
    }
}

/// Submits a job of this many tasks, and leases the first ones to a process.
async fn lease_first(fixture: &Fixture, total: u64, want: u32) -> (Runner, AllocationEntry) {
    let job = fixture.submit(job_with_tasks(total)).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    fixture.wait_for_state(&job.id, WorkState::Running).await;
    runner.lease(&process.id, want).await;
    (runner, process)
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_tasks_are_cancelled_at_once_and_stay_so_after_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let (runner, process) = lease_first(&fixture, 20, 1).await;
    let job = runner.job.clone();
    assert_eq!(cancel_own(&fixture, &job, &["2-5", "18"]).await, [5, 0, 0]);
    assert_eq!(cancel_own(&fixture, &job, &["4-6"]).await, [1, 0, 2]);
    fixture.kill_and_restart().await;
    let runner = fixture.runner(&fixture.demand_of(&job).await);

    runner.report(&process.id, vec![report(0, 1, 0)]).await;
    let leased = task_numbers(&runner.lease(&process.id, 20).await);
    let others: Vec<u64> = [1].into_iter().chain(7..18).chain([19]).collect();
    assert_eq!(leased, others);
    let reports = others.iter().map(|task| report(*task, 1, 0)).collect();
    assert!(runner.report(&process.id, reports).await.done);
    let view = fixture.wait_for_state(&job, WorkState::Completed).await;
    let reason = "14 of 20 tasks succeeded, 6 cancelled";
    assert_eq!(view.reason.as_deref(), Some(reason));
    let expected = TaskCounts {
        total: 20,
        succeeded: 14,
        cancelled: 6,
        ..TaskCounts::default()
    };
    assert_eq!(view.tasks, Some(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runner_of_a_cancelled_task_gets_a_command_to_stop_it() {
    let mut fixture = Fixture::with_short_lease().await;
    let (runner, process) = lease_first(&fixture, 3, 2).await;
    let job = runner.job.clone();
    let waiting = commands(&runner, &process.id, 0, 20);
    let (list, effect) = tokio::join!(waiting, cancel_own(&fixture, &job, &["1-2"]));
    assert_eq!(effect, [1, 1, 0]);
    let [command] = list.commands.as_slice() else {
        panic!("{list:?}");
    };
    let stop = (command.kind, command.task, command.attempt);
    assert_eq!(stop, (CommandKind::StopTask, 1, 1));
    let after = commands(&runner, &process.id, command.number, 0).await;
    assert_eq!(after, CommandList::default());

    // After a restart the command has a larger number.
    fixture.kill_and_restart().await;
    let runner = fixture.runner(&fixture.demand_of(&job).await);
    let again = commands(&runner, &process.id, command.number, 0).await;
    assert_eq!(again.commands.len(), 1, "{again:?}");
    // The program exits politely, which is no success.
    let reports = vec![stopped_report(1, 0), report(0, 1, 0)];
    assert!(runner.report(&process.id, reports).await.done);
    fixture.wait_for_state(&job, WorkState::Completed).await;
    let path = format!("/v1/jobs/{job}/tasks/1");
    let history: TaskHistory = fixture.user("ann").get(&path).await.unwrap();
    let task = history.current.unwrap();
    assert_eq!(
        (task.state, task.succeeded),
        (Some(TaskState::Cancelled), false)
    );
    let end = task.end.unwrap();
    let expected = (EndCause::Cancelled, Blame::None, "cancelled by ann");
    assert_eq!((end.cause, end.blame, end.message.as_str()), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_only_cancelled_tasks_is_cancelled() {
    let fixture = Fixture::new().await;
    let (runner, process) = lease_first(&fixture, 3, 1).await;
    let job = &runner.job;
    assert_eq!(cancel_own(&fixture, job, &["0-2"]).await, [2, 1, 0]);
    // The process returns the task without having started it.
    let request = LeaseRequest {
        returned: vec![0],
        ..empty_request(&process.id)
    };
    assert!(runner.send(&request).await.unwrap().done);
    let view = fixture.wait_for_state(job, WorkState::Cancelled).await;
    assert_eq!(view.tasks.unwrap().cancelled, 3);
    assert_eq!(cancel_own(&fixture, job, &["0"]).await, [0, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_tasks_are_listed_in_order_with_the_others() {
    let fixture = Fixture::new().await;
    let (runner, process) = lease_first(&fixture, 9, 3).await;
    let job = &runner.job;
    cancel_own(&fixture, job, &["2", "4-6", "8"]).await;
    let reports = vec![report(0, 1, 0), stopped_report(2, 0), report(1, 1, 0)];
    runner.report(&process.id, reports).await;
    let list = async |query: &str| -> (Vec<u64>, Option<String>) {
        let path = format!("/v1/jobs/{job}/tasks?{query}");
        let list: hayward_job_converter_api::tasks::TaskList =
            fixture.user("ann").get(&path).await.unwrap();
        let numbers = list.tasks.iter().map(|task| task.task).collect();
        (numbers, list.next_cursor)
    };
    assert_eq!(list("").await, (vec![0, 1, 2, 4, 5, 6, 8], None));
    assert_eq!(list("state=cancelled").await, (vec![2, 4, 5, 6, 8], None));
    assert_eq!(list("state=succeeded").await, (vec![0, 1], None));
    let mut cursor = Some("0".to_owned());
    let mut all = Vec::new();
    while let Some(at) = cursor {
        let (numbers, next) = list(&format!("limit=2&cursor={at}")).await;
        assert!(numbers.len() <= 2);
        all.extend(numbers);
        cursor = next;
    }
    assert_eq!(all, [0, 1, 2, 4, 5, 6, 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_names_tasks_of_an_own_job() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(3)).await.id;
    for (user, tasks, expected) in [
        ("eve", vec!["0"], (404, vec![])),
        ("ann", vec!["1-3"], (422, vec!["/tasks".to_owned()])),
        ("ann", vec!["0", "x"], (422, vec!["/tasks/1".to_owned()])),
        ("ann", vec![], (422, vec!["/tasks".to_owned()])),
    ] {
        let refused = cancel(&fixture, user, &job, &tasks).await;
        assert_eq!(refusal(refused), expected, "{tasks:?}");
    }
    let path = format!("/v1/jobs/{job}/tasks/cancel?dry_run=true");
    let body = json!({ "tasks": ["0-1"] });
    let effect: TasksCancelled = fixture.user("ann").post(&path, &body, None).await.unwrap();
    assert_eq!(effect.cancelled, 2);
    let counts = fixture.view(&job).await.tasks.unwrap();
    assert_eq!((counts.waiting, counts.cancelled), (3, 0));
}

/// Sends a signal to all running tasks, or to those below a path.
async fn signal(
    fixture: &Fixture,
    user: &str,
    path: &str,
    name: &str,
) -> Result<SignalsSent, ClientError> {
    let body = json!({ "signal": name });
    fixture
        .user(user)
        .post(path, &body, Some(&fresh_key()))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_reaches_the_running_tasks_of_runners_that_take_commands() {
    let fixture = Fixture::new().await;
    let (runner, process) = lease_first(&fixture, 5, 3).await;
    let job = &runner.job;
    let running = |task| RunningReport {
        task,
        attempt: 1,
        run_ms: 700,
    };
    let request = LeaseRequest {
        slots: Some(3),
        running: vec![running(0), running(2)],
        ..empty_request(&process.id)
    };
    runner.send(&request).await.unwrap();
    let all = format!("/v1/jobs/{job}/tasks/signals");
    let of_task = |task: u64| format!("/v1/jobs/{job}/tasks/{task}/signals");
    let sent = signal(&fixture, "ann", &all, "USR1").await.unwrap();
    assert_eq!(sent.tasks, 0, "the runner has not requested commands");
    assert_eq!(commands(&runner, &process.id, 0, 0).await.commands, []);

    for (path, name, expected) in [
        (all.clone(), "USR1", 2),
        (of_task(2), "KILL", 1),
        (of_task(1), "USR1", 0),
        (of_task(4), "USR1", 0),
    ] {
        let sent = signal(&fixture, "ann", &path, name).await.unwrap();
        assert_eq!(sent.tasks, expected, "{path}");
    }
    let list = commands(&runner, &process.id, 0, 0).await.commands;
    let list: Vec<_> = list
        .iter()
        .map(|command| (command.kind, command.task, command.signal.as_deref()))
        .collect();
    let expected = [(0, "USR1"), (2, "USR1"), (2, "KILL")]
        .map(|(task, name)| (CommandKind::SignalTask, task, Some(name)));
    assert_eq!(list, expected);
    let timeline: hayward_job_converter_api::Timeline = {
        let path = format!("/v1/jobs/{job}/timeline");
        fixture.user("ann").get(&path).await.unwrap()
    };
    let has_event = |text: &str| timeline.events.iter().any(|entry| entry.event == text);
    assert!(
        has_event("USR1 sent to 2 running tasks by ann"),
        "{timeline:?}"
    );
    assert!(has_event("KILL sent to task 2 by ann"), "{timeline:?}");
    assert_eq!(refusal(signal(&fixture, "eve", &all, "USR1").await).0, 404);
    assert_eq!(
        refusal(signal(&fixture, "ann", &of_task(5), "USR1").await).0,
        422
    );
    let unknown = refusal(signal(&fixture, "ann", &all, "WINCH").await);
    assert!(matches!(unknown.0, 400 | 422), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_are_cancelled_now_get_no_grace() {
    let fixture = Fixture::new().await;
    let (runner, process) = lease_first(&fixture, 2, 2).await;
    let job = &runner.job;
    let path = format!("/v1/jobs/{job}/tasks/cancel");
    let body = json!({ "tasks": ["0"], "now": true });
    let key = fresh_key();
    let effect: TasksCancelled = fixture
        .user("ann")
        .post(&path, &body, Some(&key))
        .await
        .unwrap();
    assert_eq!(effect.stopping, 1);
    let path = format!("/v1/jobs/{job}?now=true");
    let _: serde_json::Value = fixture.user("ann").delete(&path).await.unwrap();
    let list = commands(&runner, &process.id, 0, 0).await.commands;
    let stops: Vec<_> = list
        .iter()
        .map(|command| (command.kind, command.task, command.grace_ms))
        .collect();
    let stop = |task| (CommandKind::StopTask, task, Some(0));
    assert_eq!(stops, [stop(0), stop(0), stop(1)]);
}
