//! Tests of the recovery after the loss of an agent, a supervisor or a journal.

use std::process::Command;

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::ExitCause;

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    FakeControlPlane, desired_entry, id, is_alive, read_pid, shell, wait_for,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_adopts_live_containers_and_reports_ended_ones() {
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[]);
    let go_file = control.dir.path().join("go");
    let starts = control.dir.path().join("starts");
    let (go, log) = (go_file.display(), starts.display());
    let script = format!("echo x >> {log}; while [ ! -e {go} ]; do sleep 0.01; done; exit 3");
    control.set_desired(desired_entry("short", shell(&script), 1000));
    control.set_desired(desired_entry("long", shell("sleep 300"), 1000));
    let long = control
        .wait_for_state(&id("long"), ContainerState::Running)
        .await;
    control
        .wait_for_state(&id("short"), ContainerState::Running)
        .await;
    agent.kill();
    // One container ends while no agent is running.
    std::fs::write(&go_file, "").unwrap();
    let exit_file = control.container_dir(&id("short")).join("exit.json");
    wait_for("the exit on disk", || exit_file.exists().then_some(()));
    control.change(|plane| plane.report = None);

    let _agent = Agent::start(&control, &[]);
    let short = control
        .wait_for_state(&id("short"), ContainerState::Ended)
        .await;
    assert_eq!(short.exit.unwrap().code, Some(3));
    let adopted = control
        .wait_for_state(&id("long"), ContainerState::Running)
        .await;
    assert_eq!(
        (adopted.pid, adopted.started_at),
        (long.pid, long.started_at)
    );
    assert_eq!(
        std::fs::read_to_string(&starts).unwrap(),
        "x\n",
        "the program was started once (I3)"
    );
    // The adopted container can still be stopped, and its end is reported.
    control.set_goal(&id("long"), Goal::Stop);
    let stopped = control
        .wait_for_state(&id("long"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(
        (stopped.cause, stopped.signal),
        (ExitCause::Intended, Some(15))
    );
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zeroed_journal_starts_nothing_twice() {
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[]);
    let starts = control.dir.path().join("starts");
    let script = format!("echo x >> {}; sleep 300", starts.display());
    control.set_desired(desired_entry("once", shell(&script), 1000));
    let before = control
        .wait_for_state(&id("once"), ContainerState::Running)
        .await;
    wait_for("the program has started", || starts.exists().then_some(()));
    agent.kill();
    std::fs::write(control.state_dir().join("journal"), vec![0; 500]).unwrap();
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    let after = control
        .wait_for_state(&id("once"), ContainerState::Running)
        .await;
    assert_eq!(before.pid, after.pid);
    assert_eq!(std::fs::read_to_string(&starts).unwrap(), "x\n");
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_missing_from_a_damaged_journal_end_as_launch_unknown() {
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[]);
    for name in ["one", "two", "three"] {
        control.set_desired(desired_entry(name, shell("true"), 1000));
        control
            .wait_for_state(&id(name), ContainerState::Ended)
            .await;
    }
    agent.kill();
    let path = control.state_dir().join("journal");
    let mut journal = std::fs::read(&path).unwrap();
    // A changed byte in the first line, which is followed by intact ones.
    journal[20] ^= 1;
    std::fs::write(&path, journal).unwrap();
    control.change(|plane| plane.report = None);
    control.set_desired(desired_entry("forgotten", shell("true"), 1000));
    let _agent = Agent::start(&control, &[]);
    let exit = control
        .wait_for_state(&id("forgotten"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::LaunchUnknown);
    // Later orders are not doubtful.
    control.set_desired(desired_entry("later", shell("true"), 1000));
    let exit = control
        .wait_for_state(&id("later"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success);
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_process_id_is_neither_adopted_nor_signalled() {
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("ghost", shell("exec sleep 300"), 1000));
    let ghost = control
        .wait_for_state(&id("ghost"), ContainerState::Running)
        .await;
    agent.kill();
    let dir = control.container_dir(&id("ghost"));
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(dir.join(name)).unwrap()).unwrap()
    };
    let claim = wait_for("started.json", || {
        dir.join("started.json")
            .exists()
            .then(|| read("claim.json"))
    });
    let supervisor = u32::try_from(claim["supervisor"]["pid"].as_u64().unwrap()).unwrap();
    for pid in [supervisor, ghost.pid.unwrap()] {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    // Another process gets the process id of the container's program, according to its files.
    let program_start_ticks = read("started.json")["program"]["start_ticks"]
        .as_u64()
        .unwrap();
    let mut unrelated = wait_for("a process that started later", || {
        let mut unrelated = Command::new("sleep").arg("300").spawn().unwrap();
        if start_ticks(unrelated.id()) > program_start_ticks {
            return Some(unrelated);
        }
        unrelated.kill().unwrap();
        unrelated.wait().unwrap();
        None
    });
    for (name, pointer) in [("claim.json", "/supervisor"), ("started.json", "/program")] {
        let mut content = read(name);
        content.pointer_mut(pointer).unwrap()["pid"] = unrelated.id().into();
        std::fs::write(dir.join(name), content.to_string()).unwrap();
    }
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    let exit = control
        .wait_for_state(&id("ghost"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    remove_all_entries(&control).await;
    assert!(
        unrelated.try_wait().unwrap().is_none(),
        "an unrelated process was killed"
    );
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_a_lost_supervisor_are_ended() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let child = control.dir.path().join("child");
    let script = format!("sleep 300 & echo $! > {}; sleep 300", child.display());
    control.set_desired(desired_entry("orphan", shell(&script), 1000));
    wait_for("its child", || read_pid(&child));
    let running = control
        .wait_for_state(&id("orphan"), ContainerState::Running)
        .await;
    let claim = std::fs::read(control.container_dir(&id("orphan")).join("claim.json")).unwrap();
    let claim: serde_json::Value = serde_json::from_slice(&claim).unwrap();
    let file = control.container_dir(&id("orphan")).join("started.json");
    wait_for("started.json", || file.exists().then_some(()));
    let supervisor = i32::try_from(claim["supervisor"]["pid"].as_i64().unwrap()).unwrap();
    let supervisor = nix::unistd::Pid::from_raw(supervisor);
    nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).unwrap();
    let exit = control
        .wait_for_state(&id("orphan"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    let pid = running.pid.unwrap();
    wait_for("the program's end", || (!is_alive(pid)).then_some(()));
    wait_for("its child's end", || {
        read_pid(&child).filter(|child| !is_alive(*child))
    });
    remove_all_entries(&control).await;
}

/// Returns the clock ticks from the boot to the start of a process: field 22 of its `stat` file.
fn start_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields
        .split_ascii_whitespace()
        .nth(19)
        .unwrap()
        .parse()
        .unwrap()
}
