//! I4: exclusive work ends with the lease of its node, whatever has become of the agent.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hayward_container_manager_api::{ContainerState, DesiredEntry, Goal};
use hayward_vocabulary::ExitCause;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::agent::{Agent, clear};
use crate::control::{Control, id, lives, number_in, shell, shown, wait_for, wanted};

/// Long enough that a busy machine renews it, short enough to wait for its end.
const LEASE_MS: u64 = 3_000;

fn exclusive(name: &str, script: &str) -> DesiredEntry {
    DesiredEntry {
        exclusive: true,
        ..wanted(name, shell(script), 60_000)
    }
}

async fn leasing() -> Control {
    let control = Control::start().await;
    control.change(|world| world.node_lease_ms = Some(LEASE_MS));
    control
}

fn signal(agent: &Agent, signal: Signal) {
    let pid = i32::try_from(agent.0.id()).unwrap();
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// A program that counts its starts and says its number.
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

/// Runs one exclusive and one ordinary container, does something to the agent, and waits for the
/// end of the first. How long that took is told.
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
    // Leases that are renewed keep it, for longer than one of them.
    let beats = control.world.borrow().heartbeats.len() + 20;
    let many = |world: &crate::control::World| world.heartbeats.len() > beats;
    control.until("many heartbeats", many).await;
    assert!(lives(pid));
    let begun = Instant::now();
    cut(control, agent);
    wait_for("its end", || (!lives(pid)).then_some(()));
    assert!(lives(other), "G6: other work does not end for an outage");
    assert_eq!(std::fs::read_to_string(starts).unwrap(), "x\n");
    begun.elapsed()
}

/// What a lease's end may take on a busy machine.
fn within_lease(took: Duration) {
    assert!(took < Duration::from_millis(LEASE_MS + 1_500), "{took:?}");
}

async fn ended_for_its_node(control: &Control) {
    let ended = control.reported(&id("alone"), ContainerState::Ended).await;
    let exit = ended.exit.unwrap();
    assert_eq!(exit.cause, ExitCause::Node, "{exit:?}");
    assert!(exit.message.unwrap().contains("lease"));
    // I3: it stays ended while it is still wanted, also when the lease is back.
    let starts = control.dir.path().join("alone.starts");
    let beats = control.world.borrow().heartbeats.len() + 5;
    let more = |world: &crate::control::World| world.heartbeats.len() > beats;
    control.until("heartbeats", more).await;
    assert_eq!(std::fs::read_to_string(starts).unwrap(), "x\n");
    clear(control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_it_ends_while_the_agent_is_stopped() {
    let control = leasing().await;
    let agent = Agent::start(&control, &[]);
    let took = end_after(&control, &agent, |_, agent| signal(agent, Signal::SIGSTOP)).await;
    within_lease(took);
    signal(&agent, Signal::SIGCONT);
    ended_for_its_node(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_it_ends_when_the_agent_was_killed() {
    let control = leasing().await;
    let agent = Agent::start(&control, &[]);
    let took = end_after(&control, &agent, |_, agent| signal(agent, Signal::SIGKILL)).await;
    within_lease(took);
    drop(agent);
    control.change(|world| world.report = None);
    let _agent = Agent::start(&control, &[]);
    ended_for_its_node(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_it_ends_when_no_heartbeat_is_answered_and_the_file_is_garbled() {
    let control = leasing().await;
    let agent = Agent::start(&control, &[]);
    let took = end_after(&control, &agent, |control, _| {
        control.change(|world| world.deaf = true);
        // The last good lease goes on to count; no more, and no less.
        std::fs::write(control.state_dir().join("lease"), "{").unwrap();
    });
    within_lease(took.await);
    control.change(|world| world.deaf = false);
    ended_for_its_node(&control).await;
}

/// The end is asked for a tenth of the lease before it, and forced when the lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn i4_the_end_is_gentle_first_and_forced_in_time() {
    let control = leasing().await;
    let agent = Agent::start(&control, &[]);
    let place = |name: &str| control.dir.path().join(name);
    let (heard, pid) = (place("heard"), place("pid"));
    let deaf = format!(
        "trap ': > {}' TERM; echo $$ > {}; while :; do sleep 0.01; done",
        heard.display(),
        pid.display()
    );
    control.want(exclusive("alone", &deaf));
    let pid = wait_for("its number", || number_in(&pid));
    signal(&agent, Signal::SIGSTOP);
    wait_for("its end", || (!lives(pid)).then_some(()));
    assert!(heard.exists(), "it was asked before it was forced");
    signal(&agent, Signal::SIGCONT);
    let ended = control.reported(&id("alone"), ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Node);
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_it_is_not_started_without_a_lease_nor_after_one_that_ran_out() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let (script, starts, _) = counted(&control, "alone");
    control.want(exclusive("alone", &script));
    control.want(wanted("other", shell("sleep 300"), 1));
    // The other one is reported: the agent has seen both, and left one alone.
    control
        .reported(&id("other"), ContainerState::Running)
        .await;
    let beats = control.world.borrow().heartbeats.len() + 5;
    let more = |world: &crate::control::World| world.heartbeats.len() > beats;
    let world = control.until("heartbeats", more).await;
    assert!(shown(&world, &id("alone")).is_none() && !starts.exists());
    control.change(|world| world.node_lease_ms = Some(LEASE_MS));
    control
        .reported(&id("alone"), ContainerState::Running)
        .await;

    // A second one comes when the lease is over; then there is a lease again.
    control.change(|world| world.deaf = true);
    control.reported(&id("alone"), ContainerState::Ended).await;
    let (script, late_starts, _) = counted(&control, "late");
    control.want(exclusive("late", &script));
    control.want(wanted("mark", shell("sleep 300"), 1));
    control.reported(&id("mark"), ContainerState::Running).await;
    control.change(|world| world.deaf = false);
    let late = control.reported(&id("late"), ContainerState::Ended).await;
    assert_eq!(late.exit.unwrap().cause, ExitCause::Node);
    assert!(!late_starts.exists());
    // What is ordered under the new lease is started.
    let (script, ..) = counted(&control, "next");
    control.want(exclusive("next", &script));
    control.reported(&id("next"), ContainerState::Running).await;
    control.want_goal(&id("next"), Goal::Stop);
    let next = control.reported(&id("next"), ContainerState::Ended).await;
    assert_eq!(next.exit.unwrap().cause, ExitCause::Intended);
    clear(&control).await;
}
