//! Tests that exclusive work ends when the lease of its node expires, whatever happens to the agent
//! (I4).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hayward_container_manager_api::{ContainerState, DesiredEntry, Goal};
use hayward_vocabulary::ExitCause;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, find_report, id, is_alive, read_pid, shell,
    wait_for,
};

/// Length of a lease in milliseconds: long enough for a renewal on a busy machine, and short enough
/// to wait for its end.
const LEASE_MS: u64 = 3_000;

fn exclusive_entry(name: &str, script: &str) -> DesiredEntry {
    DesiredEntry {
        exclusive: true,
        ..desired_entry(name, shell(script), 60_000)
    }
}

async fn start_control_with_lease() -> FakeControlPlane {
    let control = FakeControlPlane::start().await;
    control.change(|plane| plane.node_lease_ms = Some(LEASE_MS));
    control
}

fn signal(agent: &Agent, signal: Signal) {
    let pid = i32::try_from(agent.0.id()).unwrap();
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Returns a script that records its starts and its process id, and the files of both.
fn counting_script(control: &FakeControlPlane, name: &str) -> (String, PathBuf, PathBuf) {
    let path = |suffix: &str| control.dir.path().join(format!("{name}.{suffix}"));
    let (starts, pid) = (path("starts"), path("pid"));
    let script = format!(
        "echo x >> {}; echo $$ > {}; exec sleep 300",
        starts.display(),
        pid.display()
    );
    (script, starts, pid)
}

/// Runs the exclusive container `alone` and the ordinary container `other`, and disturbs the agent.
/// Returns the time from then until `alone` has ended.
async fn time_until_end_after(
    control: &FakeControlPlane,
    agent: &Agent,
    disturb: impl FnOnce(&FakeControlPlane, &Agent),
) -> Duration {
    let (script, starts, pid) = counting_script(control, "alone");
    control.set_desired(exclusive_entry("alone", &script));
    let (other_script, _, other_pid) = counting_script(control, "other");
    control.set_desired(desired_entry("other", shell(&other_script), 1_000));
    control
        .wait_for_state(&id("alone"), ContainerState::Running)
        .await;
    control
        .wait_for_state(&id("other"), ContainerState::Running)
        .await;
    let pid = wait_for("its process id", || read_pid(&pid));
    let other_pid = wait_for("the other process id", || read_pid(&other_pid));
    // With renewals, exclusive work runs for longer than one lease.
    let heartbeat_count = control.state.borrow().heartbeats.len() + 20;
    let has_many_heartbeats = |plane: &ControlPlaneState| plane.heartbeats.len() > heartbeat_count;
    control
        .wait_until("many heartbeats", has_many_heartbeats)
        .await;
    assert!(is_alive(pid));
    let started_at = Instant::now();
    disturb(control, agent);
    wait_for("its end", || (!is_alive(pid)).then_some(()));
    assert!(
        is_alive(other_pid),
        "ordinary work does not end with the lease (G6)"
    );
    assert_eq!(std::fs::read_to_string(starts).unwrap(), "x\n");
    started_at.elapsed()
}

/// Checks that the end came in time, with a margin for a busy machine.
fn assert_within_lease(elapsed: Duration) {
    assert!(
        elapsed < Duration::from_millis(LEASE_MS + 1_500),
        "{elapsed:?}"
    );
}

async fn assert_ended_by_lease(control: &FakeControlPlane) {
    let report = control
        .wait_for_state(&id("alone"), ContainerState::Ended)
        .await;
    let exit = report.exit.unwrap();
    assert_eq!(exit.cause, ExitCause::Node, "{exit:?}");
    assert!(exit.message.unwrap().contains("lease"));
    // The work stays ended while it is still desired, even when the lease returns (I3).
    let starts = control.dir.path().join("alone.starts");
    let heartbeat_count = control.state.borrow().heartbeats.len() + 5;
    let has_more_heartbeats = |plane: &ControlPlaneState| plane.heartbeats.len() > heartbeat_count;
    control.wait_until("heartbeats", has_more_heartbeats).await;
    assert_eq!(std::fs::read_to_string(starts).unwrap(), "x\n");
    remove_all_entries(control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_ends_with_the_lease_while_the_agent_is_frozen() {
    let control = start_control_with_lease().await;
    let agent = Agent::start(&control, &[]);
    let elapsed =
        time_until_end_after(&control, &agent, |_, agent| signal(agent, Signal::SIGSTOP)).await;
    assert_within_lease(elapsed);
    signal(&agent, Signal::SIGCONT);
    assert_ended_by_lease(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_ends_with_the_lease_after_the_agent_was_killed() {
    let control = start_control_with_lease().await;
    let agent = Agent::start(&control, &[]);
    let elapsed =
        time_until_end_after(&control, &agent, |_, agent| signal(agent, Signal::SIGKILL)).await;
    assert_within_lease(elapsed);
    drop(agent);
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    assert_ended_by_lease(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_ends_without_answers_and_with_a_damaged_lease_file() {
    let control = start_control_with_lease().await;
    let agent = Agent::start(&control, &[]);
    let elapsed = time_until_end_after(&control, &agent, |control, _| {
        control.change(|plane| plane.node_status_down = true);
        // The last valid lease still counts.
        std::fs::write(control.state_dir().join("lease"), "{").unwrap();
    });
    assert_within_lease(elapsed.await);
    control.change(|plane| plane.node_status_down = false);
    assert_ended_by_lease(&control).await;
}

/// SIGTERM is sent a tenth of the lease before the lease ends, and SIGKILL at the end.
#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_gets_sigterm_before_its_lease_ends_and_is_then_killed() {
    let control = start_control_with_lease().await;
    let agent = Agent::start(&control, &[]);
    let path = |name: &str| control.dir.path().join(name);
    let (signal_received, pid) = (path("received"), path("pid"));
    let ignoring_script = format!(
        "trap ': > {}' TERM; echo $$ > {}; while :; do sleep 0.01; done",
        signal_received.display(),
        pid.display()
    );
    control.set_desired(exclusive_entry("alone", &ignoring_script));
    let pid = wait_for("its process id", || read_pid(&pid));
    signal(&agent, Signal::SIGSTOP);
    wait_for("its end", || (!is_alive(pid)).then_some(()));
    assert!(
        signal_received.exists(),
        "the program received SIGTERM before it was killed"
    );
    signal(&agent, Signal::SIGCONT);
    let ended = control
        .wait_for_state(&id("alone"), ContainerState::Ended)
        .await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Node);
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_does_not_start_without_a_lease_or_after_an_expired_one() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let (script, starts, _) = counting_script(&control, "alone");
    control.set_desired(exclusive_entry("alone", &script));
    control.set_desired(desired_entry("other", shell("sleep 300"), 1));
    // The other container is reported, so the agent has received both.
    control
        .wait_for_state(&id("other"), ContainerState::Running)
        .await;
    let heartbeat_count = control.state.borrow().heartbeats.len() + 5;
    let has_more_heartbeats = |plane: &ControlPlaneState| plane.heartbeats.len() > heartbeat_count;
    let plane = control.wait_until("heartbeats", has_more_heartbeats).await;
    assert!(find_report(&plane, &id("alone")).is_none() && !starts.exists());
    control.change(|plane| plane.node_lease_ms = Some(LEASE_MS));
    control
        .wait_for_state(&id("alone"), ContainerState::Running)
        .await;

    // A second container is ordered after the end of the lease. The lease returns later.
    control.change(|plane| plane.node_status_down = true);
    control
        .wait_for_state(&id("alone"), ContainerState::Ended)
        .await;
    let (script, late_starts, _) = counting_script(&control, "late");
    control.set_desired(exclusive_entry("late", &script));
    control.set_desired(desired_entry("mark", shell("sleep 300"), 1));
    control
        .wait_for_state(&id("mark"), ContainerState::Running)
        .await;
    control.change(|plane| plane.node_status_down = false);
    let late = control
        .wait_for_state(&id("late"), ContainerState::Ended)
        .await;
    assert_eq!(late.exit.unwrap().cause, ExitCause::Node);
    assert!(!late_starts.exists());
    // Work ordered under the new lease starts.
    let (script, ..) = counting_script(&control, "next");
    control.set_desired(exclusive_entry("next", &script));
    control
        .wait_for_state(&id("next"), ContainerState::Running)
        .await;
    control.set_goal(&id("next"), Goal::Stop);
    let next = control
        .wait_for_state(&id("next"), ContainerState::Ended)
        .await;
    assert_eq!(next.exit.unwrap().cause, ExitCause::Intended);
    remove_all_entries(&control).await;
}
