//! Cancellation of single tasks in a fleet of real processes.

use std::time::Duration;

use hayward_job_converter_api::task_commands::TasksCancelled;
use hayward_job_converter_api::tasks::{EndCause, TaskList, TaskState};
use hayward_job_converter_api::{TaskCounts, WorkState};
use hayward_tests_fleet::{TestFleet, job, submit, wait_for_end, wait_for_view};
use serde_json::json;

const LIMIT: Duration = Duration::from_mins(2);

/// Four of twenty tasks run. Running tasks that are cancelled get the stop signal, waiting ones
/// never start, and the others end as if nothing had happened (TC-134).
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_tasks_stop_or_never_start_and_the_others_succeed() {
    let fleet = TestFleet::start_with_agents(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let go = fleet.dir.path().join("go");
    let script = format!(
        "trap 'echo saved; exit 0' TERM; while [ ! -e {} ]; do sleep 0.05; done",
        go.display()
    );
    let id = submit(&ada, "jobs", &job(&["sh", "-c", &script], 20)).await;
    let path = format!("/v1/jobs/{id}");
    let runs_four = |counts: TaskCounts| counts.running == 4;
    wait_for_view(&ada, &path, LIMIT, |view| view.tasks.is_some_and(runs_four)).await;
    let request = json!({ "tasks": ["2-5", "18"] });
    let cancel = format!("{path}/tasks/cancel");
    let effect: TasksCancelled = ada
        .post(&cancel, &request, Some("once"))
        .await
        .expect("an effect");
    let counts = (effect.cancelled, effect.stopping, effect.ended);
    assert_eq!(counts, (3, 2, 0));
    let are_over = |counts: TaskCounts| counts.cancelled == 5;
    wait_for_view(&ada, &path, LIMIT, |view| view.tasks.is_some_and(are_over)).await;
    std::fs::write(&go, "").expect("a file");
    let view = wait_for_end(&ada, &id, LIMIT).await;
    let expected = TaskCounts {
        total: 20,
        succeeded: 15,
        cancelled: 5,
        ..TaskCounts::default()
    };
    assert_eq!(
        (view.state, view.tasks),
        (WorkState::Completed, Some(expected))
    );
    let path = format!("{path}/tasks?state=cancelled");
    let list: TaskList = ada.get(&path).await.expect("a list");
    let numbers: Vec<u64> = list.tasks.iter().map(|task| task.task).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 18]);
    for task in &list.tasks {
        let end = task.end.as_ref().expect("an end");
        assert_eq!(
            (task.state, end.cause),
            (Some(TaskState::Cancelled), EndCause::Cancelled)
        );
        // The shell may add a line about the signal.
        let has_saved = task.output.ends_with("saved\n");
        assert_eq!(has_saved, task.task < 4, "{task:?}");
    }
}
