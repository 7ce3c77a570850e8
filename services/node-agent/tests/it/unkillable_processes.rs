//! Tests of processes that cannot be killed, and of launches that hang (F31).

use std::path::{Path, PathBuf};

use hayward_container_manager_api::{ContainerReport, ContainerState, Goal};
use hayward_vocabulary::ExitCause;

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, find_report, id, is_alive, shell, wait_for,
};

/// Cgroup that freezes its processes, so that they do not end even when killed. This needs cgroups
/// of version 1.
struct FreezerCgroup(PathBuf);

impl FreezerCgroup {
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
        self.set_state("FROZEN");
        wait_for("the process is frozen", || {
            let state = std::fs::read_to_string(self.0.join("freezer.state")).unwrap();
            (state.trim() == "FROZEN").then_some(())
        });
    }

    fn set_state(&self, state: &str) {
        std::fs::write(self.0.join("freezer.state"), state).unwrap();
    }
}

impl Drop for FreezerCgroup {
    fn drop(&mut self) {
        self.set_state("THAWED");
        wait_for("the cgroup is empty", || std::fs::remove_dir(&self.0).ok());
    }
}

async fn wait_until_stuck(control: &FakeControlPlane, name: &str) -> ContainerReport {
    let has_reason = |plane: &ControlPlaneState| {
        find_report(plane, &id(name)).is_some_and(|report| report.reason.is_some())
    };
    let plane = control
        .wait_until("the report says why the container does not end", has_reason)
        .await;
    find_report(&plane, &id(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_cannot_be_killed_stays_stopping_with_a_reason() {
    let name = format!("hayward-test-{}", std::process::id());
    let Some(freezer) = FreezerCgroup::new(&name) else {
        return;
    };
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[]);
    let trap_set = control.dir.path().join("trap-set");
    let script = format!("trap '' TERM; : > {}; exec sleep 300", trap_set.display());
    control.set_desired(desired_entry("hard", shell(&script), 100));
    let running = control
        .wait_for_state(&id("hard"), ContainerState::Running)
        .await;
    wait_for("the program ignores SIGTERM", || {
        trap_set.exists().then_some(())
    });
    let pid = running.pid.unwrap();
    freezer.freeze(pid);
    control.set_goal(&id("hard"), Goal::Stop);
    let report = wait_until_stuck(&control, "hard").await;
    assert_eq!(
        (report.state, report.pid),
        (ContainerState::Stopping, Some(pid))
    );
    let reason = report.reason.unwrap();
    assert!(
        reason.contains("does not end") && reason.contains(&pid.to_string()),
        "{reason}"
    );
    let is_quiesced = |plane: &ControlPlaneState| {
        let heartbeat = plane.heartbeats.last();
        heartbeat
            .and_then(|heartbeat| heartbeat.quiesce_reason.clone())
            .is_some_and(|reason| reason.contains("alc_hard cannot be ended"))
    };
    control
        .wait_until("the node asks for no more work", is_quiesced)
        .await;
    // After a restart of the agent the container still counts as stopping.
    agent.kill();
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    let report = wait_until_stuck(&control, "hard").await;
    assert_eq!(report.state, ContainerState::Stopping);
    assert!(is_alive(pid) && !control.state.borrow().ends.contains_key(&(id("hard"), 1)));
    freezer.set_state("THAWED");
    let exit = control
        .wait_for_state(&id("hard"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!((exit.cause, exit.signal), (ExitCause::Intended, Some(9)));
    assert!(!is_alive(pid));
    remove_all_entries(&control).await;
}

/// Leftovers of a lost supervisor keep the container alive as well (I17).
#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_an_unkillable_process_and_no_supervisor_does_not_count_as_ended() {
    let name = format!("hayward-test-lost-{}", std::process::id());
    let Some(freezer) = FreezerCgroup::new(&name) else {
        return;
    };
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("hard", shell("exec sleep 300"), 100));
    let running = control
        .wait_for_state(&id("hard"), ContainerState::Running)
        .await;
    let dir = control.container_dir(&id("hard"));
    wait_for("the start is on disk", || {
        dir.join("started.json").exists().then_some(())
    });
    freezer.freeze(running.pid.unwrap());
    let claim = std::fs::read(dir.join("claim.json")).unwrap();
    let claim: serde_json::Value = serde_json::from_slice(&claim).unwrap();
    let supervisor = i32::try_from(claim["supervisor"]["pid"].as_i64().unwrap()).unwrap();
    let supervisor = nix::unistd::Pid::from_raw(supervisor);
    nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).unwrap();
    let report = wait_until_stuck(&control, "hard").await;
    assert_eq!(report.state, ContainerState::Stopping);
    freezer.set_state("THAWED");
    let exit = control
        .wait_for_state(&id("hard"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_launch_fails_after_its_limit() {
    let control = FakeControlPlane::start().await;
    let extra_variables = [
        ("HAYWARD_COMMAND", r#"["/bin/sh", "-c", "sleep 300"]"#),
        ("HAYWARD_LAUNCH_LIMIT_MS", "300"),
    ];
    let _agent = Agent::start(&control, &extra_variables);
    control.set_desired(desired_entry("hangs", shell("true"), 100));
    let exit = control
        .wait_for_state(&id("hangs"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node, "{exit:?}");
    assert_eq!(exit.cause_code.as_deref(), Some("runtime_down"));
    remove_all_entries(&control).await;
}
