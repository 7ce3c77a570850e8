//! Containers that run the tasks of a job.

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::{ExitCause, Program};

use crate::agent::Agent;
use crate::control::{Control, World, id, tasks, wanted};

fn run_tasks(threads: u32) -> Program {
    Program::RunTasks {
        token: "secret-of-the-job".into(),
        threads,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tasks_are_run_once_and_reported_in_batches() {
    let control = Control::start().await;
    control.change(|world| {
        world.tasks = tasks(
            500,
            &["/bin/sh", "-c", "echo $COLOUR$HAYWARD_TASK_TOKEN; exit 2"],
        );
        world.total = 500;
    });
    let _agent = Agent::start(&control, &[]);
    control.want(wanted("runner", run_tasks(2), 2000));
    let exit = control
        .reported(&id("runner"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    let world = control.world.borrow().clone();
    assert_eq!((world.finished.len(), world.leased.len()), (500, 0));
    for report in world.finished.values() {
        assert_eq!(
            (report.exit_code, report.output.as_str()),
            (Some(2), "red\n")
        );
    }
    assert!(
        world.requests < 250,
        "{} requests for 500 tasks",
        world.requests
    );
    control.change(|world| world.desired.clear());
    control.until("nothing left", empty).await;
}

fn empty(world: &World) -> bool {
    world
        .report
        .as_ref()
        .is_some_and(|report| report.containers.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_runner_gives_back_what_it_has_not_run() {
    let control = Control::start().await;
    let mark = control.dir.path().join("mark");
    let script = format!(": > {}; exec sleep 300", mark.display());
    control.change(|world| {
        world.tasks = tasks(50, &["/bin/sh", "-c", &script]);
        world.total = 50;
    });
    let _agent = Agent::start(&control, &[]);
    control.want(wanted("stopped", run_tasks(1), 1500));
    crate::control::wait_for("one runs", || mark.exists().then_some(()));
    control.want_goal(&id("stopped"), Goal::Stop);
    let exit = control
        .reported(&id("stopped"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(
        (exit.cause, exit.code),
        (ExitCause::Intended, Some(0)),
        "{exit:?}"
    );
    let world = control.world.borrow().clone();
    assert!(world.leased.is_empty() && world.finished.is_empty() && !world.returned.is_empty());
    control.change(|world| world.desired.clear());
    control.until("nothing left", empty).await;
}

/// With no order to stop: it was only told that there is nothing more for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_gets_nothing_more_ends_with_what_it_runs() {
    let control = Control::start().await;
    let (mark, go) = (
        control.dir.path().join("mark"),
        control.dir.path().join("go"),
    );
    let script = format!(
        "echo x >> {}; while [ ! -e {} ]; do sleep 0.05; done",
        mark.display(),
        go.display()
    );
    control.change(|world| {
        world.tasks = tasks(50, &["/bin/sh", "-c", &script]);
        (world.total, world.lease_ms) = (50, 6_000);
    });
    let _agent = Agent::start(&control, &[]);
    control.want(wanted("marked", run_tasks(1), 1000));
    crate::control::wait_for("one runs", || mark.exists().then_some(()));
    control.change(|world| world.marked = true);
    // What has not started goes back while the first one runs.
    control
        .until("the rest is given back", |world| world.leased.len() == 1)
        .await;
    std::fs::write(&go, "").unwrap();
    let ended = control.reported(&id("marked"), ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Success);
    let world = control.world.borrow().clone();
    assert_eq!((world.finished.len(), world.leased.len()), (1, 0));
    assert_eq!(std::fs::read_to_string(&mark).unwrap().lines().count(), 1);
    control.change(|world| world.desired.clear());
    control.until("nothing left", empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_wait_for_a_job_converter_that_is_down() {
    let control = Control::start().await;
    let mark = control.dir.path().join("mark");
    let script = format!("echo x >> {}", mark.display());
    control.change(|world| {
        world.tasks = tasks(2, &["/bin/sh", "-c", &format!("sleep 0.3; {script}")]);
        world.total = 2;
    });
    let _agent = Agent::start(&control, &[]);
    control.want(wanted("patient", run_tasks(1), 1000));
    control
        .until("both are leased", |world| world.leased.len() == 2)
        .await;
    control.change(|world| world.lender_down = true);
    crate::control::wait_for("both were run", || {
        (std::fs::read_to_string(&mark).ok()?.lines().count() == 2).then_some(())
    });
    control.change(|world| world.lender_down = false);
    control
        .reported(&id("patient"), ContainerState::Ended)
        .await;
    assert_eq!(control.world.borrow().finished.len(), 2);
    assert_eq!(std::fs::read_to_string(&mark).unwrap().lines().count(), 2);
    control.change(|world| world.desired.clear());
    control.until("nothing left", empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_whose_token_is_refused_waits_until_it_is_good_again() {
    let control = Control::start().await;
    control.change(|world| {
        world.tasks = tasks(5, &["true"]);
        world.total = 5;
        world.lender_refuses = true;
    });
    let _agent = Agent::start(&control, &[]);
    control.want(wanted("doubted", run_tasks(1), 1000));
    control
        .until("it was refused more than once", |world| world.refused > 2)
        .await;
    control.change(|world| world.lender_refuses = false);
    let exit = control
        .reported(&id("doubted"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    assert_eq!(control.world.borrow().finished.len(), 5);
    control.change(|world| world.desired.clear());
    control.until("nothing left", empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_nothing_runs_under_a_lease_that_is_over() {
    let control = Control::start().await;
    let (mark, pid) = (
        control.dir.path().join("mark"),
        control.dir.path().join("pid"),
    );
    let script = format!(
        "echo $$ > {}; sleep 300; : > {}",
        pid.display(),
        mark.display()
    );
    control.change(|world| {
        world.tasks = tasks(1, &["/bin/sh", "-c", &script]);
        (world.total, world.lease_ms) = (1, 1000);
    });
    let _agent = Agent::start(&control, &[]);
    control.want(wanted("leaseless", run_tasks(1), 1000));
    let runs = crate::control::wait_for("it runs", || crate::control::number_in(&pid));
    control.change(|world| world.lender_down = true);
    crate::control::wait_for("its end", || (!crate::control::lives(runs)).then_some(()));
    control.change(|world| world.desired.clear());
    control.until("nothing left", empty).await;
}
