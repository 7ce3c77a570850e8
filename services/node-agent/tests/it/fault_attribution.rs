//! Tests of the attribution of failed starts to the user or the node (W15).

use hayward_container_manager_api::ContainerState;
use hayward_vocabulary::{Exit, ExitCause, Program};

use crate::agent::{Agent, clear};
use crate::control::{Control, id, shell, wait_for, wanted};

/// Returns the exit of a container with a valid program.
async fn end_of(control: &Control, name: &str) -> Exit {
    control.want(wanted(name, shell("true"), 1));
    let ended = control.reported(&id(name), ContainerState::Ended).await;
    ended.exit.unwrap()
}

fn is_node_fault(exit: &Exit, code: &str) {
    assert_eq!(exit.cause, ExitCause::Node, "{exit:?}");
    assert_eq!(exit.cause_code.as_deref(), Some(code), "{exit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_agent_program_cannot_start_anything() {
    for helper in [r#"["/nonexistent/helper"]"#, r#"["/bin/false"]"#] {
        let control = Control::start().await;
        let _agent = Agent::start(&control, &[("HAYWARD_COMMAND", helper)]);
        is_node_fault(&end_of(&control, "any").await, "runtime_down");
        // A missing program is not blamed, because no program could start.
        let program = Program::Command {
            argv: vec!["/nonexistent/program".into()],
        };
        control.want(wanted("missing", program, 1));
        let missing = control
            .reported(&id("missing"), ContainerState::Ended)
            .await;
        is_node_fault(&missing.exit.unwrap(), "runtime_down");
        clear(&control).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_the_users_fault() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let program = Program::Command {
        argv: vec!["/nonexistent/program".into()],
    };
    control.want(wanted("missing", program, 1));
    let missing = control
        .reported(&id("missing"), ContainerState::Ended)
        .await;
    let exit = missing.exit.unwrap();
    assert_eq!(
        (exit.cause, exit.cause_code),
        (ExitCause::LaunchFailed, None)
    );
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_state_directory_is_the_nodes_fault() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    assert_eq!(end_of(&control, "good").await.cause, ExitCause::Success);
    clear(&control).await;
    std::fs::remove_dir_all(control.state_dir().join("containers")).unwrap();
    is_node_fault(&end_of(&control, "any").await, "runtime_down");
    clear(&control).await;
}

/// Starts an agent with a separate disk for its containers, which only the agent and its children
/// see.
fn with_disk(control: &Control, options: &str, then: &str) -> Option<Agent> {
    let containers = control.state_dir().join("containers");
    std::fs::create_dir_all(&containers).unwrap();
    let at = containers.display();
    let mount = format!("mount -t tmpfs -o {options} tmpfs {at} && cd {at} && {then}");
    let tried = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", &format!("{mount} true")])
        .output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("skipped: this user cannot mount a file system");
        return None;
    }
    let script = format!("{mount} exec \"$0\" \"$@\"");
    Some(Agent::start_by(
        control,
        &["unshare", "-m", "sh", "-c", &script],
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_and_a_read_only_disk_are_distinguished() {
    let full = "mode=755,size=16k";
    let fill = "(head -c 100k /dev/zero > fill 2>&- || true);";
    let sealed = "mode=755,ro";
    for (options, then, code) in [(full, fill, "disk_full"), (sealed, "", "read_only_fs")] {
        let control = Control::start().await;
        let then = if then.is_empty() { ":;" } else { then };
        let Some(_agent) = with_disk(&control, options, then) else {
            return;
        };
        is_node_fault(&end_of(&control, "any").await, code);
        clear(&control).await;
    }
}

/// The disk of the journal fails (F29).
#[tokio::test(flavor = "multi_thread")]
async fn without_a_writable_journal_nothing_starts_and_stops_still_work() {
    let control = Control::start().await;
    // A file size limit of the agent has the same effect as a full disk.
    let limits = ["sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""];
    let _agent = Agent::start_by(&control, &limits);
    let mut runs = 0;
    let refused = loop {
        let name = format!("n{runs}");
        control.want(wanted(&name, shell("sleep 300"), 1));
        let seen = |plane: &crate::control::ControlState| {
            let shown = crate::control::report_of(plane, &id(&name));
            shown.is_some_and(|shown| {
                matches!(shown.state, ContainerState::Running | ContainerState::Ended)
            })
        };
        let plane = control.until(&name, seen).await;
        let shown = crate::control::report_of(&plane, &id(&name)).unwrap();
        if let Some(exit) = shown.exit {
            break exit;
        }
        runs += 1;
    };
    assert_eq!(refused.cause, ExitCause::Node, "{refused:?}");
    assert!(refused.message.unwrap().contains("journal") && runs > 0);
    let quiet = |plane: &crate::control::ControlState| {
        let beat = plane.heartbeats.last();
        beat.and_then(|beat| beat.quiesce_reason.clone())
            .is_some_and(|why| why.contains("its journal cannot be written"))
    };
    control
        .until("the node asks for no new work and says why", quiet)
        .await;
    control.change(|plane| plane.desired.clear());
    wait_for("the end of what ran", || {
        let plane = control.plane.borrow();
        let report = plane.report.as_ref()?;
        let alive = |shown: &&hayward_container_manager_api::ContainerReport| {
            shown.state != ContainerState::Ended
        };
        (report.containers.iter().filter(alive).count() == 0).then_some(())
    });
}
