//! Exclusive work ends with the lease of its node, whatever happens to the agent (I4).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hayward_container_manager_api::{ContainerState, DesiredEntry, Goal};
use hayward_vocabulary::ExitCause;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::agent::{Agent, clear};
use crate::control::{Control, id, is_alive, number_in, report_of, shell, wait_for, wanted};

/// Length of a lease in milliseconds. A busy machine can still renew it, and a test can wait for
/// its end.
const LEASE_MS: u64 = 3_000;

fn exclusive(name: &str, script: &str) -> DesiredEntry {
    DesiredEntry {
        exclusive: true,
        ..wanted(name, shell(script), 60_000)
    }
}

async fn leasing() -> Control {
    let control = Control::start().await;
    control.change(|plane| plane.node_lease_ms = Some(LEASE_MS));
    control
}

fn signal(agent: &Agent, signal: Signal) {
    let pid = i32::try_from(agent.0.id()).unwrap();
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Returns a program that records its starts and its process id.
fn counted(control: &Control, name: &str) -> (String, PathBuf, PathBuf) {
    let place = |what: &str| control.dir.path().join(format!("{name}.{what}"));
    let (starts, pid) = (place("starts"), place("pid"));
    let script = format!(
        "echo x >> {}; echo $$ > {}; exec sleep 300",
        starts.display(),
        pid.display()
    );
    (script, starts, pid)
}

/// Runs one exclusive and one ordinary container, disturbs the agent, and waits for the end of the
/// first. Returns how long that took.
async fn end_after(
    control: &Control,
    agent: &Agent,
    cut: impl FnOnce(&Control, &Agent),
) -> Duration {
    let (script, starts, pid) = counted(control, "alone");
    control.want(exclusive("alone", &script));
    let (other, _, other_pid) = counted(control, "other");
    control.want(wanted("other", shell(&other), 1_000));
    control
        .reported(&id("alone"), ContainerState::Running)
        .await;
    control
        .reported(&id("other"), ContainerState::Running)
        .await;
    let pid = wait_for("its number", || number_in(&pid));
    let other = wait_for("the other's number", || number_in(&other_pid));
    // Renewals keep it running for longer than one lease.
    let beats = control.plane.borrow().heartbeats.len() + 20;
    let many = |plane: &crate::control::ControlState| plane.heartbeats.len() > beats;
    control.until("many heartbeats", many).await;
    assert!(is_alive(pid));
    let begun = Instant::now();
    cut(control, agent);
    wait_for("its end", || (!is_alive(pid)).then_some(()));
    assert!(is_alive(other), "G6: other work does not end for an outage");
    assert_eq!(std::fs::read_to_string(starts).unwrap(), "x\n");
    begun.elapsed()
}

/// Checks that the end came in time, with a margin for a busy machine.
fn within_lease(took: Duration) {
    assert!(took < Duration::from_millis(LEASE_MS + 1_500), "{took:?}");
}

async fn ended_for_its_node(control: &Control) {
    let ended = control.reported(&id("alone"), ContainerState::Ended).await;
    let exit = ended.exit.unwrap();
    assert_eq!(exit.cause, ExitCause::Node, "{exit:?}");
    assert!(exit.message.unwrap().contains("lease"));
    // The work stays ended while it is still desired, even when the lease returns (I3).
    let starts = control.dir.path().join("alone.starts");
    let beats = control.plane.borrow().heartbeats.len() + 5;
    let more = |plane: &crate::control::ControlState| plane.heartbeats.len() > beats;
    control.until("heartbeats", more).await;
    assert_eq!(std::fs::read_to_string(starts).unwrap(), "x\n");
    clear(control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_ends_with_the_lease_while_the_agent_is_frozen() {
    let control = leasing().await;
    let agent = Agent::start(&control, &[]);
    let took = end_after(&control, &agent, |_, agent| signal(agent, Signal::SIGSTOP)).await;
    within_lease(took);
    signal(&agent, Signal::SIGCONT);
    ended_for_its_node(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_ends_with_the_lease_after_the_agent_was_killed() {
    let control = leasing().await;
    let agent = Agent::start(&control, &[]);
    let took = end_after(&control, &agent, |_, agent| signal(agent, Signal::SIGKILL)).await;
    within_lease(took);
    drop(agent);
    control.change(|plane| plane.report = None);
    let _agent = Agent::start(&control, &[]);
    ended_for_its_node(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_ends_without_answers_and_with_a_damaged_lease_file() {
    let control = leasing().await;
    let agent = Agent::start(&control, &[]);
    let took = end_after(&control, &agent, |control, _| {
        control.change(|plane| plane.deaf = true);
        // The last valid lease still counts.
        std::fs::write(control.state_dir().join("lease"), "{").unwrap();
    });
    within_lease(took.await);
    control.change(|plane| plane.deaf = false);
    ended_for_its_node(&control).await;
}

/// The stop comes a tenth of the lease before its end, and the kill at its end.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_by_lease_is_graceful_first_and_forced_in_time() {
    let control = leasing().await;
    let agent = Agent::start(&control, &[]);
    let place = |name: &str| control.dir.path().join(name);
    let (found, pid) = (place("heard"), place("pid"));
    let deaf = format!(
        "trap ': > {}' TERM; echo $$ > {}; while :; do sleep 0.01; done",
        found.display(),
        pid.display()
    );
    control.want(exclusive("alone", &deaf));
    let pid = wait_for("its number", || number_in(&pid));
    signal(&agent, Signal::SIGSTOP);
    wait_for("its end", || (!is_alive(pid)).then_some(()));
    assert!(found.exists(), "it was asked before it was forced");
    signal(&agent, Signal::SIGCONT);
    let ended = control.reported(&id("alone"), ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Node);
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_does_not_start_without_a_lease_or_after_an_expired_one() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let (script, starts, _) = counted(&control, "alone");
    control.want(exclusive("alone", &script));
    control.want(wanted("other", shell("sleep 300"), 1));
    // The other container is reported, so the agent has received both.
    control
        .reported(&id("other"), ContainerState::Running)
        .await;
    let beats = control.plane.borrow().heartbeats.len() + 5;
    let more = |plane: &crate::control::ControlState| plane.heartbeats.len() > beats;
    let plane = control.until("heartbeats", more).await;
    assert!(report_of(&plane, &id("alone")).is_none() && !starts.exists());
    control.change(|plane| plane.node_lease_ms = Some(LEASE_MS));
    control
        .reported(&id("alone"), ContainerState::Running)
        .await;

    // A second container is ordered after the end of the lease. The lease returns later.
    control.change(|plane| plane.deaf = true);
    control.reported(&id("alone"), ContainerState::Ended).await;
    let (script, late_starts, _) = counted(&control, "late");
    control.want(exclusive("late", &script));
    control.want(wanted("mark", shell("sleep 300"), 1));
    control.reported(&id("mark"), ContainerState::Running).await;
    control.change(|plane| plane.deaf = false);
    let late = control.reported(&id("late"), ContainerState::Ended).await;
    assert_eq!(late.exit.unwrap().cause, ExitCause::Node);
    assert!(!late_starts.exists());
    // Work ordered under the new lease starts.
    let (script, ..) = counted(&control, "next");
    control.want(exclusive("next", &script));
    control.reported(&id("next"), ContainerState::Running).await;
    control.want_goal(&id("next"), Goal::Stop);
    let next = control.reported(&id("next"), ContainerState::Ended).await;
    assert_eq!(next.exit.unwrap().cause, ExitCause::Intended);
    clear(&control).await;
}
