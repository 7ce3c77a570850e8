//! Real agent, real supervisors, real programs.

use std::process::{Child, Command, Stdio};

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::{ExitCause, Program};

use crate::control::{Control, id, lives, number_in, shell, shown, wait_for, wanted};

/// An agent that is killed with the test.
pub struct Agent(pub Child);

impl Agent {
    pub fn start(control: &Control, more: &[(&str, &str)]) -> Self {
        Self::run(control, &[], more)
    }

    /// The same, started by the last of these words, which is followed by the agent's command line.
    pub fn start_by(control: &Control, words: &[&str]) -> Self {
        Self::run(control, words, &[])
    }

    fn run(control: &Control, before: &[&str], more: &[(&str, &str)]) -> Self {
        let words = [before, &[env!("CARGO_BIN_EXE_hayward-node-agent"), "agent"]].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("HAYWARD_NODE", "node-1")
            .env("HAYWARD_TOKEN_FILE", control.token_file())
            .env("HAYWARD_STATE_DIR", control.state_dir())
            .env("HAYWARD_NODE_STATUS_URL", &control.url)
            .env("HAYWARD_CONTAINER_MANAGER_URL", &control.url)
            .env("HAYWARD_JOB_CONVERTER_URL", &control.url)
            .env("HAYWARD_CGROUP_ROOT", "none")
            .env("HAYWARD_LOG_FILTER", "warn")
            .envs(more.iter().copied())
            .stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn terminate(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes all wishes away, so that nothing is left running behind a test.
pub async fn clear(control: &Control) {
    control.change(|world| world.desired.clear());
    let empty = |world: &crate::control::World| {
        world
            .report
            .as_ref()
            .is_some_and(|report| report.containers.is_empty())
    };
    control.until("nothing left", empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exits_are_kept_and_forgotten_with_their_entries() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    control.want(wanted(
        "code",
        shell("echo $COLOUR $HAYWARD_ALLOCATION; echo $0 >&2; exit 7"),
        1,
    ));
    control.want(wanted("good", shell("true"), 1));
    control.want(wanted("signal", shell("kill -9 $$"), 1));
    let missing = Program::Command {
        argv: vec!["/nonexistent/program".into()],
    };
    control.want(wanted("missing", missing, 1));

    let code = control.reported(&id("code"), ContainerState::Ended).await;
    let exit = code.exit.unwrap();
    assert_eq!((exit.cause, exit.code), (ExitCause::UserError, Some(7)));
    assert!(code.started_at.is_some() && code.pid.is_some() && exit.ended_at.is_some());
    assert_eq!(
        exit.message.unwrap(),
        "its last words: red alc_code / /bin/sh",
        "W13"
    );
    let good = control
        .reported(&id("good"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!((good.cause, good.code), (ExitCause::Success, Some(0)));
    let signal = control
        .reported(&id("signal"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(
        (signal.cause, signal.signal),
        (ExitCause::UserError, Some(9))
    );
    let missing = control
        .reported(&id("missing"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(missing.cause, ExitCause::LaunchFailed);
    let said = |world: &crate::control::World| {
        world
            .output
            .get(&id("code"))
            .is_some_and(|text| text == "red alc_code\n/bin/sh\n")
    };
    control.until("its output", said).await;

    let beat = |world: &crate::control::World| {
        world
            .heartbeats
            .iter()
            .any(|beat| beat.inventory.capacity.memory_bytes > 0)
    };
    let world = control.until("a heartbeat", beat).await;
    assert_eq!(
        world.heartbeats[0].inventory.labels["hayward.limits"],
        "none"
    );
    assert_eq!(world.heartbeats[0].inventory.runtimes, ["process"]);
    clear(&control).await;
    assert!(!control.container_dir(&id("code")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn f26_a_killed_agent_loses_nothing() {
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
    // One ends while no agent looks.
    std::fs::write(&mark, "").unwrap();
    let exit_file = control.container_dir(&id("short")).join("exit.json");
    wait_for("the exit on disk", || exit_file.exists().then_some(()));
    control.change(|world| world.report = None);

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
    // The adopted one still obeys, and its end is heard.
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
async fn a_stop_is_gentle_first_and_then_is_not() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let ready = |name: &str| control.dir.path().join(name);
    let gentle = format!(
        "trap 'exit 5' TERM; : > {}; while :; do sleep 0.01; done",
        ready("a").display()
    );
    let deaf = format!(
        "trap '' TERM; : > {}; while :; do sleep 0.01; done",
        ready("b").display()
    );
    control.want(wanted("gentle", shell(&gentle), 30_000));
    control.want(wanted("deaf", shell(&deaf), 100));
    for name in ["a", "b"] {
        wait_for(name, || ready(name).exists().then_some(()));
    }
    control.want_goal(&id("gentle"), Goal::Stop);
    control.want_goal(&id("deaf"), Goal::Stop);
    let gentle = control
        .reported(&id("gentle"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!((gentle.cause, gentle.code), (ExitCause::Intended, Some(5)));
    let deaf = control
        .reported(&id("deaf"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!((deaf.cause, deaf.signal), (ExitCause::Intended, Some(9)));
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn children_in_sessions_of_their_own_end_with_their_container() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let file = control.dir.path().join("pid");
    let script = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 300' & \
         while [ ! -e {0} ]; do sleep 0.01; done",
        file.display()
    );
    control.want(wanted("parent", shell(&script), 1000));
    let exit = control
        .reported(&id("parent"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success);
    assert!(
        !lives(number_in(&file).unwrap()),
        "I17: ended means nothing is left"
    );
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f36_a_flood_of_output_is_cut_and_does_not_hold_the_program_up() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[("HAYWARD_OUTPUT_LIMIT_BYTES", "1000")]);
    control.want(wanted(
        "flood",
        shell("head -c 5000000 /dev/zero | tr '\\0' x; exit 4"),
        1000,
    ));
    let exit = control
        .reported(&id("flood"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.code, Some(4));
    let kept = std::fs::read_to_string(control.container_dir(&id("flood")).join("output")).unwrap();
    assert!(kept.starts_with(&"x".repeat(1000)) && kept.contains("the rest is dropped"));
    assert!(kept.len() < 1100);
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f30_a_journal_cut_short_starts_nothing_twice() {
    let control = Control::start().await;
    let agent = Agent::start(&control, &[]);
    let starts = control.dir.path().join("starts");
    let script = format!("echo x >> {}; sleep 300", starts.display());
    control.want(wanted("once", shell(&script), 1000));
    let before = control.reported(&id("once"), ContainerState::Running).await;
    wait_for("its mark", || starts.exists().then_some(()));
    agent.kill();
    std::fs::write(control.state_dir().join("journal"), vec![0; 500]).unwrap();
    control.change(|world| world.report = None);
    let _agent = Agent::start(&control, &[]);
    let after = control.reported(&id("once"), ContainerState::Running).await;
    assert_eq!(before.pid, after.pid);
    assert_eq!(std::fs::read_to_string(&starts).unwrap(), "x\n");
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f30_what_a_damaged_journal_forgot_is_launch_unknown() {
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
    control.change(|world| world.report = None);
    control.want(wanted("forgotten", shell("true"), 1000));
    let _agent = Agent::start(&control, &[]);
    let exit = control
        .reported(&id("forgotten"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::LaunchUnknown);
    // What is ordered later is no longer in doubt.
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
async fn r10_a_number_used_again_is_neither_adopted_nor_signalled() {
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
    // A stranger gets the number the container's program had, as far as its files can tell.
    // Numbers do not come round within one tick of the kernel's clock; here they could.
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
    control.change(|world| world.report = None);
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
    wait_for("the program's end", || (!lives(pid)).then_some(()));
    wait_for("its child's end", || {
        number_in(&child).filter(|child| !lives(*child))
    });
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ending_agent_leaves_containers_alone_unless_told() {
    let control = Control::start().await;
    let agent = Agent::start(&control, &[]);
    control.want(wanted("stays", shell("sleep 300"), 1000));
    let pid = control
        .reported(&id("stays"), ContainerState::Running)
        .await
        .pid
        .unwrap();
    agent.terminate();
    assert!(lives(pid));
    control.change(|world| world.report = None);
    let agent = Agent::start(&control, &[("HAYWARD_END_CONTAINERS_ON_EXIT", "true")]);
    control
        .reported(&id("stays"), ContainerState::Running)
        .await;
    agent.terminate();
    assert!(!lives(pid));
    let last = control.world.borrow().clone();
    assert_eq!(
        shown(&last, &id("stays")).unwrap().state,
        ContainerState::Ended
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_wish_holds_and_an_older_epoch_is_refused() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let mut entry = wanted("held", shell("sleep 300"), 1000);
    entry.epoch = 5;
    control.want(entry.clone());
    control.reported(&id("held"), ContainerState::Running).await;
    let mut old = entry.clone();
    (old.epoch, old.goal) = (4, Goal::Stop);
    control.want(old);
    // Something else that is done afterwards shows that the order was read and refused.
    control.want(wanted("after", shell("true"), 1000));
    control.reported(&id("after"), ContainerState::Ended).await;
    assert_eq!(
        shown(&control.world.borrow(), &id("held")).unwrap().state,
        ContainerState::Running
    );
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_signal_is_blocked_in_the_program() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let mask = control.dir.path().join("mask");
    let script = format!("grep SigBlk /proc/self/status > {}", mask.display());
    control.want(wanted("mask", shell(&script), 1000));
    control.reported(&id("mask"), ContainerState::Ended).await;
    let mask = std::fs::read_to_string(mask).unwrap();
    assert!(mask.trim().ends_with("0000000000000000"), "{mask}");
    clear(&control).await;
}

/// Clock ticks from the boot to the start of a process.
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
