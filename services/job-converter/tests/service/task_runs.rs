//! Tests of the terms of a job, and of the ends of its runs as users read them.

use hayward_job_converter_api::WorkState;
use hayward_job_converter_api::tasks::{
    Blame, EndCause, LeaseRequest, RunEnd, RunningReport, TaskHistory, TaskList, TaskReport,
    TaskState, TermsState,
};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::Scope;
use hayward_vocabulary::{AllocationId, WorkId};
use serde_json::{Value, json};

use crate::fixture::{
    Fixture, Runner, empty_request, fresh_key, job_with_tasks, refusal, report, submit,
};
use crate::task_leases::task_numbers;

/// Returns a job with a command, variables and limits of its own.
fn job_with_limits() -> Value {
    json!({
        "command": ["/bin/echo", "{task}"], "tasks": { "arguments": [["a"], ["{task}"]] },
        "environment": { "K": "{task}" }, "working_directory": "/tmp", "class": "normal",
        "time_limit_ms": 5000, "warn_before_ms": 1000, "stop_signal": "INT",
        "stop_grace_ms": 700,
    })
}

fn terms_request(allocation: &AllocationId, want: u32, terms: TermsState) -> LeaseRequest {
    LeaseRequest {
        want,
        terms: Some(terms),
        ..empty_request(allocation)
    }
}

/// Creates the report of an attempt that reached its time limit.
fn time_limit_report(task: u64, attempt: u32) -> TaskReport {
    let message = Some("ran for 5 s, its time limit".to_owned());
    TaskReport {
        exit_code: None,
        signal: Some(15),
        end: Some(RunEnd {
            cause: EndCause::TimeLimit,
            message,
        }),
        ..report(task, attempt, 0)
    }
}

async fn read_tasks(fixture: &Fixture, id: &WorkId, query: &str) -> TaskList {
    let viewer = fixture.client("vic", &[Scope::Viewer]);
    let path = format!("/v1/jobs/{id}/tasks?{query}");
    viewer.get(&path).await.unwrap()
}

async fn read_history(fixture: &Fixture, id: &WorkId, task: u64) -> TaskHistory {
    let path = format!("/v1/jobs/{id}/tasks/{task}");
    fixture.user("ann").get(&path).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_wants_the_terms_gets_them_once_and_tasks_without_copies() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_limits()).await;
    let demand = fixture.demand_of(&job.id).await;
    let grace_ms = demand.launch.as_ref().unwrap().stop_grace_ms;
    assert_eq!(grace_ms, 1_700, "a task gets its whole grace");
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));

    let request = terms_request(&process.id, 1, TermsState::Wanted);
    let answer = runner.send(&request).await.unwrap();
    let terms = answer.terms.as_ref().unwrap();
    assert_eq!((&terms.job, terms.user.as_str()), (&job.id, "ann"));
    assert_eq!(terms.command, ["/bin/echo", "{task}"]);
    assert_eq!(terms.working_directory.as_deref(), Some("/tmp"));
    let limits = (
        terms.time_limit_ms,
        terms.warn_before_ms,
        terms.stop_grace_ms,
    );
    assert_eq!(limits, (Some(5_000), Some(1_000), 700));
    let signals = (terms.warn_signal.name(), terms.stop_signal.name());
    assert_eq!(signals, ("USR1", "INT"));
    for (name, value) in [
        ("K", "{task}"),
        ("HAYWARD_JOB_ID", job.id.as_str()),
        ("HAYWARD_CLASS", "normal"),
        ("HAYWARD_TASK_COUNT", "2"),
        ("HAYWARD_TIME_LIMIT_MS", "5000"),
        ("HAYWARD_STOP_GRACE_MS", "700"),
    ] {
        assert_eq!(terms.environment[name], value, "{name}");
    }

    let request = terms_request(&process.id, 1, TermsState::Known);
    let next = runner.send(&request).await.unwrap();
    assert!(next.terms.is_none(), "the runner has them");
    for (answer, argument) in [(&answer, "a"), (&next, "{task}")] {
        let task = &answer.tasks[0];
        assert_eq!(task.arguments, [argument]);
        assert!(
            task.argv.is_empty() && task.environment.is_empty(),
            "{task:?}"
        );
        assert_eq!(task.working_directory, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_runner_gets_the_whole_command_with_each_task() {
    let fixture = Fixture::new().await;
    let job = json!({
        "command": ["/bin/echo", "{task}"], "tasks": { "arguments": [["a"], ["{task}"]] },
        "environment": { "K": "v" }, "working_directory": "/tmp", "class": "normal",
    });
    let job = fixture.submit(job).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    let answer = runner.lease(&process.id, 2).await;
    assert!(answer.terms.is_none());
    assert_eq!(answer.tasks[0].argv, ["/bin/echo", "0", "a"]);
    assert_eq!(answer.tasks[1].argv, ["/bin/echo", "1", "{task}"]);
    for task in &answer.tasks {
        assert!(task.arguments.is_empty(), "{task:?}");
        assert_eq!(task.environment.len(), 1, "{task:?}");
        assert_eq!(task.environment["K"], "v");
        assert_eq!(task.working_directory.as_deref(), Some("/tmp"));
    }
}

/// It would ignore the limits. Its process ends, so that its space goes to another one.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_runner_gets_no_task_with_limits_that_it_would_ignore() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_limits()).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    let request = LeaseRequest {
        want: 1,
        slots: Some(1),
        idle: 1,
        wait_ms: 5_000,
        ..empty_request(&process.id)
    };
    let answer = runner.send(&request).await.unwrap();
    assert!(answer.tasks.is_empty() && answer.done, "{answer:?}");
    let other = fixture.scheduler.grant(&demand);
    let request = terms_request(&other.id, 2, TermsState::Wanted);
    let answer = runner.send(&request).await.unwrap();
    assert_eq!(answer.tasks.len(), 2, "another process runs them");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_reached_its_time_limit_is_not_tried_again() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut body = job_with_tasks(2);
    body["max_attempts"] = json!(3);
    let job = fixture.submit(body).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    runner.lease(&process.id, 2).await;
    let reports = vec![time_limit_report(0, 1), report(1, 1, 0)];
    assert!(runner.report(&process.id, reports).await.done);
    let view = fixture.wait_for_state(&job.id, WorkState::Failed).await;
    assert_eq!(view.tasks.unwrap().failed, 1);
    fixture.kill_and_restart().await;

    let all = fixture.tasks(&job.id).await.tasks;
    let end = all[0].end.as_ref().unwrap();
    assert_eq!((end.cause, end.blame), (EndCause::TimeLimit, Blame::User));
    assert_eq!(end.message, "ran for 5 s, its time limit");
    let end = all[1].end.as_ref().unwrap();
    assert_eq!((end.cause, end.blame), (EndCause::Exited, Blame::None));
    for (state, task, other) in [("failed", 0, "succeeded"), ("succeeded", 1, "failed")] {
        let query = format!("state={state}&cursor={task}");
        assert_eq!(
            numbers(&read_tasks(&fixture, &job.id, &query).await),
            [task]
        );
        let query = format!("state={other}&cursor={task}");
        let others = read_tasks(&fixture, &job.id, &query).await;
        assert!(!numbers(&others).contains(&task), "{state}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_decide_whether_a_task_is_tried_again() {
    let fixture = Fixture::new().await;
    let mut body = job_with_tasks(2);
    body["max_attempts"] = json!(5);
    body["retry"] = json!({ "exit_codes": [75], "never_exit_codes": [2] });
    let job = fixture.submit(body).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    runner.lease(&process.id, 2).await;
    // The other task is never tried again, because its exit code is not named.
    let reports = vec![report(0, 1, 75), report(1, 1, 7)];
    runner.report(&process.id, reports).await;
    assert_eq!(task_numbers(&runner.lease(&process.id, 2).await), [0]);
    assert!(runner.report(&process.id, vec![report(0, 2, 2)]).await.done);
    let view = fixture.wait_for_state(&job.id, WorkState::Failed).await;
    assert_eq!(view.tasks.unwrap().failed, 2);
    let history = read_history(&fixture, &job.id, 0).await;
    let exit_codes: Vec<_> = history.attempts.iter().map(|it| it.exit_code).collect();
    assert_eq!(exit_codes, [Some(75)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_attempt_waits_for_its_time_also_over_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut body = job_with_tasks(1);
    body["retry"] = json!({ "delay_ms": 60_000, "max_delay_ms": 80_000 });
    let job = fixture.submit(body).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    runner.lease(&process.id, 1).await;
    runner.report(&process.id, vec![report(0, 1, 3)]).await;
    let answer = runner.lease(&process.id, 1).await;
    assert_eq!(task_numbers(&answer), [0; 0]);
    fixture.kill_and_restart().await;
    let runner = fixture.runner(&fixture.demand_of(&job.id).await);
    assert_eq!(task_numbers(&runner.lease(&process.id, 1).await), [0; 0]);
    let counts = fixture.view(&job.id).await.tasks.unwrap();
    assert_eq!((counts.waiting, counts.delayed), (0, 1));
    let list = read_tasks(&fixture, &job.id, "state=delayed").await;
    let task = &list.tasks[0];
    assert_eq!((task.task, task.attempt), (0, 2));
    let current = read_history(&fixture, &job.id, 0).await.current.unwrap();
    assert_eq!(current.state, Some(TaskState::Delayed));
    for retry_in_ms in [task.retry_in_ms, current.retry_in_ms] {
        assert!(
            (1..=66_000).contains(&retry_in_ms.unwrap()),
            "{retry_in_ms:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_again_when_its_delay_is_over() {
    let fixture = Fixture::new().await;
    let mut body = job_with_tasks(1);
    body["retry"] = json!({ "delay_ms": 200 });
    let job = fixture.submit(body).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    runner.lease(&process.id, 1).await;
    runner.report(&process.id, vec![report(0, 1, 3)]).await;
    let request = LeaseRequest {
        want: 1,
        wait_ms: 20_000,
        ..empty_request(&process.id)
    };
    let answer = runner.send(&request).await.unwrap();
    assert_eq!(
        (task_numbers(&answer), answer.tasks[0].attempt),
        (vec![0], 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_completed_when_as_many_tasks_succeeded_as_are_required() {
    let fixture = Fixture::new().await;
    for (failures, state, reason) in [
        (
            1,
            WorkState::Completed,
            "9 of 10 tasks succeeded, 1 failed; 90 % had to succeed",
        ),
        (
            2,
            WorkState::Failed,
            "2 of 10 tasks failed, for example task 0: exited with status 3; 90 % had to succeed",
        ),
    ] {
        let mut body = job_with_tasks(10);
        (body["success_percent"], body["max_attempts"]) = (json!(90), json!(1));
        let job = fixture.submit(body).await;
        let demand = fixture.demand_of(&job.id).await;
        let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
        runner.lease(&process.id, 10).await;
        let exit_code = |task| if task < failures { 3 } else { 0 };
        let reports = (0..10)
            .map(|task| report(task, 1, exit_code(task)))
            .collect();
        assert!(runner.report(&process.id, reports).await.done);
        let view = fixture.wait_for_state(&job.id, state).await;
        assert_eq!(view.reason.as_deref(), Some(reason));
        assert_eq!(view.tasks.unwrap().failed, failures);
    }
}

fn numbers(list: &TaskList) -> Vec<u64> {
    list.tasks.iter().map(|task| task.task).collect()
}

/// Leases three of four tasks, fails task 0 once, and reports that tasks 0 and 2 run.
async fn run_two_tasks(fixture: &Fixture) -> (Runner, AllocationEntry) {
    let job = fixture.submit(job_with_tasks(4)).await;
    let demand = fixture.demand_of(&job.id).await;
    let (process, runner) = (fixture.scheduler.grant(&demand), fixture.runner(&demand));
    fixture.wait_for_state(&job.id, WorkState::Running).await;
    assert_eq!(task_numbers(&runner.lease(&process.id, 3).await), [0, 1, 2]);
    let request = LeaseRequest {
        want: 1,
        finished: vec![report(0, 1, 3)],
        ..empty_request(&process.id)
    };
    assert_eq!(task_numbers(&runner.send(&request).await.unwrap()), [0]);
    let running = |task, attempt| RunningReport {
        task,
        attempt,
        run_ms: 700,
    };
    let request = LeaseRequest {
        slots: Some(3),
        running: vec![running(2, 1), running(0, 2)],
        ..empty_request(&process.id)
    };
    runner.send(&request).await.unwrap();
    (runner, process)
}

#[tokio::test(flavor = "multi_thread")]
async fn running_tasks_are_listed_by_number() {
    let fixture = Fixture::new().await;
    let (runner, process) = run_two_tasks(&fixture).await;
    let job = &runner.job;
    let first = read_tasks(&fixture, job, "state=running&limit=1").await;
    assert_eq!(
        (numbers(&first), first.next_cursor.as_deref()),
        (vec![0], Some("2"))
    );
    let task = &first.tasks[0];
    assert_eq!((task.state, task.attempt), (Some(TaskState::Running), 2));
    let process = (&process.id, "node-1");
    assert_eq!((&task.allocation, task.node.as_str()), process);
    assert!(task.run_ms.unwrap() >= 700, "{task:?}");
    assert!(task.started_at.is_some() && task.end.is_none(), "{task:?}");
    assert!(!task.succeeded);
    let second = read_tasks(&fixture, job, "state=running&cursor=2").await;
    assert_eq!((numbers(&second), second.next_cursor), (vec![2], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_task_shows_its_failed_attempts() {
    let fixture = Fixture::new().await;
    let (runner, process) = run_two_tasks(&fixture).await;
    let job = &runner.job;
    let history = read_history(&fixture, job, 0).await;
    let current = history.current.unwrap();
    assert_eq!((current.task, current.state), (0, Some(TaskState::Running)));
    assert_eq!(history.attempts.len(), 1);
    let failed = &history.attempts[0];
    assert_eq!((failed.attempt, failed.exit_code), (1, Some(3)));
    assert_eq!(
        (&failed.allocation, failed.node.as_str()),
        (&process.id, "node-1")
    );
    assert_eq!(failed.end.message, "exited with status 3");
    let waiting = read_history(&fixture, job, 3).await;
    assert!(waiting.current.is_none() && waiting.attempts.is_empty());

    runner.report(&process.id, vec![report(0, 2, 0)]).await;
    let ended = read_history(&fixture, job, 0).await;
    let current = ended.current.unwrap();
    assert_eq!(
        (current.state, current.attempt),
        (Some(TaskState::Succeeded), 2)
    );
    assert_eq!(ended.attempts.len(), 1);
    for (user, task) in [("ann", 4), ("eve", 0)] {
        let path = format!("/v1/jobs/{job}/tasks/{task}");
        let missing = fixture.user(user).get::<TaskHistory>(&path).await;
        assert_eq!(refusal(missing).0, 404, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_of_hayward_is_refused_at_its_pointer() {
    let fixture = Fixture::new().await;
    let body = json!({ "command": ["x"], "environment": { "HAYWARD_TASK": "1" } });
    let refused = submit(&fixture.user("ann"), "/v1/jobs", &body, &fresh_key()).await;
    let expected = (422, vec!["/environment/HAYWARD_TASK".to_owned()]);
    assert_eq!(refusal(refused), expected);
}
