//! Tests of restarts of the agent: what it recovers, and what it does not start in doubt (I3).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::{Exit, ExitCause};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, find_report, id, is_alive, read_pid, shell,
    wait_for,
};

/// Number of running containers in the measurement of adoption.
const CONTAINERS: usize = 50;
/// Number of kills and restarts of the agent in that measurement.
const ROUNDS: usize = 10;

/// Returns a script that appends its process id to a file at each start, and that file.
fn recording_script(
    control: &FakeControlPlane,
    name: &str,
    command: &str,
) -> (String, std::path::PathBuf) {
    let file = control.dir.path().join(format!("{name}.starts"));
    (format!("echo $$ >> {}; {command}", file.display()), file)
}

fn starts_in(file: &Path) -> usize {
    std::fs::read_to_string(file)
        .unwrap_or_default()
        .lines()
        .count()
}

fn read_json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn kill_pid(pid: &serde_json::Value) {
    let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// Kills all processes of a container at once, as in a power failure.
fn kill_all_processes(control: &FakeControlPlane, name: &str) {
    let dir = control.container_dir(&id(name));
    kill_pid(&read_json(&dir.join("claim.json"))["supervisor"]["pid"]);
    kill_pid(&read_json(&dir.join("started.json"))["program"]["pid"]);
}

async fn wait_for_exit(control: &FakeControlPlane, name: &str) -> Exit {
    let report = control
        .wait_for_state(&id(name), ContainerState::Ended)
        .await;
    report.exit.unwrap()
}

/// Measures the time from the kill until all running containers are known again.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_containers_are_adopted_after_each_kill_of_the_agent() {
    let control = FakeControlPlane::start().await;
    let mut agent = Agent::start(&control, &[]);
    let names: Vec<String> = (0..CONTAINERS).map(|number| format!("n{number}")).collect();
    let mut files = Vec::new();
    for name in &names {
        let (script, file) = recording_script(&control, name, "exec sleep 300");
        control.set_desired(desired_entry(name, shell(&script), 1000));
        files.push(file);
    }
    let all_run = |plane: &ControlPlaneState| {
        let is_running = |name: &String| {
            find_report(plane, &id(name))
                .is_some_and(|report| report.state == ContainerState::Running)
        };
        names.iter().all(is_running)
    };
    let pids = |plane: &ControlPlaneState| -> Vec<Option<u32>> {
        let pid = |name: &String| find_report(plane, &id(name)).and_then(|report| report.pid);
        names.iter().map(pid).collect()
    };
    let before = pids(&control.wait_until("all run", all_run).await);
    wait_for("all have begun", || {
        files.iter().all(|file| starts_in(file) > 0).then_some(())
    });
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let started_at = Instant::now();
        agent.kill();
        control.change(|plane| plane.report = None);
        agent = Agent::start(&control, &[]);
        let plane = control.wait_until("all are known again", all_run).await;
        times.push(started_at.elapsed());
        assert_eq!(pids(&plane), before, "no program was restarted or killed");
    }
    times.sort_unstable();
    let (median, worst) = (times[ROUNDS / 2], times[ROUNDS - 1]);
    println!(
        "G4: {CONTAINERS} containers, kill -9 of the agent to all re-adopted, {ROUNDS} times: \
         p50 {} ms, worst {} ms",
        median.as_millis(),
        worst.as_millis()
    );
    assert!(
        files.iter().all(|file| starts_in(file) == 1),
        "each program was started once (I3)"
    );
    assert!(before.iter().all(|pid| is_alive(pid.unwrap())));
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_nothing_is_started_again_with_or_without_a_journal() {
    for with_journal in [true, false] {
        let control = FakeControlPlane::start().await;
        let agent = Agent::start(&control, &[]);
        let (script, file) = recording_script(&control, "ran", "exec sleep 300");
        control.set_desired(desired_entry("ran", shell(&script), 1000));
        control
            .wait_for_state(&id("ran"), ContainerState::Running)
            .await;
        let dir = control.container_dir(&id("ran"));
        wait_for("the start is on disk", || {
            dir.join("started.json").exists().then_some(())
        });
        wait_for("the program has started", || {
            (starts_in(&file) == 1).then_some(())
        });
        agent.kill();
        kill_all_processes(&control, "ran");
        if !with_journal {
            std::fs::remove_file(control.state_dir().join("journal")).unwrap();
        }
        // This container was ordered while the node was down. The agent must not start it, because
        // with a restored disk an earlier agent may have started it.
        control.set_desired(desired_entry("meanwhile", shell("true"), 1000));
        control.change(|plane| plane.report = None);
        let later = [("FAULT_BOOT", "later")];
        let agent = Agent::start(&control, &later);
        assert_eq!(
            wait_for_exit(&control, "ran").await.cause,
            ExitCause::Node,
            "journal: {with_journal}"
        );
        let exit = wait_for_exit(&control, "meanwhile").await;
        assert_eq!(
            exit.cause,
            ExitCause::LaunchUnknown,
            "journal: {with_journal}"
        );
        assert_eq!(starts_in(&file), 1, "the program was started once (I3)");
        control.set_desired(desired_entry("later", shell("true"), 1000));
        assert_eq!(
            wait_for_exit(&control, "later").await.cause,
            ExitCause::Success
        );
        remove_all_entries(&control).await;
        drop(agent);
    }
}

/// The state directory is lost while work runs. Processes are found by their marks, ended, and not
/// started again (F30).
#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_a_lost_disk_are_ended_and_other_processes_are_not() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: programs of the agent's own account look like unrelated processes");
        return;
    }
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[]);
    let (held, held_file) = recording_script(&control, "held", "exec sleep 300");
    // The supervisor of `fled` is lost too, and its child has left its process group and session.
    // The program must stay alive. Otherwise its supervisor would end the child first.
    let (leaving_script, fled_file) = recording_script(&control, "fled", "exec sleep 300");
    let fled_script = format!("setsid sh -c '{leaving_script}' & wait");
    for (name, script) in [("held", &held), ("fled", &fled_script)] {
        control.set_desired(desired_entry(name, shell(script), 200));
        control
            .wait_for_state(&id(name), ContainerState::Running)
            .await;
    }
    let pids = [&held_file, &fled_file].map(|file| wait_for("its start", || read_pid(file)));
    let fled_dir = control.container_dir(&id("fled"));
    wait_for("the start is on disk", || {
        fled_dir.join("started.json").exists().then_some(())
    });
    agent.kill();
    kill_pid(&read_json(&fled_dir.join("claim.json"))["supervisor"]["pid"]);
    std::fs::remove_dir_all(control.state_dir()).unwrap();
    // Other processes have the same arguments in another folder, or the mark on a system process.
    let other = control.dir.path().join("elsewhere/containers/alc_held");
    let mut unrelated_processes = [
        Command::new("sh")
            .args(["-c", "exec sleep 300", "supervise"])
            .arg(&other)
            .arg("1")
            .spawn(),
        Command::new("sleep")
            .arg("300")
            .env("HAYWARD_CONTAINER", fled_dir.join("1"))
            .spawn(),
    ]
    .map(Result::unwrap);
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    for (name, pid) in [("held", pids[0]), ("fled", pids[1])] {
        let exit = wait_for_exit(&control, name).await;
        let is_node_or_unknown = matches!(exit.cause, ExitCause::Node | ExitCause::LaunchUnknown);
        assert!(is_node_or_unknown, "{name}: {exit:?}");
        assert!(!is_alive(pid), "I17: {name} has ended and is alive");
    }
    let start_counts = [&held_file, &fled_file].map(|file| starts_in(file));
    assert_eq!(start_counts, [1, 1], "each program was started once (I3)");
    for unrelated in &mut unrelated_processes {
        let status = unrelated.try_wait().unwrap();
        assert!(status.is_none(), "an unrelated process was killed");
        unrelated.kill().unwrap();
        unrelated.wait().unwrap();
    }
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_lost_journal_does_not_start_earlier_orders() {
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("before", shell("true"), 1000));
    wait_for_exit(&control, "before").await;
    agent.kill();
    std::fs::remove_dir_all(control.state_dir()).unwrap();
    control.change(|plane| {
        plane.report = None;
        plane.heartbeats.clear();
    });
    let _agent = Agent::start(&control, &[]);
    let exit = wait_for_exit(&control, "before").await;
    assert_eq!(exit.cause, ExitCause::LaunchUnknown);
    assert!(
        exit.message
            .unwrap()
            .contains("journal of its node was lost")
    );
    remove_all_entries(&control).await;
}

/// An older set changes nothing, even after a restart. A set of another history starts nothing
/// unknown (I7).
#[tokio::test(flavor = "multi_thread")]
async fn older_orders_are_ignored_and_orders_of_another_history_are_not_started() {
    let control = FakeControlPlane::start().await;
    let cursor = |lineage: u32, revision: u64| {
        Some(format!(
            "0190b5a0c5f47c5e8f3c00000000000{lineage}-{revision}"
        ))
    };
    control.change(|plane| plane.cursor = cursor(1, 50));
    let agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("running", shell("sleep 300"), 1000));
    control
        .wait_for_state(&id("running"), ContainerState::Running)
        .await;
    agent.kill();
    std::fs::remove_file(control.state_dir().join("position")).unwrap();
    // The restored database lacks the running container and contains one that ended long ago.
    control.change(|plane| {
        plane.cursor = cursor(1, 40);
        plane.report = None;
        plane.desired.remove(id("running").as_str());
    });
    control.set_desired(desired_entry("old", shell("sleep 300"), 1000));
    let agent = Agent::start(&control, &[]);
    let requests_before = control.state.borrow().desired_requests;
    let has_polled = |plane: &ControlPlaneState| {
        plane.desired_requests > requests_before + 2 && plane.report.is_some()
    };
    let plane = control
        .wait_until("the agent has polled several times", has_polled)
        .await;
    assert_eq!(
        find_report(&plane, &id("running")).unwrap().state,
        ContainerState::Running
    );
    assert!(
        find_report(&plane, &id("old")).is_none(),
        "an old order was obeyed"
    );
    agent.kill();
    control.change(|plane| {
        plane.cursor = cursor(2, 1);
        plane.report = None;
    });
    control.set_desired(desired_entry("running", shell("sleep 300"), 1000));
    let _agent = Agent::start(&control, &[]);
    assert_eq!(
        wait_for_exit(&control, "old").await.cause,
        ExitCause::LaunchUnknown
    );
    control
        .wait_for_state(&id("running"), ContainerState::Running)
        .await;
    control.set_goal(&id("running"), Goal::Stop);
    assert_eq!(
        wait_for_exit(&control, "running").await.cause,
        ExitCause::Intended
    );
    control.change(|plane| plane.cursor = cursor(2, 2));
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_never_share_a_state_directory() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let started_at = Instant::now();
    let second = Command::new(env!("CARGO_BIN_EXE_hayward-node-agent"))
        .env("HAYWARD_NODE", "node-1")
        .env("HAYWARD_TOKEN_FILE", control.token_file())
        .env("HAYWARD_STATE_DIR", control.state_dir())
        .env("HAYWARD_CGROUP_ROOT", "none")
        .output()
        .unwrap();
    assert!(!second.status.success() && started_at.elapsed() < Duration::from_secs(30));
    let message = String::from_utf8_lossy(&second.stderr);
    assert!(message.contains("another agent runs in"), "{message}");
}
