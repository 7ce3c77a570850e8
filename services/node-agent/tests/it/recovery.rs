//! Tests of the recovery after the loss of an agent, a supervisor or a journal.

use std::process::Command;

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::ExitCause;

use crate::agent::{Agent, clear};
use crate::control::{Control, id, is_alive, number_in, shell, wait_for, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_has_lost_nothing() {
    let control = Control::start().await;
    let agent = Agent::start(&control, &[]);
    let mark = control.dir.path().join("go");
    let starts = control.dir.path().join("starts");
    let (go, log) = (mark.display(), starts.display());
    let waits = format!("echo x >> {log}; while [ ! -e {go} ]; do sleep 0.01; done; exit 3");
    control.want(wanted("short", shell(&waits), 1000));
    control.want(wanted("long", shell("sleep 300"), 1000));
    let long = control.reported(&id("long"), ContainerState::Running).await;
    control
        .reported(&id("short"), ContainerState::Running)
        .await;
    agent.kill();
    // One container ends while no agent is running.
    std::fs::write(&mark, "").unwrap();
    let exit_file = control.container_dir(&id("short")).join("exit.json");
    wait_for("the exit on disk", || exit_file.exists().then_some(()));
    control.change(|plane| plane.report = None);

    let _agent = Agent::start(&control, &[]);
    let short = control.reported(&id("short"), ContainerState::Ended).await;
    assert_eq!(short.exit.unwrap().code, Some(3));
    let adopted = control.reported(&id("long"), ContainerState::Running).await;
    assert_eq!(
        (adopted.pid, adopted.started_at),
        (long.pid, long.started_at)
    );
    assert_eq!(
        std::fs::read_to_string(&starts).unwrap(),
        "x\n",
        "I3: started once"
    );
    // The adopted container can still be stopped, and its end is reported.
    control.want_goal(&id("long"), Goal::Stop);
    let stopped = control
        .reported(&id("long"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(
        (stopped.cause, stopped.signal),
        (ExitCause::Intended, Some(15))
    );
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_journal_starts_nothing_twice() {
    let control = Control::start().await;
    let agent = Agent::start(&control, &[]);
    let starts = control.dir.path().join("starts");
    let script = format!("echo x >> {}; sleep 300", starts.display());
    control.want(wanted("once", shell(&script), 1000));
    let before = control.reported(&id("once"), ContainerState::Running).await;
    wait_for("its mark", || starts.exists().then_some(()));
    agent.kill();
    std::fs::write(control.state_dir().join("journal"), vec![0; 500]).unwrap();
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    let after = control.reported(&id("once"), ContainerState::Running).await;
    assert_eq!(before.pid, after.pid);
    assert_eq!(std::fs::read_to_string(&starts).unwrap(), "x\n");
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_missing_from_a_damaged_journal_end_as_launch_unknown() {
    let control = Control::start().await;
    let agent = Agent::start(&control, &[]);
    for name in ["one", "two", "three"] {
        control.want(wanted(name, shell("true"), 1000));
        control.reported(&id(name), ContainerState::Ended).await;
    }
    agent.kill();
    let path = control.state_dir().join("journal");
    let mut journal = std::fs::read(&path).unwrap();
    journal[20] ^= 1;
    std::fs::write(&path, journal).unwrap();
    control.change(|plane| plane.report = None);
    control.want(wanted("forgotten", shell("true"), 1000));
    let _agent = Agent::start(&control, &[]);
    let exit = control
        .reported(&id("forgotten"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::LaunchUnknown);
    // Later orders are not doubtful.
    control.want(wanted("later", shell("true"), 1000));
    let exit = control
        .reported(&id("later"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success);
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_process_id_is_neither_adopted_nor_signalled() {
    let control = Control::start().await;
    let agent = Agent::start(&control, &[]);
    control.want(wanted("ghost", shell("exec sleep 300"), 1000));
    let ghost = control
        .reported(&id("ghost"), ContainerState::Running)
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
    let program = read("started.json")["program"]["start_ticks"]
        .as_u64()
        .unwrap();
    let mut stranger = wait_for("a later tick", || {
        let mut stranger = Command::new("sleep").arg("300").spawn().unwrap();
        if started(stranger.id()) > program {
            return Some(stranger);
        }
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        None
    });
    for (name, pointer) in [("claim.json", "/supervisor"), ("started.json", "/program")] {
        let mut content = read(name);
        content.pointer_mut(pointer).unwrap()["pid"] = stranger.id().into();
        std::fs::write(dir.join(name), content.to_string()).unwrap();
    }
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    let exit = control
        .reported(&id("ghost"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    clear(&control).await;
    assert!(
        stranger.try_wait().unwrap().is_none(),
        "a stranger was killed"
    );
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_supervisor_leaves_no_orphan() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let child = control.dir.path().join("child");
    let script = format!("sleep 300 & echo $! > {}; sleep 300", child.display());
    control.want(wanted("orphan", shell(&script), 1000));
    wait_for("its child", || number_in(&child));
    let running = control
        .reported(&id("orphan"), ContainerState::Running)
        .await;
    let claim = std::fs::read(control.container_dir(&id("orphan")).join("claim.json")).unwrap();
    let claim: serde_json::Value = serde_json::from_slice(&claim).unwrap();
    let file = control.container_dir(&id("orphan")).join("started.json");
    wait_for("started.json", || file.exists().then_some(()));
    let supervisor = i32::try_from(claim["supervisor"]["pid"].as_i64().unwrap()).unwrap();
    let supervisor = nix::unistd::Pid::from_raw(supervisor);
    nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).unwrap();
    let exit = control
        .reported(&id("orphan"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    let pid = running.pid.unwrap();
    wait_for("the program's end", || (!is_alive(pid)).then_some(()));
    wait_for("its child's end", || {
        number_in(&child).filter(|child| !is_alive(*child))
    });
    clear(&control).await;
}

/// Returns the clock ticks from the boot to the start of a process.
fn started(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields
        .split_ascii_whitespace()
        .nth(19)
        .unwrap()
        .parse()
        .unwrap()
}
