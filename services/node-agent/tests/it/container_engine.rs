//! Tests with the container engine of this machine and an image that contains the shell of this
//! machine. Without an engine the tests print that they are skipped, and pass.

use std::process::{Command, Output};

use hayward_container_manager_api::{ContainerState, DesiredEntry, Goal};
use hayward_vocabulary::{AllocationId, ContainerForm, ExitCause, Program};

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, is_alive, wait_for,
};

pub const SOCKET: &str = "/var/run/docker.sock";
const IMAGE: &str = "hayward-test/shell:1";
pub const MIB: u64 = 1 << 20;

fn run_docker(arguments: &[&str]) -> Option<Output> {
    let output = Command::new("docker").args(arguments).output().ok()?;
    output.status.success().then_some(output)
}

pub fn docker_output(arguments: &[&str]) -> String {
    let output = run_docker(arguments).unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns whether there is an engine with the image. Builds the image if it is missing. Prints why
/// a test is skipped.
pub fn is_ready() -> bool {
    if run_docker(&["version"]).is_none() {
        eprintln!("skipped: no container engine answers `docker version`");
        return false;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docker/test-image.sh");
    let available = run_docker(&["image", "inspect", IMAGE]).is_some()
        || Command::new(script)
            .arg(IMAGE)
            .status()
            .is_ok_and(|status| status.success());
    if !available {
        eprintln!("skipped: docker/test-image.sh cannot make {IMAGE}");
    }
    available
}

/// Returns an id that is unique per test, because all tests share the engine.
pub fn id(name: &str) -> AllocationId {
    AllocationId::new(format!("alc_{name}-{}", std::process::id())).unwrap()
}

pub fn entry_in_image(name: &str, script: &str) -> DesiredEntry {
    let program = Program::Container {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        container: ContainerForm {
            image: IMAGE.into(),
            uid: None,
            gid: None,
            read_only: true,
            mounts: Vec::new(),
        },
    };
    let mut entry = desired_entry(name, program, 1000);
    entry.id = id(name);
    entry.size.memory_bytes = 64 * MIB;
    entry
}

fn start_agent(control: &FakeControlPlane) -> Agent {
    let extra_variables = [
        ("HAYWARD_DOCKER_SOCKET", SOCKET),
        ("HAYWARD_DOCKER_NETWORK", "none"),
    ];
    Agent::start(control, &extra_variables)
}

/// Returns the ids of the engine's containers of this allocation, in any state.
pub fn container_ids(id: &AllocationId) -> String {
    let label = format!("label=hayward.allocation={id}");
    docker_output(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &label])
}

pub async fn wait_for_output(control: &FakeControlPlane, id: &AllocationId, text: &str) {
    let has_text = |plane: &ControlPlaneState| {
        plane
            .output
            .get(id)
            .is_some_and(|text_so_far| text_so_far.contains(text))
    };
    control.wait_until(text, has_text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_an_image_runs_with_limits_and_without_root() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let _agent = start_agent(&control);
    // The engine does not order both streams, so nothing is written to the second one.
    let script = "exec 2>/dev/null; id -u; echo $COLOUR $HAYWARD_ALLOCATION; \
                  cat /proc/self/status; echo x > /file && echo written; exit 7";
    control.set_desired(entry_in_image("exit", script));
    let ended = control
        .wait_for_state(&id("exit"), ContainerState::Ended)
        .await;
    let exit = ended.exit.unwrap();
    assert_eq!(
        (exit.cause, exit.code),
        (ExitCause::UserError, Some(7)),
        "{exit:?}"
    );
    assert!(exit.ended_at.is_some());
    assert!(
        exit.message
            .is_some_and(|message| message.contains("last output:")),
        "the exit contains the last output (W13)"
    );
    wait_for_output(&control, &id("exit"), "CapEff").await;
    let text = control.state.borrow().output[&id("exit")].clone();
    assert!(
        text.contains(&format!("65534\nred {}\n", id("exit"))),
        "{text}"
    );
    for (name, value) in [("NoNewPrivs", "1"), ("CapBnd", "0000000000000000")] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with(value), "{line}");
    }
    assert!(!text.contains("\nwritten"), "{text}");
    let offers_docker = |plane: &ControlPlaneState| {
        let last = plane.heartbeats.last();
        last.is_some_and(|heartbeat| heartbeat.inventory.runtimes.contains(&"docker".to_owned()))
    };
    let plane = control
        .wait_until("docker is an available runtime", offers_docker)
        .await;
    assert!(plane.heartbeats[0].inventory.capacity.extras["docker"] > 0);
    wait_for("the container is removed from the engine", || {
        container_ids(&id("exit")).is_empty().then_some(())
    });
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exceeding_the_memory_limit_is_distinguished_from_failure() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let _agent = start_agent(&control);
    let script = "echo begun; x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo $x";
    control.set_desired(entry_in_image("memory", script));
    let exit = control
        .wait_for_state(&id("memory"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::UserLimit, "{exit:?}");
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_finds_its_container_again() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let first = start_agent(&control);
    let script = "echo first; trap 'echo bye; exit 5' TERM; while :; do sleep 0.1; done";
    control.set_desired(entry_in_image("adopted", script));
    let before = control
        .wait_for_state(&id("adopted"), ContainerState::Running)
        .await;
    wait_for_output(&control, &id("adopted"), "first").await;
    let container_id = container_ids(&id("adopted"));
    control.set_desired(entry_in_image("short", "sleep 3; echo last; exit 3"));
    control
        .wait_for_state(&id("short"), ContainerState::Running)
        .await;
    // The container ends while no agent is running.
    first.kill();
    let short_id = container_ids(&id("short"));
    wait_for("the short container has ended", || {
        (docker_output(&["inspect", "--format", "{{.State.Status}}", &short_id]) == "exited")
            .then_some(())
    });
    control.change(|plane| plane.report = None);

    let _second = start_agent(&control);
    let after = control
        .wait_for_state(&id("adopted"), ContainerState::Running)
        .await;
    assert_eq!(
        (after.pid, after.started_at),
        (before.pid, before.started_at)
    );
    assert_eq!(
        container_ids(&id("adopted")),
        container_id,
        "the same container runs, and no other (I3)"
    );
    let exit = control.wait_for_exit(&id("short")).await;
    assert_eq!((exit.cause, exit.code), (ExitCause::UserError, Some(3)));
    wait_for_output(&control, &id("short"), "last").await;
    // The adopted container still writes output and can be stopped.
    control.set_goal(&id("adopted"), Goal::Stop);
    let exit = control.wait_for_exit(&id("adopted")).await;
    assert_eq!((exit.cause, exit.code), (ExitCause::Intended, Some(5)));
    wait_for_output(&control, &id("adopted"), "bye").await;
    // A new agent sends all output again. The segments contain each piece once.
    let engine_dir = control.state_dir().join("engine");
    let stored = std::fs::read_to_string(engine_dir.join(id("adopted").as_str()).join("output"));
    assert_eq!(stored.unwrap(), "first\nbye\n");
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_and_a_missing_program_are_reported() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let _agent = start_agent(&control);
    let mut missing_image = entry_in_image("image", "true");
    if let Program::Container { container, .. } = &mut missing_image.launch.program {
        container.image = "hayward-test/nowhere:1".into();
    }
    control.set_desired(missing_image);
    let exit = control
        .wait_for_state(&id("image"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::LaunchFailed);
    assert_eq!(exit.cause_code.as_deref(), Some("image_pull"));
    let mut missing_program = entry_in_image("program", "true");
    if let Program::Container { argv, .. } = &mut missing_program.launch.program {
        *argv = vec!["/no/such/program".into()];
    }
    control.set_desired(missing_program);
    let exit = control
        .wait_for_state(&id("program"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::LaunchFailed, "{exit:?}");
    assert!(exit.message.unwrap().contains("/no/such/program"));
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_sigterm_is_killed() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let _agent = start_agent(&control);
    control.set_desired(entry_in_image(
        "ignoring",
        "trap '' TERM; sleep 300 & while :; do sleep 1; done",
    ));
    let running = control
        .wait_for_state(&id("ignoring"), ContainerState::Running)
        .await;
    control.set_goal(&id("ignoring"), Goal::Stop);
    let exit = control
        .wait_for_state(&id("ignoring"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!((exit.cause, exit.code), (ExitCause::Intended, Some(137)));
    assert!(!is_alive(running.pid.unwrap()));
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_leftover_containers_and_no_engine_does_not_start() {
    let control = FakeControlPlane::start().await;
    let folder = control.state_dir().join("engine").join(id("left").as_str());
    std::fs::create_dir_all(folder).unwrap();
    let mut agent = Agent::start(&control, &[]);
    assert!(!agent.0.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_an_engine_refuses_images() {
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    control.set_desired(entry_in_image("nothing", "true"));
    let exit = control
        .wait_for_state(&id("nothing"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    assert_eq!(exit.cause_code.as_deref(), Some("not_offered"));
    remove_all_entries(&control).await;
}
