//! Tests of the tasks of applications, from their addition to their end. Each task is one process.

use hayward_rm_scheduler_api::VacateReason;
use hayward_vocabulary::{Exit, ExitCause, Program};
use http::Method;
use serde_json::json;

use super::{fixture, fixture_with_short_lease, put_application, put_task, task_body, transition};
use crate::fixture::Fixture;

fn successful_exit() -> Exit {
    Exit {
        code: Some(0),
        ..Exit::of(ExitCause::Success, "")
    }
}

/// Repeating a task changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_task_is_not_added_and_an_unknown_one_is_no_error() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    assert_eq!(put_task(&ann, "app", "1", &task_body()).await.0, 201);
    assert_eq!(put_task(&ann, "app", "2", &task_body()).await.0, 201);
    assert_eq!(put_task(&ann, "app", "2", &task_body()).await.0, 200);
    assert_eq!(fixture.application("app").await.tasks.len(), 2);
    let unknown = ann.call(Method::PUT, "/v1/applications/none/tasks/1");
    let unknown = unknown
        .body(&task_body())
        .send_for_response::<serde_json::Value>()
        .await;
    assert_eq!(super::expect_problem(unknown).0, 404);
    let remaining = [
        ("app/tasks/9", 2),
        ("none/tasks/1", 2),
        ("app/tasks/1", 1),
        ("app/tasks/2", 0),
    ];
    for (path, remaining) in remaining {
        let path = format!("/v1/applications/{path}");
        let removed = ann
            .call(Method::DELETE, path)
            .send_for_response::<()>()
            .await
            .unwrap();
        assert_eq!(removed.status.as_u16(), 204);
        assert_eq!(fixture.application("app").await.tasks.len(), remaining);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_one_process_and_its_end_is_the_end_of_the_task() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "t", &task_body()).await;
    let demand = fixture.task_demand("app", "t").await;
    assert_eq!((demand.max_processes, demand.remaining_tasks), (1, 1));
    assert!(demand.queued.is_none() && demand.part.is_some());
    let launch = demand.launch.clone().unwrap();
    let argv = vec!["/bin/work".to_owned()];
    assert_eq!(launch.program, Program::Command { argv });
    assert_eq!(launch.environment["HAYWARD_APPLICATION"], "app");
    fixture.wait_for_states("app", "Running", "Accepted").await;
    let process = fixture.scheduler.grant(&demand);
    fixture.wait_for_task("app", "t", "Bound").await;
    let view = fixture.wait_for_states("app", "Running", "Running").await;
    assert_eq!(view.tasks[0].node.as_ref(), Some(&process.node));
    assert_eq!(view.tasks[0].allocation.as_ref(), Some(&process.id));
    fixture.scheduler.end(&process, successful_exit());
    fixture.wait_for_task("app", "t", "Completed").await;
    let view = fixture
        .wait_for_states("app", "Running", "Completing")
        .await;
    assert_eq!(view.tasks[0].exit.as_ref().and_then(|it| it.code), Some(0));
    assert!(fixture.demand().await.is_empty());
    assert!(view.timers.contains_key("completing"));
    // A new task makes the application run again.
    put_task(&ann, "app", "u", &task_body()).await;
    fixture.task_demand("app", "u").await;
    fixture.wait_for_states("app", "Running", "Running").await;
}

/// The owner completes a task that waits, and one that runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_completed_task_releases_its_ask_or_allocation() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "waits", &task_body()).await;
    put_task(&ann, "app", "runs", &task_body()).await;
    fixture.task_demand("app", "waits").await;
    let process = fixture
        .scheduler
        .grant(&fixture.task_demand("app", "runs").await);
    fixture.wait_for_task("app", "runs", "Bound").await;
    for task in ["waits", "runs"] {
        let result = transition(&ann, &format!("app/tasks/{task}"), "complete").await;
        assert_eq!(
            (result.applied, result.state.as_deref()),
            (true, Some("Completed"))
        );
    }
    assert!(fixture.demand().await.is_empty());
    fixture.scheduler.remove(&process);
    fixture
        .wait_for_states("app", "Running", "Completing")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preempted_task_is_killed_and_a_refused_one_fails() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    for name in ["preempted", "lost", "refused"] {
        put_task(&ann, "app", name, &task_body()).await;
    }
    let demand = fixture.task_demand("app", "preempted").await;
    let process = fixture.scheduler.grant(&demand);
    fixture.wait_for_task("app", "preempted", "Bound").await;
    let leaving = fixture
        .scheduler
        .vacate_for(&process, VacateReason::Preempted);
    fixture.wait_for_task("app", "preempted", "Killing").await;
    assert!(!fixture.demand().await.contains_key(demand.work.as_str()));
    fixture
        .scheduler
        .end(&leaving, Exit::of(ExitCause::Intended, "ordered to end"));
    fixture.wait_for_task("app", "preempted", "Killed").await;

    let process = fixture
        .scheduler
        .grant(&fixture.task_demand("app", "lost").await);
    fixture.wait_for_task("app", "lost", "Bound").await;
    let lost = fixture
        .scheduler
        .vacate_for(&process, VacateReason::NodeLost);
    fixture
        .scheduler
        .end(&lost, Exit::of(ExitCause::Node, "node-1 was lost"));
    fixture.wait_for_task("app", "lost", "Killed").await;

    let demand = fixture.task_demand("app", "refused").await;
    let reason = hayward_rm_scheduler_api::WaitReason::NoHostLargeEnough;
    fixture
        .scheduler
        .publish_verdict(&demand.work, reason, false);
    let view = fixture
        .wait_for_application("app", "why it waits", |view| {
            view.why
                .iter()
                .any(|it| it.reason == "no_host_large_enough")
        })
        .await;
    assert_eq!(view.why[0].of, "refused");
    fixture
        .scheduler
        .publish_verdict(&demand.work, reason, true);
    fixture.wait_for_task("app", "refused", "Failed").await;
    let view = fixture.application("app").await;
    let refused = view.tasks.iter().find(|it| it.id == "refused").unwrap();
    assert_eq!(refused.failure.as_ref().unwrap().code, "ask_rejected");
    assert!(fixture.demand().await.is_empty());
}

/// Acknowledged state survives a crash, and allocations keep their tasks.
#[tokio::test(flavor = "multi_thread")]
async fn applications_survive_a_crash() {
    let mut fixture: Fixture = fixture_with_short_lease().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({ "tags": { "namespace": "x" } })).await;
    for name in ["done", "runs", "waits"] {
        put_task(&ann, "app", name, &task_body()).await;
    }
    let done = fixture
        .scheduler
        .grant(&fixture.task_demand("app", "done").await);
    let runs = fixture
        .scheduler
        .grant(&fixture.task_demand("app", "runs").await);
    fixture.wait_for_task("app", "runs", "Bound").await;
    fixture.scheduler.end(&done, successful_exit());
    fixture.wait_for_task("app", "done", "Completed").await;
    fixture.scheduler.remove(&done);
    let (before, demand) = (fixture.application("app").await, fixture.demand().await);
    fixture.kill_and_restart().await;
    let mut after = fixture.wait_for_states("app", "Running", "Running").await;
    after.why.clone_from(&before.why);
    assert_eq!(after, before);
    assert_eq!(fixture.demand().await, demand);
    fixture.scheduler.end(&runs, successful_exit());
    fixture.wait_for_task("app", "runs", "Completed").await;
    fixture
        .scheduler
        .grant(&fixture.task_demand("app", "waits").await);
    fixture.wait_for_task("app", "waits", "Bound").await;
}
