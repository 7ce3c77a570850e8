//! Tests of launchers: the processes that run programs of users for a task runner.

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_job_converter_api::tasks::EndCause;
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Program};

use crate::agent_process::Agent;
use crate::fake_control_plane::{
    FakeControlPlane, desired_entry, id, is_alive, read_pid, tasks_with_command, wait_for,
};

const TOKEN: &str = "secret-of-the-job";

fn task_runner_program(threads: u32) -> Program {
    Program::RunTasks {
        token: TOKEN.into(),
        threads,
    }
}

async fn wait_for_exit(control: &FakeControlPlane, id: &AllocationId) -> Exit {
    let ended = control.wait_for_state(id, ContainerState::Ended).await;
    ended.exit.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_kills_its_launcher_fails_and_the_other_tasks_run() {
    let control = FakeControlPlane::start().await;
    let pid_file = control.dir.path().join("killer");
    let script = format!(
        "[ $HAYWARD_TASK = 3 ] || {{ echo done; exit; }}; echo $$ > {}; kill -9 $PPID; \
         exec sleep 300",
        pid_file.display()
    );
    control.change(|plane| {
        plane.tasks = tasks_with_command(10, &["/bin/sh", "-c", &script]);
        plane.task_count = 10;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("killer", task_runner_program(2), 2000));
    control
        .wait_until("the lost run is reported", |plane| {
            plane.finished.contains_key(&3)
        })
        .await;
    let killer = read_pid(&pid_file).unwrap();
    assert!(!is_alive(killer), "process {killer} runs on without limits");
    let exit = wait_for_exit(&control, &id("killer")).await;
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    let plane = control.state.borrow().clone();
    assert_eq!(plane.finished.len(), 10);
    for report in plane.finished.values() {
        let expected = match report.task {
            3 => (EndCause::CrashedRunner, ""),
            _ => (EndCause::Exited, "done\n"),
        };
        assert_eq!((report.cause(), report.output.as_str()), expected);
    }
}

/// The attack of another program of the same user on its runner.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_reaches_neither_its_runner_nor_the_credential() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can run programs under other accounts");
        return;
    }
    let control = FakeControlPlane::start().await;
    let script = format!(
        "cd {}; for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline order.json; do \
         grep -a -s {TOKEN} $file && echo \"read $file\"; done; \
         supervisor=$(ps -o ppid= -p $PPID); runner=$(pgrep -P $supervisor -f '[r]un-tasks'); \
         [ -n \"$runner\" ] || echo \"killed the wrong one\"; \
         for process in $supervisor $runner; do \
         kill -9 $process && echo \"killed $process\"; done; \
         cat /proc/$PPID/environ >/dev/null && echo 'read the launcher'; echo over",
        control.container_dir(&id("attack")).display()
    );
    // The word is split, so the program does not find itself.
    let script = script.replace(TOKEN, "secret-of-the''-job");
    control.change(|plane| {
        plane.tasks = tasks_with_command(1, &["/bin/sh", "-c", &script]);
        plane.task_count = 1;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("attack", task_runner_program(1), 2000));
    let exit = wait_for_exit(&control, &id("attack")).await;
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    let report = control.state.borrow().finished.values().next().cloned();
    let output = report.unwrap().output;
    assert!(output.ends_with("over\n"), "{output}");
    assert!(
        !output.contains("read ") && !output.contains("killed "),
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_of_a_task_ends_with_its_task() {
    let control = FakeControlPlane::start().await;
    let pid_file = control.dir.path().join("daemon");
    let script = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 300' & \
         while [ ! -e {0} ]; do sleep 0.01; done",
        pid_file.display()
    );
    control.change(|plane| {
        plane.tasks = tasks_with_command(1, &["/bin/sh", "-c", &script]);
        // A second task never comes, so the process stays.
        plane.task_count = 2;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("daemon", task_runner_program(1), 2000));
    control
        .wait_until("the task has ended", |plane| plane.finished.len() == 1)
        .await;
    let daemon = read_pid(&pid_file).unwrap();
    assert!(!is_alive(daemon), "process {daemon} is alive");
    control.set_goal(&id("daemon"), Goal::Stop);
    wait_for_exit(&control, &id("daemon")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_ends_when_its_runner_is_killed() {
    let control = FakeControlPlane::start().await;
    let pid_file = control.dir.path().join("task");
    let script = format!(
        "trap '' TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.1; done",
        pid_file.display()
    );
    control.change(|plane| {
        plane.tasks = tasks_with_command(1, &["/bin/sh", "-c", &script]);
        plane.task_count = 1;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("orphan", task_runner_program(1), 600_000));
    let report = control
        .wait_for_state(&id("orphan"), ContainerState::Running)
        .await;
    let task = wait_for("the task runs", || read_pid(&pid_file));
    let runner = i32::try_from(report.pid.unwrap()).unwrap();
    let runner = nix::unistd::Pid::from_raw(runner);
    nix::sys::signal::kill(runner, nix::sys::signal::Signal::SIGKILL).unwrap();
    wait_for_exit(&control, &id("orphan")).await;
    assert!(!is_alive(task), "process {task} is alive");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_run_reports_its_own_cpu_time_and_memory() {
    let control = FakeControlPlane::start().await;
    // Task 1 holds 64 MiB and uses cpu, and the task after it does neither.
    let script = "[ $HAYWARD_TASK = 1 ] || exit 0; head -c 67108864 /dev/zero | tail -c 67108864 \
                  | sha512sum";
    control.change(|plane| {
        plane.tasks = tasks_with_command(3, &["/bin/sh", "-c", script]);
        plane.task_count = 3;
    });
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("usage", task_runner_program(1), 2000));
    let exit = wait_for_exit(&control, &id("usage")).await;
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    let plane = control.state.borrow().clone();
    let usage = |task: u64| plane.finished[&task].usage.unwrap();
    let (large, small) = (usage(1), usage(2));
    assert!(large.memory_bytes() >= 64 << 20, "{large:?}");
    assert!(small.memory_bytes() < 32 << 20, "{small:?}");
    assert!(large.cpu_us() > small.cpu_us(), "{large:?} {small:?}");
}
