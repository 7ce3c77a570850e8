//! Tests of the start, the output, the stop and the end of containers, with a real agent, real
//! supervisors and real programs. Each test starts an agent on a new node and the fake control
//! plane.

use std::collections::BTreeMap;

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::{ExitCause, Program};

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, find_report, id, is_alive, read_pid, shell,
    wait_for,
};

#[tokio::test(flavor = "multi_thread")]
async fn exits_are_reported_until_their_entries_are_removed() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry(
        "code",
        shell("echo $COLOUR $HAYWARD_ALLOCATION; echo $0 >&2; exit 7"),
        1,
    ));
    control.set_desired(desired_entry("good", shell("true"), 1));
    control.set_desired(desired_entry("signal", shell("kill -9 $$"), 1));
    let missing = Program::Command {
        argv: vec!["/nonexistent/program".into()],
    };
    control.set_desired(desired_entry("missing", missing, 1));

    let code = control
        .wait_for_state(&id("code"), ContainerState::Ended)
        .await;
    let exit = code.exit.unwrap();
    assert_eq!((exit.cause, exit.code), (ExitCause::UserError, Some(7)));
    assert!(code.started_at.is_some() && code.pid.is_some() && exit.ended_at.is_some());
    assert_eq!(
        exit.message.unwrap(),
        "last output: red alc_code / /bin/sh",
        "the exit contains the last output (W13)"
    );
    let success = control.wait_for_exit(&id("good")).await;
    assert_eq!((success.cause, success.code), (ExitCause::Success, Some(0)));
    let signal = control.wait_for_exit(&id("signal")).await;
    assert_eq!(
        (signal.cause, signal.signal),
        (ExitCause::UserError, Some(9))
    );
    let missing = control.wait_for_exit(&id("missing")).await;
    assert_eq!(missing.cause, ExitCause::LaunchFailed);
    let has_output = |plane: &ControlPlaneState| {
        plane
            .output
            .get(&id("code"))
            .is_some_and(|text| text == "red alc_code\n/bin/sh\n")
    };
    control
        .wait_until("the output of the container", has_output)
        .await;

    remove_all_entries(&control).await;
    assert!(!control.container_dir(&id("code")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_contain_limits_account_and_runtimes() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let has_capacity = |plane: &ControlPlaneState| {
        plane
            .heartbeats
            .iter()
            .any(|heartbeat| heartbeat.inventory.capacity.memory_bytes > 0)
    };
    let plane = control.wait_until("a heartbeat", has_capacity).await;
    let labels = &plane.heartbeats[0].inventory.labels;
    let (limits, account) = if nix::unistd::geteuid().is_root() {
        ("account-pids", "auto")
    } else {
        ("none", "agent")
    };
    assert_eq!(labels["hayward.limits"], limits);
    assert_eq!(
        labels["hayward.run_as"], account,
        "the account is a label (S16)"
    );
    assert_eq!(plane.heartbeats[0].inventory.runtimes, ["process"]);
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_graceful_first_and_then_forced() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let ready_file = |name: &str| control.dir.path().join(name);
    let graceful = format!(
        "trap 'exit 5' TERM; : > {}; while :; do sleep 0.01; done",
        ready_file("a").display()
    );
    let ignoring = format!(
        "trap '' TERM; : > {}; while :; do sleep 0.01; done",
        ready_file("b").display()
    );
    control.set_desired(desired_entry("graceful", shell(&graceful), 30_000));
    control.set_desired(desired_entry("ignoring", shell(&ignoring), 100));
    for name in ["a", "b"] {
        wait_for(name, || ready_file(name).exists().then_some(()));
    }
    control.set_goal(&id("graceful"), Goal::Stop);
    control.set_goal(&id("ignoring"), Goal::Stop);
    let graceful = control
        .wait_for_state(&id("graceful"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(
        (graceful.cause, graceful.code),
        (ExitCause::Intended, Some(5))
    );
    let ignoring = control
        .wait_for_state(&id("ignoring"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(
        (ignoring.cause, ignoring.signal),
        (ExitCause::Intended, Some(9))
    );
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn children_in_other_sessions_end_with_their_container() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let file = control.dir.path().join("pid");
    let script = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 300' & \
         while [ ! -e {0} ]; do sleep 0.01; done",
        file.display()
    );
    control.set_desired(desired_entry("parent", shell(&script), 1000));
    let exit = control
        .wait_for_state(&id("parent"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success);
    assert!(
        !is_alive(read_pid(&file).unwrap()),
        "nothing is left of an ended container (I17)"
    );
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_is_truncated_and_does_not_block_the_program() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[("HAYWARD_OUTPUT_LIMIT_BYTES", "1000")]);
    control.set_desired(desired_entry(
        "flood",
        shell("head -c 5000000 /dev/zero | tr '\\0' x; echo the end; exit 4"),
        1000,
    ));
    let exit = control
        .wait_for_state(&id("flood"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.code, Some(4));
    let files = std::fs::read_dir(control.container_dir(&id("flood"))).unwrap();
    let output_sizes = files.filter_map(|file| {
        let file = file.unwrap();
        let is_output = file.file_name().to_str().unwrap().starts_with("output");
        is_output.then(|| file.metadata().unwrap().len())
    });
    let stored: u64 = output_sizes.sum();
    assert!((500..=1000).contains(&stored), "{stored} bytes on disk");
    let output = control.state.borrow().output[&id("flood")].clone();
    assert!(
        output.ends_with("xthe end\n"),
        "the newest output of a flood is stored"
    );
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_agent_ends_containers_only_if_configured() {
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[]);
    control.set_desired(desired_entry("stays", shell("sleep 300"), 1000));
    let pid = control
        .wait_for_state(&id("stays"), ContainerState::Running)
        .await
        .pid
        .unwrap();
    agent.terminate();
    assert!(is_alive(pid));
    // No agent would start new work on the node now.
    let last_heartbeat = control.state.borrow().heartbeats.last().cloned().unwrap();
    assert_eq!(
        (
            last_heartbeat.quiesced,
            last_heartbeat.quiesce_reason.as_deref()
        ),
        (true, Some("its agent was stopped"))
    );
    control.change(|plane| plane.report = None);
    let agent = Agent::start(&control, &[("HAYWARD_END_CONTAINERS_ON_EXIT", "true")]);
    control
        .wait_for_state(&id("stays"), ContainerState::Running)
        .await;
    agent.terminate();
    assert!(!is_alive(pid));
    let plane = control.state.borrow().clone();
    assert_eq!(
        find_report(&plane, &id("stays")).unwrap().state,
        ContainerState::Ended
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_goal_changes_nothing_and_an_older_epoch_is_ignored() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let mut entry = desired_entry("held", shell("sleep 300"), 1000);
    entry.epoch = 5;
    control.set_desired(entry.clone());
    control
        .wait_for_state(&id("held"), ContainerState::Running)
        .await;
    let mut old = entry.clone();
    (old.epoch, old.goal) = (4, Goal::Stop);
    control.set_desired(old);
    // A later action shows that the order was received and ignored.
    control.set_desired(desired_entry("after", shell("true"), 1000));
    control
        .wait_for_state(&id("after"), ContainerState::Ended)
        .await;
    assert_eq!(
        find_report(&control.state.borrow(), &id("held"))
            .unwrap()
            .state,
        ContainerState::Running
    );
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_signal_is_blocked_in_the_program() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let mask = control.dir.path().join("mask");
    let script = format!("grep SigBlk /proc/self/status > {}", mask.display());
    control.set_desired(desired_entry("mask", shell(&script), 1000));
    control
        .wait_for_state(&id("mask"), ContainerState::Ended)
        .await;
    let mask = std::fs::read_to_string(mask).unwrap();
    assert!(mask.trim().ends_with("0000000000000000"), "{mask}");
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_lines_of_many_short_containers_are_stored() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let mut outputs = BTreeMap::new();
    for round in 0..6 {
        let names: Vec<String> = (0..20).map(|number| format!("r{round}n{number}")).collect();
        for name in &names {
            control.set_desired(desired_entry(
                name,
                shell(&format!("echo first; printf 'last of {name}'")),
                1,
            ));
        }
        // Entries are removed as soon as their ends are reported, as container-manager does it.
        let all_ended = |plane: &ControlPlaneState| {
            names
                .iter()
                .all(|name| plane.ends.contains_key(&(id(name), 1)))
        };
        control.wait_until("all have ended", all_ended).await;
        control.change(|plane| plane.desired.clear());
        let plane = control.state.borrow().clone();
        outputs.extend(names.into_iter().map(|name| {
            let text = plane.output.get(&id(&name)).cloned();
            (name, text.unwrap_or_default())
        }));
    }
    assert_eq!(outputs.len(), 120);
    for (name, text) in outputs {
        assert_eq!(text, format!("first\nlast of {name}"), "{name}");
    }
    remove_all_entries(&control).await;
}
