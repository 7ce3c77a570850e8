//! Tests of containers that run the tasks of a job.

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_job_converter_api::tasks::EndCause;
use hayward_vocabulary::{ExitCause, Program};

use crate::agent_process::Agent;
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, id, is_alive, read_pid, tasks_with_command,
    terms_with_command, wait_for,
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

/// The grace is longer than the test may take, so the test fails if a stop waits for its end
/// (TC-106).
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_task_saves_its_checkpoint_and_ends_at_once() {
    let control = FakeControlPlane::start().await;
    let (mark, saved) = (
        control.dir.path().join("mark"),
        control.dir.path().join("saved"),
    );
    let script = format!(
        "trap 'echo $HAYWARD_TASK > {}; exit 0' TERM; : > {}; while :; do sleep 0.02; done",
        saved.display(),
        mark.display()
    );
    control.change(|plane| {
        plane.tasks = tasks_with_command(3, &[]);
        plane.terms = Some(terms_with_command(&["/bin/sh", "-c", &script]));
        plane.task_count = 3;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("stopped", task_runner_program(1), 601_000));
    wait_for("the task runs", || mark.exists().then_some(()));
    control.set_goal(&id("stopped"), Goal::Stop);
    let exit = control.wait_for_exit(&id("stopped")).await;
    assert_eq!(
        (exit.cause, exit.code),
        (ExitCause::Intended, Some(0)),
        "{exit:?}"
    );
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), "0\n");
    let plane = control.state.borrow().clone();
    assert!(
        plane.finished.is_empty(),
        "an exit after the stop signal is no success"
    );
    assert_eq!((plane.interrupted.len(), plane.leased.len()), (1, 0));
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_task_knows_its_number_and_writes_its_own_file() {
    let control = FakeControlPlane::start().await;
    let script = "echo $HAYWARD_TASK $HAYWARD_ATTEMPT $HAYWARD_NODE $1; echo {task:02} >&2";
    control.change(|plane| {
        plane.tasks = tasks_with_command(20, &[]);
        for task in &mut plane.tasks {
            task.arguments = vec!["{task}".to_owned()];
        }
        let mut terms = terms_with_command(&["/bin/sh", "-c", script, "sh"]);
        let folder = control.dir.path().display();
        terms.output.stdout = Some(format!("{folder}/out/{{name}}/{{task:03}}.txt"));
        terms.output.stderr = Some("keep".to_owned());
        terms.output.make_directories = true;
        plane.terms = Some(terms);
        plane.task_count = 20;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("files", task_runner_program(2), 1000));
    let exit = control.wait_for_exit(&id("files")).await;
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    let plane = control.state.borrow().clone();
    for (task, report) in &plane.finished {
        assert_eq!(report.exit_code, Some(0), "{report:?}");
        assert_eq!(report.output, format!("{task:02}\n"));
        let file = control.dir.path().join(format!("out/train/{task:03}.txt"));
        let content = std::fs::read_to_string(&file).unwrap();
        assert_eq!(content, format!("{task} 1 node-1 {{task}}\n"));
    }
    assert_eq!(plane.finished.len(), 20);
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_reaches_its_time_limit_ends_and_the_next_one_runs() {
    let control = FakeControlPlane::start().await;
    let script = "[ $HAYWARD_TASK = 1 ] && exec true; exec sleep 600";
    control.change(|plane| {
        plane.tasks = tasks_with_command(2, &[]);
        let mut terms = terms_with_command(&["/bin/sh", "-c", script]);
        terms.time_limit_ms = Some(300);
        plane.terms = Some(terms);
        plane.task_count = 2;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("limit", task_runner_program(1), 1000));
    let exit = control.wait_for_exit(&id("limit")).await;
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    let plane = control.state.borrow().clone();
    let causes = [0, 1].map(|task| plane.finished[&task].cause());
    assert_eq!(causes, [EndCause::TimeLimit, EndCause::Exited]);
    control.change(|plane| plane.desired.clear());
    control
        .wait_until("the agent has no container", has_no_containers)
        .await;
}
