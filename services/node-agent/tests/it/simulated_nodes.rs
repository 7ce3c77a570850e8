//! Tests of simulated nodes. Their agents run in the process of the test.

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_node_agent::{RuntimeKind, Settings};
use hayward_node_agent_domain::NodeFault;
use hayward_service::Shutdown;
use hayward_vocabulary::{ExitCause, Program};

use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, id, shell, tasks_with_command,
};

fn settings(control: &FakeControlPlane) -> Settings {
    Settings {
        node: "sim".into(),
        token_file: Some(control.token_file()),
        runtime: RuntimeKind::Simulated,
        node_status_url: control.url.clone(),
        container_manager_url: control.url.clone(),
        job_converter_url: control.url.clone(),
        simulated_task_ms: 1,
        memory_bytes: Some(7),
        ..Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_node_runs_and_stops_a_command_and_runs_tasks() {
    let control = FakeControlPlane::start().await;
    control.change(|plane| {
        plane.tasks = tasks_with_command(300, &["pretend"]);
        plane.task_count = 300;
    });
    let shutdown = Shutdown::new();
    let running = hayward_node_agent::start(settings(&control), shutdown.clone())
        .await
        .unwrap();
    control.set_desired(desired_entry("command", shell("never run"), 1000));
    control
        .wait_for_state(&id("command"), ContainerState::Running)
        .await;
    control.set_goal(&id("command"), Goal::Stop);
    let exit = control
        .wait_for_state(&id("command"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Intended);

    let program = Program::RunTasks {
        token: "secret".into(),
        threads: 4,
    };
    control.set_desired(desired_entry("runner", program, 1000));
    let exit = control
        .wait_for_state(&id("runner"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    let plane = control.state.borrow().clone();
    assert_eq!(plane.finished.len(), 300);
    assert_eq!(plane.heartbeats[0].inventory.capacity.memory_bytes, 7);
    shutdown.begin();
    running.wait().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_simulated_nodes_run_in_one_process() {
    let control = FakeControlPlane::start().await;
    let keys = control.dir.path().join("keys");
    std::fs::create_dir_all(keys.join("tokens")).unwrap();
    for number in 1..=50 {
        std::fs::write(
            keys.join(format!("tokens/agent-sim-{number:04}.token")),
            "t",
        )
        .unwrap();
    }
    let settings = Settings {
        simulate: 50,
        token_file: None,
        keys: Some(keys),
        ..settings(&control)
    };
    let shutdown = Shutdown::new();
    let running = hayward_node_agent::start(settings, shutdown.clone())
        .await
        .unwrap();
    let all_have_sent = |plane: &ControlPlaneState| {
        let boots: std::collections::BTreeSet<_> = plane
            .heartbeats
            .iter()
            .map(|heartbeat| &heartbeat.boot_id)
            .collect();
        boots.len() == 50
    };
    control
        .wait_until("every agent has sent a heartbeat", all_have_sent)
        .await;
    shutdown.begin();
    running.wait().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_node_ends_exclusive_work_with_its_lease_and_can_fail_starts() {
    let control = FakeControlPlane::start().await;
    control.change(|plane| plane.node_lease_ms = Some(1_000));
    let shutdown = Shutdown::new();
    let running = hayward_node_agent::start(settings(&control), shutdown.clone())
        .await
        .unwrap();
    let mut alone = desired_entry("alone", shell("never run"), 1000);
    alone.exclusive = true;
    control.set_desired(alone);
    control
        .wait_for_state(&id("alone"), ContainerState::Running)
        .await;
    control.change(|plane| plane.node_status_down = true);
    let alone = control
        .wait_for_state(&id("alone"), ContainerState::Ended)
        .await;
    assert_eq!(alone.exit.unwrap().cause, ExitCause::Node);
    shutdown.begin();
    running.wait().await;

    let control = FakeControlPlane::start().await;
    let shutdown = Shutdown::new();
    let broken = Settings {
        simulated_fault: Some(NodeFault::ImagePull),
        ..settings(&control)
    };
    let running = hayward_node_agent::start(broken, shutdown.clone())
        .await
        .unwrap();
    control.set_desired(desired_entry("any", shell("never run"), 1000));
    let any = control
        .wait_for_state(&id("any"), ContainerState::Ended)
        .await;
    let exit = any.exit.unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    assert_eq!(exit.cause_code.as_deref(), Some("image_pull"));
    shutdown.begin();
    running.wait().await;
}
