//! Tests with the container engine of this machine and an image built from its shell. Without an
//! engine the tests print that and pass.

use std::process::{Command, Output};

use hayward_container_manager_api::{ContainerState, DesiredEntry, Goal};
use hayward_vocabulary::{AllocationId, ContainerForm, ExitCause, Program};

use crate::agent::{Agent, clear};
use crate::control::{Control, is_alive, wait_for, wanted};

pub const SOCKET: &str = "/var/run/docker.sock";
const IMAGE: &str = "hayward-test/shell:1";
pub const MIB: u64 = 1 << 20;

fn docker(arguments: &[&str]) -> Option<Output> {
    let output = Command::new("docker").args(arguments).output().ok()?;
    output.status.success().then_some(output)
}

pub fn docker_output(arguments: &[&str]) -> String {
    let output = docker(arguments).unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns true if there is an engine with the image, and otherwise prints the reason.
pub fn ready() -> bool {
    if docker(&["version"]).is_none() {
        eprintln!("skipped: no container engine answers `docker version`");
        return false;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docker/test-image.sh");
    let made = docker(&["image", "inspect", IMAGE]).is_some()
        || Command::new(script)
            .arg(IMAGE)
            .status()
            .is_ok_and(|status| status.success());
    if !made {
        eprintln!("skipped: docker/test-image.sh cannot make {IMAGE}");
    }
    made
}

/// Returns an id that is unique per test, because all tests share the engine.
pub fn id(name: &str) -> AllocationId {
    AllocationId::new(format!("alc_{name}-{}", std::process::id())).unwrap()
}

pub fn inside(name: &str, script: &str) -> DesiredEntry {
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
    let mut entry = wanted(name, program, 1000);
    entry.id = id(name);
    entry.size.memory_bytes = 64 * MIB;
    entry
}

fn agent(control: &Control) -> Agent {
    let more = [
        ("HAYWARD_DOCKER_SOCKET", SOCKET),
        ("HAYWARD_DOCKER_NETWORK", "none"),
    ];
    Agent::start(control, &more)
}

/// Returns the ids of the engine's containers of this allocation, in any state.
pub fn engines(id: &AllocationId) -> String {
    let label = format!("label=hayward.allocation={id}");
    docker_output(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &label])
}

pub async fn output(control: &Control, id: &AllocationId, text: &str) {
    let has = |plane: &crate::control::ControlState| {
        plane
            .output
            .get(id)
            .is_some_and(|output| output.contains(text))
    };
    control.until(text, has).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_an_image_runs_with_limits_and_without_root() {
    if !ready() {
        return;
    }
    let control = Control::start().await;
    let _agent = agent(&control);
    let script = "id -u; echo $COLOUR $HAYWARD_ALLOCATION; cat /proc/self/status; \
                  echo x > /file && echo written; exit 7";
    control.want(inside("exit", script));
    let ended = control.reported(&id("exit"), ContainerState::Ended).await;
    let exit = ended.exit.unwrap();
    assert_eq!(
        (exit.cause, exit.code),
        (ExitCause::UserError, Some(7)),
        "{exit:?}"
    );
    assert!(exit.ended_at.is_some());
    assert!(
        exit.message
            .is_some_and(|words| words.contains("last output:")),
        "W13"
    );
    output(&control, &id("exit"), "CapEff").await;
    let text = control.plane.borrow().output[&id("exit")].clone();
    assert!(
        text.contains(&format!("65534\nred {}\n", id("exit"))),
        "{text}"
    );
    for (name, value) in [("NoNewPrivs", "1"), ("CapBnd", "0000000000000000")] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with(value), "{line}");
    }
    assert!(!text.contains("\nwritten"), "{text}");
    let offers = |plane: &crate::control::ControlState| {
        let last = plane.heartbeats.last();
        last.is_some_and(|beat| beat.inventory.runtimes.contains(&"docker".to_owned()))
    };
    let plane = control.until("docker on offer", offers).await;
    assert!(plane.heartbeats[0].inventory.capacity.extras["docker"] > 0);
    wait_for("nothing of it in the engine", || {
        engines(&id("exit")).is_empty().then_some(())
    });
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exceeding_the_memory_limit_is_distinguished_from_failure() {
    if !ready() {
        return;
    }
    let control = Control::start().await;
    let _agent = agent(&control);
    let script = "echo begun; x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo $x";
    control.want(inside("memory", script));
    let exit = control
        .reported(&id("memory"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::UserLimit, "{exit:?}");
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_finds_its_container_again() {
    if !ready() {
        return;
    }
    let control = Control::start().await;
    let first = agent(&control);
    let script = "echo first; trap 'echo bye; exit 5' TERM; while :; do sleep 0.1; done";
    control.want(inside("adopted", script));
    let before = control
        .reported(&id("adopted"), ContainerState::Running)
        .await;
    output(&control, &id("adopted"), "first").await;
    let made = engines(&id("adopted"));
    control.want(inside("short", "sleep 3; echo last; exit 3"));
    control
        .reported(&id("short"), ContainerState::Running)
        .await;
    // The container ends while no agent is running.
    first.kill();
    let short = engines(&id("short"));
    wait_for("the end of the short one", || {
        (docker_output(&["inspect", "--format", "{{.State.Status}}", &short]) == "exited")
            .then_some(())
    });
    control.change(|plane| plane.report = None);

    let _second = agent(&control);
    let after = control
        .reported(&id("adopted"), ContainerState::Running)
        .await;
    assert_eq!(
        (after.pid, after.started_at),
        (before.pid, before.started_at)
    );
    assert_eq!(
        engines(&id("adopted")),
        made,
        "I3: the same container, and no other"
    );
    let exit = control.exit_of(&id("short")).await;
    assert_eq!((exit.cause, exit.code), (ExitCause::UserError, Some(3)));
    output(&control, &id("short"), "last").await;
    // The adopted container still writes output and can be stopped.
    control.want_goal(&id("adopted"), Goal::Stop);
    let exit = control.exit_of(&id("adopted")).await;
    assert_eq!((exit.cause, exit.code), (ExitCause::Intended, Some(5)));
    output(&control, &id("adopted"), "bye").await;
    // A new agent sends all output again. The segments contain each piece once.
    let stored = control.state_dir().join("engine");
    let stored = std::fs::read_to_string(stored.join(id("adopted").as_str()).join("output"));
    assert_eq!(stored.unwrap(), "first\nbye\n");
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_and_a_missing_program_are_reported() {
    if !ready() {
        return;
    }
    let control = Control::start().await;
    let _agent = agent(&control);
    let mut nowhere = inside("image", "true");
    if let Program::Container { container, .. } = &mut nowhere.launch.program {
        container.image = "hayward-test/nowhere:1".into();
    }
    control.want(nowhere);
    let exit = control
        .reported(&id("image"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::LaunchFailed);
    assert_eq!(exit.cause_code.as_deref(), Some("image_pull"));
    let mut nothing = inside("program", "true");
    if let Program::Container { argv, .. } = &mut nothing.launch.program {
        *argv = vec!["/no/such/program".into()];
    }
    control.want(nothing);
    let exit = control
        .reported(&id("program"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::LaunchFailed, "{exit:?}");
    assert!(exit.message.unwrap().contains("/no/such/program"));
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_signals_is_killed_completely() {
    if !ready() {
        return;
    }
    let control = Control::start().await;
    let _agent = agent(&control);
    control.want(inside(
        "deaf",
        "trap '' TERM; sleep 300 & while :; do sleep 1; done",
    ));
    let running = control.reported(&id("deaf"), ContainerState::Running).await;
    control.want_goal(&id("deaf"), Goal::Stop);
    let exit = control
        .reported(&id("deaf"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!((exit.cause, exit.code), (ExitCause::Intended, Some(137)));
    assert!(!is_alive(running.pid.unwrap()));
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_leftover_containers_and_no_engine_does_not_start() {
    let control = Control::start().await;
    let folder = control.state_dir().join("engine").join(id("left").as_str());
    std::fs::create_dir_all(folder).unwrap();
    let mut agent = Agent::start(&control, &[]);
    assert!(!agent.0.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_an_engine_refuses_images() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    control.want(inside("nothing", "true"));
    let exit = control
        .reported(&id("nothing"), ContainerState::Ended)
        .await
        .exit
        .unwrap();
    assert_eq!(exit.cause, ExitCause::Node);
    assert_eq!(exit.cause_code.as_deref(), Some("not_offered"));
    clear(&control).await;
}
