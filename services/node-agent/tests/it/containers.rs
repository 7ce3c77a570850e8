//! Tests with a real agent, real supervisors and real programs.

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::{ExitCause, Program};

use crate::agent::{Agent, clear};
use crate::control::{Control, id, is_alive, number_in, report_of, shell, wait_for, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn exits_are_reported_until_their_entries_are_removed() {
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
        "last output: red alc_code / /bin/sh",
        "W13"
    );
    let good = control.exit_of(&id("good")).await;
    assert_eq!((good.cause, good.code), (ExitCause::Success, Some(0)));
    let signal = control.exit_of(&id("signal")).await;
    assert_eq!(
        (signal.cause, signal.signal),
        (ExitCause::UserError, Some(9))
    );
    let missing = control.exit_of(&id("missing")).await;
    assert_eq!(missing.cause, ExitCause::LaunchFailed);
    let output = |plane: &crate::control::ControlState| {
        plane
            .output
            .get(&id("code"))
            .is_some_and(|text| text == "red alc_code\n/bin/sh\n")
    };
    control.until("its output", output).await;

    clear(&control).await;
    assert!(!control.container_dir(&id("code")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_name_limits_accounts_and_runtimes() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let beat = |plane: &crate::control::ControlState| {
        plane
            .heartbeats
            .iter()
            .any(|beat| beat.inventory.capacity.memory_bytes > 0)
    };
    let plane = control.until("a heartbeat", beat).await;
    let labels = &plane.heartbeats[0].inventory.labels;
    let (limits, account) = if nix::unistd::geteuid().is_root() {
        ("account-pids", "65534".to_owned())
    } else {
        ("none", format!("agent-{}", nix::unistd::geteuid()))
    };
    assert_eq!(labels["hayward.limits"], limits);
    assert_eq!(
        labels["hayward.run_as"], account,
        "the account is a label (S16)"
    );
    assert_eq!(plane.heartbeats[0].inventory.runtimes, ["process"]);
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_graceful_first_and_then_forced() {
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
async fn children_in_other_sessions_end_with_their_container() {
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
        !is_alive(number_in(&file).unwrap()),
        "nothing is left of an ended container (I17)"
    );
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_is_truncated_and_does_not_block_the_program() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[("HAYWARD_OUTPUT_LIMIT_BYTES", "1000")]);
    control.want(wanted(
        "flood",
        shell("head -c 5000000 /dev/zero | tr '\\0' x; echo the end; exit 4"),
        1000,
    ));
    let exit = control
        .reported(&id("flood"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.code, Some(4));
    let files = std::fs::read_dir(control.container_dir(&id("flood"))).unwrap();
    let outputs = files.filter_map(|file| {
        let file = file.unwrap();
        let is_output = file.file_name().to_str().unwrap().starts_with("output");
        is_output.then(|| file.metadata().unwrap().len())
    });
    let stored: u64 = outputs.sum();
    assert!((500..=1000).contains(&stored), "{stored} bytes on disk");
    let output = control.plane.borrow().output[&id("flood")].clone();
    assert!(
        output.ends_with("xthe end\n"),
        "of a flood the newest is kept"
    );
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_agent_ends_containers_only_if_configured() {
    let control = Control::start().await;
    let agent = Agent::start(&control, &[]);
    control.want(wanted("stays", shell("sleep 300"), 1000));
    let pid = control
        .reported(&id("stays"), ContainerState::Running)
        .await
        .pid
        .unwrap();
    agent.terminate();
    assert!(is_alive(pid));
    // No agent would start new work on the node now.
    let goodbye = control.plane.borrow().heartbeats.last().cloned().unwrap();
    assert_eq!(
        (goodbye.quiesced, goodbye.quiesce_reason.as_deref()),
        (true, Some("its agent was stopped"))
    );
    control.change(|plane| plane.report = None);
    let agent = Agent::start(&control, &[("HAYWARD_END_CONTAINERS_ON_EXIT", "true")]);
    control
        .reported(&id("stays"), ContainerState::Running)
        .await;
    agent.terminate();
    assert!(!is_alive(pid));
    let last = control.plane.borrow().clone();
    assert_eq!(
        report_of(&last, &id("stays")).unwrap().state,
        ContainerState::Ended
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_goal_changes_nothing_and_an_older_epoch_is_ignored() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let mut entry = wanted("held", shell("sleep 300"), 1000);
    entry.epoch = 5;
    control.want(entry.clone());
    control.reported(&id("held"), ContainerState::Running).await;
    let mut old = entry.clone();
    (old.epoch, old.goal) = (4, Goal::Stop);
    control.want(old);
    // A later action shows that the order was received and ignored.
    control.want(wanted("after", shell("true"), 1000));
    control.reported(&id("after"), ContainerState::Ended).await;
    assert_eq!(
        report_of(&control.plane.borrow(), &id("held"))
            .unwrap()
            .state,
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
