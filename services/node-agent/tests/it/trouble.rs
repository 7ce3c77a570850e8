//! W15: what keeps a container from starting, and whose fault that is.

use hayward_container_manager_api::ContainerState;
use hayward_vocabulary::{Exit, ExitCause, Program};

use crate::agent::{Agent, clear};
use crate::control::{Control, id, shell, wait_for, wanted};

/// The end of a container with a program that is well.
async fn end_of(control: &Control, name: &str) -> Exit {
    control.want(wanted(name, shell("true"), 1));
    let ended = control.reported(&id(name), ContainerState::Ended).await;
    ended.exit.unwrap()
}

fn is_the_machines(exit: &Exit, code: &str) {
    assert_eq!(exit.cause, ExitCause::Node, "{exit:?}");
    assert_eq!(exit.cause_code.as_deref(), Some(code), "{exit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn w15_a_machine_without_its_helper_cannot_start_anything() {
    for helper in [r#"["/nonexistent/helper"]"#, r#"["/bin/false"]"#] {
        let control = Control::start().await;
        let _agent = Agent::start(&control, &[("HAYWARD_COMMAND", helper)]);
        is_the_machines(&end_of(&control, "any").await, "runtime_down");
        // A missing program would be no better off here, and is not blamed.
        let program = Program::Command {
            argv: vec!["/nonexistent/program".into()],
        };
        control.want(wanted("missing", program, 1));
        let missing = control
            .reported(&id("missing"), ContainerState::Ended)
            .await;
        is_the_machines(&missing.exit.unwrap(), "runtime_down");
        clear(&control).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w15_a_missing_program_is_its_users_fault() {
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
async fn w15_a_state_directory_that_is_gone_is_the_machines_fault() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    assert_eq!(end_of(&control, "good").await.cause, ExitCause::Success);
    clear(&control).await;
    std::fs::remove_dir_all(control.state_dir().join("containers")).unwrap();
    is_the_machines(&end_of(&control, "any").await, "runtime_down");
    clear(&control).await;
}

/// A disk of its own for the containers, which only the agent and its children see.
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
async fn f29_a_full_disk_and_one_that_may_not_be_written_are_told_apart() {
    let full = "mode=755,size=16k";
    let fill = "(head -c 100k /dev/zero > fill 2>&- || true);";
    let sealed = "mode=755,ro";
    for (options, then, code) in [(full, fill, "disk_full"), (sealed, "", "read_only_fs")] {
        let control = Control::start().await;
        let then = if then.is_empty() { ":;" } else { then };
        let Some(_agent) = with_disk(&control, options, then) else {
            return;
        };
        is_the_machines(&end_of(&control, "any").await, code);
        clear(&control).await;
    }
}

/// The disk with the journal refuses: nothing starts, and what runs still ends when it is told to.
#[tokio::test(flavor = "multi_thread")]
async fn f29_with_a_full_journal_nothing_starts_and_everything_ends() {
    let control = Control::start().await;
    // More than the journal may hold: a limit of the agent's own process is as good as a full disk.
    let limits = ["sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""];
    let _agent = Agent::start_by(&control, &limits);
    let mut runs = 0;
    let refused = loop {
        let name = format!("n{runs}");
        control.want(wanted(&name, shell("sleep 300"), 1));
        let seen = |world: &crate::control::World| {
            let shown = crate::control::shown(world, &id(&name));
            shown.is_some_and(|shown| {
                matches!(shown.state, ContainerState::Running | ContainerState::Ended)
            })
        };
        let world = control.until(&name, seen).await;
        let shown = crate::control::shown(&world, &id(&name)).unwrap();
        if let Some(exit) = shown.exit {
            break exit;
        }
        runs += 1;
    };
    assert_eq!(refused.cause, ExitCause::Node, "{refused:?}");
    assert!(refused.message.unwrap().contains("journal") && runs > 0);
    let quiet = |world: &crate::control::World| {
        let beat = world.heartbeats.last();
        beat.and_then(|beat| beat.quiesce_reason.clone())
            .is_some_and(|why| why.contains("its journal cannot be written"))
    };
    control
        .until("the node asks for no new work and says why", quiet)
        .await;
    control.change(|world| world.desired.clear());
    wait_for("the end of what ran", || {
        let world = control.world.borrow();
        let report = world.report.as_ref()?;
        let alive = |shown: &&hayward_container_manager_api::ContainerReport| {
            shown.state != ContainerState::Ended
        };
        (report.containers.iter().filter(alive).count() == 0).then_some(())
    });
}
