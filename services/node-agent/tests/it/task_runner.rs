//! Tests of containers that run the tasks of a job.

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::{ExitCause, Program};

use crate::agent_process::Agent;
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, id, is_alive, read_pid, tasks_with_command,
    wait_for,
};

fn task_runner_program(threads: u32) -> Program {
    Program::RunTasks {
        token: "secret-of-the-job".into(),
        threads,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tasks_run_once_and_are_reported_in_batches() {
    let control = FakeControlPlane::start().await;
    control.change(|plane| {
        plane.tasks = tasks_with_command(
            500,
            &["/bin/sh", "-c", "echo $COLOUR$HAYWARD_TASK_TOKEN; exit 2"],
        );
        plane.task_count = 500;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("runner", task_runner_program(2), 2000));
    let exit = control
        .wait_for_state(&id("runner"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    let plane = control.state.borrow().clone();
    assert_eq!((plane.finished.len(), plane.leased.len()), (500, 0));
    for report in plane.finished.values() {
        assert_eq!(
            (report.exit_code, report.output.as_str()),
            (Some(2), "red\n")
        );
    }
    assert!(
        plane.requests < 250,
        "{} requests for 500 tasks",
        plane.requests
    );
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}

fn has_no_containers(plane: &ControlPlaneState) -> bool {
    plane
        .report
        .as_ref()
        .is_some_and(|report| report.containers.is_empty())
}

/// The first tasks are short, so the runner holds a reserve when the first long one starts. The
/// reserve is returned although the long task still runs (TC-4).
#[tokio::test(flavor = "multi_thread")]
async fn a_long_task_holds_back_no_reserved_task() {
    let control = FakeControlPlane::start().await;
    let (mark, slow) = (
        control.dir.path().join("mark"),
        control.dir.path().join("slow"),
    );
    let script = format!(
        "[ -e {} ] || exit 0; : > {}; exec sleep 300",
        slow.display(),
        mark.display()
    );
    control.change(|plane| {
        plane.tasks = tasks_with_command(100_000, &["/bin/sh", "-c", &script]);
        plane.task_count = 100_000;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("reserve", task_runner_program(1), 1500));
    control
        .wait_until("the runner has a reserve", |plane| plane.leased.len() > 10)
        .await;
    std::fs::write(&slow, "").unwrap();
    wait_for("the first long task runs", || mark.exists().then_some(()));
    control
        .wait_until("only the running task is leased", |plane| {
            plane.leased.len() == 1 && !plane.returned.is_empty()
        })
        .await;
    // The running task is reported as running, and ends with the runner.
    control
        .wait_until("the start is reported", |plane| plane.running.len() == 1)
        .await;
    control.set_goal(&id("reserve"), Goal::Stop);
    let exit = control
        .wait_for_state(&id("reserve"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(
        (exit.cause, exit.code),
        (ExitCause::Intended, Some(0)),
        "{exit:?}"
    );
    assert!(control.state.borrow().leased.is_empty());
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}

/// While one slot is busy, the other gets new tasks, and nothing is reserved for it (TC-2).
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_slot_does_not_keep_another_from_new_tasks() {
    let control = FakeControlPlane::start().await;
    let go = control.dir.path().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done", go.display());
    control.change(|plane| {
        plane.tasks = tasks_with_command(1, &["/bin/sh", "-c", &script]);
        plane.task_count = 4;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("slots", task_runner_program(2), 1500));
    control
        .wait_until("one slot is busy", |plane| plane.running.len() == 1)
        .await;
    control.change(|plane| {
        plane.tasks = tasks_with_command(4, &["/bin/true"]);
        plane.tasks.retain(|task| task.task > 0);
    });
    control
        .wait_until("the other slot has run all other tasks", |plane| {
            plane.finished.len() == 3
        })
        .await;
    std::fs::write(&go, "").unwrap();
    let report = control
        .wait_for_state(&id("slots"), ContainerState::Ended)
        .await;
    assert_eq!(report.exit.unwrap().cause, ExitCause::Success);
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_without_further_tasks_finishes_running_ones() {
    let control = FakeControlPlane::start().await;
    let (mark, go) = (
        control.dir.path().join("mark"),
        control.dir.path().join("go"),
    );
    let script = format!(
        "echo x >> {}; while [ ! -e {} ]; do sleep 0.05; done",
        mark.display(),
        go.display()
    );
    control.change(|plane| {
        plane.tasks = tasks_with_command(50, &["/bin/sh", "-c", &script]);
        (plane.task_count, plane.lease_ms) = (50, 6_000);
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("last-task", task_runner_program(1), 1000));
    wait_for("the first task runs", || mark.exists().then_some(()));
    control.change(|plane| plane.no_more_tasks = true);
    // Waiting tasks are returned while the first one runs.
    control
        .wait_until("the waiting tasks are returned", |plane| {
            plane.leased.len() == 1
        })
        .await;
    std::fs::write(&go, "").unwrap();
    let report = control
        .wait_for_state(&id("last-task"), ContainerState::Ended)
        .await;
    assert_eq!(report.exit.unwrap().cause, ExitCause::Success);
    let plane = control.state.borrow().clone();
    assert_eq!((plane.finished.len(), plane.leased.len()), (1, 0));
    assert_eq!(std::fs::read_to_string(&mark).unwrap().lines().count(), 1);
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_wait_for_a_job_converter_that_is_down() {
    let control = FakeControlPlane::start().await;
    let mark = control.dir.path().join("mark");
    let script = format!("echo x >> {}", mark.display());
    control.change(|plane| {
        plane.tasks = tasks_with_command(2, &["/bin/sh", "-c", &format!("sleep 0.3; {script}")]);
        plane.task_count = 2;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("waiting", task_runner_program(2), 1000));
    control
        .wait_until("both tasks are leased", |plane| plane.leased.len() == 2)
        .await;
    control.change(|plane| plane.job_converter_down = true);
    wait_for("both tasks have run", || {
        (std::fs::read_to_string(&mark).ok()?.lines().count() == 2).then_some(())
    });
    control.change(|plane| plane.job_converter_down = false);
    control
        .wait_for_state(&id("waiting"), ContainerState::Ended)
        .await;
    assert_eq!(control.state.borrow().finished.len(), 2);
    assert_eq!(std::fs::read_to_string(&mark).unwrap().lines().count(), 2);
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_with_a_refused_token_waits_until_it_is_accepted() {
    let control = FakeControlPlane::start().await;
    control.change(|plane| {
        plane.tasks = tasks_with_command(5, &["true"]);
        plane.task_count = 5;
        plane.tokens_refused = true;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("refused", task_runner_program(1), 1000));
    control
        .wait_until("the token was refused several times", |plane| {
            plane.refused_requests > 2
        })
        .await;
    control.change(|plane| plane.tokens_refused = false);
    let exit = control
        .wait_for_state(&id("refused"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    assert_eq!(control.state.borrow().finished.len(), 5);
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_runs_under_an_expired_lease() {
    let control = FakeControlPlane::start().await;
    let (mark, pid) = (
        control.dir.path().join("mark"),
        control.dir.path().join("pid"),
    );
    let script = format!(
        "echo $$ > {}; sleep 300; : > {}",
        pid.display(),
        mark.display()
    );
    control.change(|plane| {
        plane.tasks = tasks_with_command(1, &["/bin/sh", "-c", &script]);
        (plane.task_count, plane.lease_ms) = (1, 1000);
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("expired", task_runner_program(1), 1000));
    let task_pid = wait_for("the task runs", || read_pid(&pid));
    control.change(|plane| plane.job_converter_down = true);
    wait_for("the task has ended", || (!is_alive(task_pid)).then_some(()));
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}
