//! Tests of the attribution of failed starts to the user or the node (W15).

use hayward_container_manager_api::ContainerState;
use hayward_vocabulary::{Exit, ExitCause, Program};

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, find_report, id, shell, wait_for,
};

/// Runs a container whose program succeeds if the node can start it. Returns its exit.
async fn run_valid_program(control: &FakeControlPlane, name: &str) -> Exit {
    control.set_desired(desired_entry(name, shell("true"), 1));
    let report = control
        .wait_for_state(&id(name), ContainerState::Ended)
        .await;
    report.exit.unwrap()
}

fn assert_node_fault(exit: &Exit, code: &str) {
    assert_eq!(exit.cause, ExitCause::Node, "{exit:?}");
    assert_eq!(exit.cause_code.as_deref(), Some(code), "{exit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_agent_program_cannot_start_anything() {
    for helper in [r#"["/nonexistent/helper"]"#, r#"["/bin/false"]"#] {
        let control = FakeControlPlane::start().await;
        let _agent = Agent::start(&control, &[("HAYWARD_COMMAND", helper)]);
        assert_node_fault(&run_valid_program(&control, "any").await, "runtime_down");
        // A missing program is a fault of the node here too, because no program could start.
        let program = Program::Command {
            argv: vec!["/nonexistent/program".into()],
        };
        control.set_desired(desired_entry("missing", program, 1));
        let missing = control
            .wait_for_state(&id("missing"), ContainerState::Ended)
            .await;
        assert_node_fault(&missing.exit.unwrap(), "runtime_down");
        remove_all_entries(&control).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_the_users_fault() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let program = Program::Command {
        argv: vec!["/nonexistent/program".into()],
    };
    control.set_desired(desired_entry("missing", program, 1));
    let missing = control
        .wait_for_state(&id("missing"), ContainerState::Ended)
        .await;
    let exit = missing.exit.unwrap();
    assert_eq!(
        (exit.cause, exit.cause_code),
        (ExitCause::LaunchFailed, None)
    );
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_state_directory_is_the_nodes_fault() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    assert_eq!(
        run_valid_program(&control, "good").await.cause,
        ExitCause::Success
    );
    remove_all_entries(&control).await;
    std::fs::remove_dir_all(control.state_dir().join("containers")).unwrap();
    assert_node_fault(&run_valid_program(&control, "any").await, "runtime_down");
    remove_all_entries(&control).await;
}

/// Starts an agent with a separate disk for its containers, which only the agent and its children
/// see.
fn start_agent_with_disk(
    control: &FakeControlPlane,
    options: &str,
    prepare: &str,
) -> Option<Agent> {
    let containers = control.state_dir().join("containers");
    std::fs::create_dir_all(&containers).unwrap();
    let path = containers.display();
    let mount = format!("mount -t tmpfs -o {options} tmpfs {path} && cd {path} && {prepare}");
    let result = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", &format!("{mount} true")])
        .output();
    if !result.is_ok_and(|result| result.status.success()) {
        eprintln!("skipped: this user cannot mount a file system");
        return None;
    }
    let script = format!("{mount} exec \"$0\" \"$@\"");
    Some(Agent::start_with_command(
        control,
        &["unshare", "-m", "sh", "-c", &script],
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_and_a_read_only_disk_are_distinguished() {
    let small = "mode=755,size=16k";
    let fill_command = "(head -c 100k /dev/zero > fill 2>&- || true);";
    let read_only = "mode=755,ro";
    for (options, prepare, code) in [
        (small, fill_command, "disk_full"),
        (read_only, "", "read_only_fs"),
    ] {
        let control = FakeControlPlane::start().await;
        let prepare = if prepare.is_empty() { ":;" } else { prepare };
        let Some(_agent) = start_agent_with_disk(&control, options, prepare) else {
            return;
        };
        assert_node_fault(&run_valid_program(&control, "any").await, code);
        remove_all_entries(&control).await;
    }
}

/// The disk of the journal fails (F29).
#[tokio::test(flavor = "multi_thread")]
async fn without_a_writable_journal_starts_fail_and_containers_can_be_stopped() {
    let control = FakeControlPlane::start().await;
    // A file size limit of the agent has the same effect as a full disk.
    let limits = ["sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""];
    let _agent = Agent::start_with_command(&control, &limits);
    let mut started_count = 0;
    let refused = loop {
        let name = format!("n{started_count}");
        control.set_desired(desired_entry(&name, shell("sleep 300"), 1));
        let is_started_or_ended = |plane: &ControlPlaneState| {
            let report = find_report(plane, &id(&name));
            report.is_some_and(|report| {
                matches!(
                    report.state,
                    ContainerState::Running | ContainerState::Ended
                )
            })
        };
        let plane = control.wait_until(&name, is_started_or_ended).await;
        let report = find_report(&plane, &id(&name)).unwrap();
        if let Some(exit) = report.exit {
            break exit;
        }
        started_count += 1;
    };
    assert_eq!(refused.cause, ExitCause::Node, "{refused:?}");
    assert!(refused.message.unwrap().contains("journal") && started_count > 0);
    let is_quiesced = |plane: &ControlPlaneState| {
        let heartbeat = plane.heartbeats.last();
        heartbeat
            .and_then(|heartbeat| heartbeat.quiesce_reason.clone())
            .is_some_and(|reason| reason.contains("its journal cannot be written"))
    };
    control
        .wait_until(
            "the node asks for no new work, with the reason",
            is_quiesced,
        )
        .await;
    control.change(|plane| plane.desired.clear());
    wait_for("all containers have ended", || {
        let plane = control.state.borrow();
        let report = plane.report.as_ref()?;
        let is_live = |report: &&hayward_container_manager_api::ContainerReport| {
            report.state != ContainerState::Ended
        };
        (report.containers.iter().filter(is_live).count() == 0).then_some(())
    });
}
