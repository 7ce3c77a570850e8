//! Tests of how tasks and applications complete or fail. Only exit status 0 completes a task, and
//! an application in a queue that does not exist fails.

use hayward_rm_scheduler_api::WaitReason;
use hayward_vocabulary::{Exit, ExitCause};
use serde_json::json;

use super::{fixture, put_application, put_task, task_body, transition};
use crate::fixture::Fixture;

/// Runs a task of an application without a queue and ends the task with this exit.
async fn run_and_end_task(fixture: &Fixture, name: &str, exit: Exit) {
    let ann = fixture.user("ann");
    put_task(&ann, "app", name, &task_body()).await;
    let process = fixture
        .scheduler
        .grant(&fixture.task_demand("app", name).await);
    fixture.wait_for_task("app", name, "Bound").await;
    fixture.scheduler.end(&process, exit);
}

fn exit(cause: ExitCause, code: Option<i32>) -> Exit {
    Exit {
        code,
        ..Exit::of(cause, "the journal was lost")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_process_that_ended_with_status_0_completes_its_task() {
    let fixture = fixture().await;
    put_application(&fixture.user("ann"), "app", &json!({})).await;
    for (cause, code, state, failure) in [
        (ExitCause::Success, Some(0), "Completed", None),
        (ExitCause::UserError, Some(3), "Failed", Some("exited")),
        (ExitCause::UserLimit, None, "Failed", Some("exited")),
        (
            ExitCause::LaunchFailed,
            None,
            "Failed",
            Some("cannot_start"),
        ),
        (ExitCause::LaunchUnknown, None, "Killed", None),
        (ExitCause::Node, None, "Killed", None),
        (ExitCause::Intended, Some(0), "Killed", None),
        (ExitCause::Unknown, None, "Killed", None),
    ] {
        let name = format!("{cause:?}");
        run_and_end_task(&fixture, &name, exit(cause, code)).await;
        fixture.wait_for_task("app", &name, state).await;
        let view = fixture.application("app").await;
        let task = view.tasks.iter().find(|it| it.id == name).unwrap();
        let failure_code = task.failure.as_ref().map(|it| it.code.as_str());
        assert_eq!(failure_code, failure, "{name}");
        assert_eq!(task.exit.as_ref().map(|it| it.cause), Some(cause));
        let warnings = view.warnings.iter();
        let warnings = warnings
            .filter(|it| it.task.as_deref() == Some(&name))
            .count();
        assert_eq!(warnings, usize::from(state != "Completed"), "{name}");
    }
}

/// The process of the task is gone and its exit was never observed.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_with_an_unobserved_end_is_killed() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "t", &task_body()).await;
    let process = fixture
        .scheduler
        .grant(&fixture.task_demand("app", "t").await);
    fixture.wait_for_task("app", "t", "Bound").await;
    fixture.scheduler.remove(&process);
    fixture.wait_for_task("app", "t", "Killed").await;
    let view = fixture.application("app").await;
    assert!(view.warnings[0].message.contains("the exit is unknown"));
}

/// The application ends 30 s after its last task, since another task may be added.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_without_a_successful_task_has_failed() {
    let fixture = fixture().await;
    put_application(&fixture.user("ann"), "app", &json!({})).await;
    run_and_end_task(&fixture, "t", exit(ExitCause::LaunchUnknown, None)).await;
    let limit = std::time::Duration::from_mins(3);
    let view = hayward_testkit::until_within("the end", limit, async || {
        let view = fixture.application("app").await;
        (view.state == "Failed").then_some(view)
    })
    .await;
    assert_eq!(view.scheduling_state.as_deref(), Some("Completed"));
    let failure = view.failure.unwrap();
    assert_eq!(failure.code, "nothing_completed");
    assert!(failure.message.ends_with("1 Killed"), "{failure:?}");
}

/// The queue of an application is asked before the application is accepted, with or without tasks.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_in_a_queue_that_does_not_exist_has_failed() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    for (id, tasks) in [("empty", 0), ("full", 1)] {
        put_application(&ann, id, &json!({ "queueName": "root.nowhere" })).await;
        for number in 0..tasks {
            put_task(&ann, id, &number.to_string(), &task_body()).await;
        }
        let demand = fixture
            .publish_queue_verdict(WaitReason::UnknownClass, true)
            .await;
        assert_eq!((demand.max_processes, demand.remaining_tasks), (0, 0));
        let queued = demand.queued.unwrap();
        assert_eq!(queued.queue.as_deref(), Some("root.nowhere"));
        let view = fixture.wait_for_states(id, "Failed", "Rejected").await;
        assert_eq!(view.failure.unwrap().code, "rejected");
        assert!(view.tasks.iter().all(|it| it.state == "Failed"));
        assert!(fixture.demand().await.is_empty());
    }
    put_application(&ann, "good", &json!({ "queueName": "root.a" })).await;
    put_task(&ann, "good", "t", &task_body()).await;
    let view = fixture.wait_for_application("good", "it waits for admission", |view| {
        !view.why.is_empty()
    });
    let why = view.await.why.remove(0);
    assert_eq!((why.of.as_str(), why.is_considered()), ("root.a", false));
    fixture
        .publish_queue_verdict(WaitReason::Satisfied, false)
        .await;
    let demand = fixture.task_demand("good", "t").await;
    assert_eq!(
        fixture.demand().await.len(),
        1,
        "the request for admission is withdrawn"
    );
    fixture.scheduler.grant(&demand);
    fixture.wait_for_states("good", "Running", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_without_tasks_ends_on_request() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    for (event, state) in [
        ("complete", "Completed"),
        ("fail", "Failing"),
        ("kill", "Killed"),
    ] {
        put_application(&ann, event, &json!({})).await;
        fixture.wait_for_states(event, "Running", "New").await;
        assert!(transition(&ann, event, event).await.applied);
        let view = fixture.wait_for_states(event, state, "Completing").await;
        assert!(view.timers.contains_key("completing"));
    }
}
