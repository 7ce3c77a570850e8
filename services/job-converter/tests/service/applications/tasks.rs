//! Tasks: one process each, the report of its end, and a restart in between.

use hayward_rm_scheduler_api::VacateReason;
use hayward_vocabulary::{Exit, ExitCause, Program};
use http::Method;
use serde_json::json;

use super::{mortal, put, put_task, task, tell, world};
use crate::world::World;

fn well() -> Exit {
    Exit {
        code: Some(0),
        ..Exit::of(ExitCause::Success, "")
    }
}

/// Repeating a task changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_task_is_not_added_and_an_unknown_one_is_no_error() {
    let world = world().await;
    let ann = world.user("ann");
    put(&ann, "app", &json!({})).await;
    assert_eq!(put_task(&ann, "app", "1", &task()).await.0, 201);
    assert_eq!(put_task(&ann, "app", "2", &task()).await.0, 201);
    assert_eq!(put_task(&ann, "app", "2", &task()).await.0, 200);
    assert_eq!(world.app("app").await.tasks.len(), 2);
    let unknown = ann.call(Method::PUT, "/v1/applications/none/tasks/1");
    let unknown = unknown.body(&task()).answer::<serde_json::Value>().await;
    assert_eq!(super::problem(unknown).0, 404);
    let left = [
        ("app/tasks/9", 2),
        ("none/tasks/1", 2),
        ("app/tasks/1", 1),
        ("app/tasks/2", 0),
    ];
    for (path, left) in left {
        let path = format!("/v1/applications/{path}");
        let gone = ann.call(Method::DELETE, path).answer::<()>().await.unwrap();
        assert_eq!(gone.status.as_u16(), 204);
        assert_eq!(world.app("app").await.tasks.len(), left);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_one_process_and_its_end_is_the_end_of_the_task() {
    let world = world().await;
    let ann = world.user("ann");
    put(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "t", &task()).await;
    let demand = world.asked("app", "t").await;
    assert_eq!((demand.max_processes, demand.remaining_tasks), (1, 1));
    assert!(demand.queued.is_none() && demand.part.is_some());
    let launch = demand.launch.clone().unwrap();
    let argv = vec!["/bin/work".to_owned()];
    assert_eq!(launch.program, Program::Command { argv });
    assert_eq!(launch.environment["HAYWARD_APPLICATION"], "app");
    world.app_in("app", "Running", "Accepted").await;
    let process = world.scheduler.grant(&demand);
    world.task_in("app", "t", "Bound").await;
    let view = world.app_in("app", "Running", "Running").await;
    assert_eq!(view.tasks[0].node.as_ref(), Some(&process.node));
    assert_eq!(view.tasks[0].allocation.as_ref(), Some(&process.id));
    world.scheduler.ended(&process, well());
    world.task_in("app", "t", "Completed").await;
    let view = world.app_in("app", "Running", "Completing").await;
    assert_eq!(view.tasks[0].exit.as_ref().and_then(|it| it.code), Some(0));
    assert!(world.demand().await.is_empty());
    assert!(view.timers.contains_key("completing"));
    // A new task makes the application run again.
    put_task(&ann, "app", "u", &task()).await;
    world.asked("app", "u").await;
    world.app_in("app", "Running", "Running").await;
}

/// Also ends a task on request of its owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_completed_task_releases_its_ask_or_allocation() {
    let world = world().await;
    let ann = world.user("ann");
    put(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "waits", &task()).await;
    put_task(&ann, "app", "runs", &task()).await;
    world.asked("app", "waits").await;
    let process = world.scheduler.grant(&world.asked("app", "runs").await);
    world.task_in("app", "runs", "Bound").await;
    for task in ["waits", "runs"] {
        let told = tell(&ann, &format!("app/tasks/{task}"), "complete").await;
        assert_eq!(
            (told.applied, told.state.as_deref()),
            (true, Some("Completed"))
        );
    }
    assert!(world.demand().await.is_empty());
    world.scheduler.bury(&process);
    world.app_in("app", "Running", "Completing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preempted_task_is_killed_and_a_refused_one_fails() {
    let world = world().await;
    let ann = world.user("ann");
    put(&ann, "app", &json!({})).await;
    for name in ["preempted", "lost", "refused"] {
        put_task(&ann, "app", name, &task()).await;
    }
    let demand = world.asked("app", "preempted").await;
    let process = world.scheduler.grant(&demand);
    world.task_in("app", "preempted", "Bound").await;
    let leaving = world
        .scheduler
        .vacate_for(&process, VacateReason::Preempted);
    world.task_in("app", "preempted", "Killing").await;
    assert!(!world.demand().await.contains_key(demand.work.as_str()));
    world
        .scheduler
        .ended(&leaving, Exit::of(ExitCause::Intended, "told to end"));
    world.task_in("app", "preempted", "Killed").await;

    let process = world.scheduler.grant(&world.asked("app", "lost").await);
    world.task_in("app", "lost", "Bound").await;
    let lost = world.scheduler.vacate_for(&process, VacateReason::NodeLost);
    world
        .scheduler
        .ended(&lost, Exit::of(ExitCause::Node, "node-1 was lost"));
    world.task_in("app", "lost", "Killed").await;

    let demand = world.asked("app", "refused").await;
    let reason = hayward_rm_scheduler_api::WaitReason::NoHostLargeEnough;
    world.scheduler.judge(&demand.work, reason, false);
    let view = world
        .app_until("app", "why it waits", |view| {
            view.why
                .iter()
                .any(|it| it.reason == "no_host_large_enough")
        })
        .await;
    assert_eq!(view.why[0].of, "refused");
    world.scheduler.judge(&demand.work, reason, true);
    world.task_in("app", "refused", "Failed").await;
    let view = world.app("app").await;
    let refused = view.tasks.iter().find(|it| it.id == "refused").unwrap();
    assert_eq!(refused.failure.as_ref().unwrap().code, "ask_rejected");
    assert!(world.demand().await.is_empty());
}

/// Acknowledged state survives a crash, and allocations keep their tasks.
#[tokio::test(flavor = "multi_thread")]
async fn applications_survive_a_crash() {
    let mut world: World = mortal().await;
    let ann = world.user("ann");
    put(&ann, "app", &json!({ "tags": { "namespace": "x" } })).await;
    for name in ["done", "runs", "waits"] {
        put_task(&ann, "app", name, &task()).await;
    }
    let done = world.scheduler.grant(&world.asked("app", "done").await);
    let runs = world.scheduler.grant(&world.asked("app", "runs").await);
    world.task_in("app", "runs", "Bound").await;
    world.scheduler.ended(&done, well());
    world.task_in("app", "done", "Completed").await;
    world.scheduler.bury(&done);
    let (before, asked) = (world.app("app").await, world.demand().await);
    world.kill_and_restart().await;
    let mut after = world.app_in("app", "Running", "Running").await;
    after.why.clone_from(&before.why);
    assert_eq!(after, before);
    assert_eq!(world.demand().await, asked);
    world.scheduler.ended(&runs, well());
    world.task_in("app", "runs", "Completed").await;
    world.scheduler.grant(&world.asked("app", "waits").await);
    world.task_in("app", "waits", "Bound").await;
}
