//! Tests of processes that cannot be killed, and of launches that hang (F31).

use std::path::{Path, PathBuf};

use hayward_container_manager_api::{ContainerReport, ContainerState, Goal};
use hayward_vocabulary::ExitCause;

use crate::agent::{Agent, clear};
use crate::control::{Control, ControlState, id, is_alive, report_of, shell, wait_for, wanted};

/// Cgroup of frozen processes, which do not end even when killed. It needs cgroups of version 1.
struct Frozen(PathBuf);

impl Frozen {
    fn new(name: &str) -> Option<Self> {
        let group = Path::new("/sys/fs/cgroup/freezer").join(name);
        if let Err(error) = std::fs::create_dir(&group) {
            eprintln!("skipped: nothing can be frozen here: {error}");
            return None;
        }
        Some(Self(group))
    }

    fn freeze(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        self.set("FROZEN");
        wait_for("it is frozen", || {
            let state = std::fs::read_to_string(self.0.join("freezer.state")).unwrap();
            (state.trim() == "FROZEN").then_some(())
        });
    }

    fn set(&self, state: &str) {
        std::fs::write(self.0.join("freezer.state"), state).unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.set("THAWED");
        wait_for("nobody is in it", || std::fs::remove_dir(&self.0).ok());
    }
}

async fn stuck(control: &Control, name: &str) -> ContainerReport {
    let has_reason =
        |plane: &ControlState| report_of(plane, &id(name)).is_some_and(|it| it.reason.is_some());
    let plane = control
        .until("it says why it does not end", has_reason)
        .await;
    report_of(&plane, &id(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_cannot_be_killed_stays_stopping_with_a_reason() {
    let name = format!("hayward-test-{}", std::process::id());
    let Some(frozen) = Frozen::new(&name) else {
        return;
    };
    let control = Control::start().await;
    let agent = Agent::start(&control, &[]);
    let deaf = control.dir.path().join("deaf");
    let script = format!("trap '' TERM; : > {}; exec sleep 300", deaf.display());
    control.want(wanted("hard", shell(&script), 100));
    let running = control.reported(&id("hard"), ContainerState::Running).await;
    wait_for("it hears nothing", || deaf.exists().then_some(()));
    let pid = running.pid.unwrap();
    frozen.freeze(pid);
    control.want_goal(&id("hard"), Goal::Stop);
    let shown = stuck(&control, "hard").await;
    assert_eq!(
        (shown.state, shown.pid),
        (ContainerState::Stopping, Some(pid))
    );
    let why = shown.reason.unwrap();
    assert!(
        why.contains("does not end") && why.contains(&pid.to_string()),
        "{why}"
    );
    let reported = |plane: &ControlState| {
        let beat = plane.heartbeats.last();
        beat.and_then(|beat| beat.quiesce_reason.clone())
            .is_some_and(|why| why.contains("alc_hard cannot be ended"))
    };
    control
        .until("the node asks for no more work", reported)
        .await;
    // After a restart of the agent the container still counts as stopping.
    agent.kill();
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    let shown = stuck(&control, "hard").await;
    assert_eq!(shown.state, ContainerState::Stopping);
    assert!(is_alive(pid) && !control.plane.borrow().ends.contains_key(&(id("hard"), 1)));
    frozen.set("THAWED");
    let exit = control
        .reported(&id("hard"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!((exit.cause, exit.signal), (ExitCause::Intended, Some(9)));
    assert!(!is_alive(pid));
    clear(&control).await;
}

/// Leftovers of a lost supervisor keep the container alive as well (I17).
#[tokio::test(flavor = "multi_thread")]
async fn leftovers_that_cannot_be_killed_do_not_count_as_ended() {
    let name = format!("hayward-test-lost-{}", std::process::id());
    let Some(frozen) = Frozen::new(&name) else {
        return;
    };
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    control.want(wanted("hard", shell("exec sleep 300"), 100));
    let running = control.reported(&id("hard"), ContainerState::Running).await;
    let dir = control.container_dir(&id("hard"));
    wait_for("it is noted", || {
        dir.join("started.json").exists().then_some(())
    });
    frozen.freeze(running.pid.unwrap());
    let claim = std::fs::read(dir.join("claim.json")).unwrap();
    let claim: serde_json::Value = serde_json::from_slice(&claim).unwrap();
    let supervisor = i32::try_from(claim["supervisor"]["pid"].as_i64().unwrap()).unwrap();
    let supervisor = nix::unistd::Pid::from_raw(supervisor);
    nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).unwrap();
    let shown = stuck(&control, "hard").await;
    assert_eq!(shown.state, ContainerState::Stopping);
    frozen.set("THAWED");
    let exit = control
        .reported(&id("hard"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_launch_fails_after_its_limit() {
    let control = Control::start().await;
    let more = [
        ("HAYWARD_COMMAND", r#"["/bin/sh", "-c", "sleep 300"]"#),
        ("HAYWARD_LAUNCH_LIMIT_MS", "300"),
    ];
    let _agent = Agent::start(&control, &more);
    control.want(wanted("hangs", shell("true"), 100));
    let exit = control
        .reported(&id("hangs"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node, "{exit:?}");
    assert_eq!(exit.cause_code.as_deref(), Some("runtime_down"));
    clear(&control).await;
}
