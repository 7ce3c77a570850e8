//! Tests of accounts, privileges and limits of work (S16).

use std::collections::BTreeMap;
use std::process::Command;

use hayward_container_manager_api::{ContainerState, DesiredEntry};
use hayward_vocabulary::{Exit, ExitCause, Program};

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, id, shell, wait_for,
};

pub fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can run programs under other accounts");
    }
    root
}

/// Runs a container to its end, and parses its output lines as `name=value`.
pub async fn run_and_parse(
    control: &FakeControlPlane,
    entry: DesiredEntry,
) -> BTreeMap<String, String> {
    let id = entry.id.clone();
    control.set_desired(entry);
    let exit = control
        .wait_for_state(&id, ContainerState::Ended)
        .await
        .exit;
    assert_eq!(exit.unwrap().cause, ExitCause::Success);
    let output_text = control.state.borrow().output[&id].clone();
    let parse_line = |line: &str| {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        (name.to_owned(), value.trim().to_owned())
    };
    output_text.lines().map(parse_line).collect()
}

/// Script that prints account, limits and privileges of its process as `name=value`.
const IDENTITY_SCRIPT: &str = "echo uid=$(id -u); echo gid=$(id -g); echo groups=$(id -G); echo \
    pwd=$(pwd); \
    echo umask=$(umask); echo core=$(ulimit -c); echo files=$(ulimit -n); echo home=$HOME; \
    echo privileges=$(grep NoNewPrivs /proc/self/status | cut -f2); \
    echo tty=$(cut -d ' ' -f7 /proc/$$/stat); echo session=$(cut -d ' ' -f6 /proc/$$/stat); \
    touch here && echo wrote=here";

#[tokio::test(flavor = "multi_thread")]
async fn work_runs_under_the_account_of_its_user_without_privileges() {
    if !is_root() {
        return;
    }
    let control = FakeControlPlane::start().await;
    // The agent inherits this descriptor.
    let command_prefix = [
        "sh",
        "-c",
        "exec 7</dev/zero; umask 000; exec \"$0\" \"$@\"",
    ];
    let extra_variables = [("HAYWARD_RUN_AS_USERS", "ben=47002:47003")];
    let _agent =
        Agent::start_with_command_and_variables(&control, &command_prefix, &extra_variables);
    let ada = run_and_parse(&control, desired_entry("ada", shell(IDENTITY_SCRIPT), 1000)).await;
    let test_pid = std::process::id().to_string();
    for (name, value) in [
        ("uid", "65534"),
        ("gid", "65534"),
        ("groups", "65534"),
        ("umask", "0022"),
        ("core", "0"),
        ("privileges", "1"),
        ("tty", "0"),
        ("wrote", "here"),
    ] {
        assert_eq!(ada[name], value, "{name}: {ada:?}");
    }
    assert_ne!(ada["session"], test_pid, "work has its own session");
    assert!(ada["files"].parse::<u64>().unwrap() <= 65_536);
    // This program opens only the directory that it lists, as descriptor 3. A shell would open
    // pipes.
    let list_program = Program::Command {
        argv: ["ls", "/proc/self/fd"].map(str::to_owned).to_vec(),
    };
    let open_descriptors = run_and_parse(&control, desired_entry("open", list_program, 1000)).await;
    let open_descriptors: Vec<&str> = open_descriptors.keys().map(String::as_str).collect();
    assert_eq!(
        open_descriptors,
        ["0", "1", "2", "3"],
        "the program inherits no descriptor of the agent"
    );
    let work_dir = control.container_dir(&id("ada")).join("work");
    assert_eq!(ada["pwd"], work_dir.to_str().unwrap());
    assert_eq!(ada["home"], work_dir.to_str().unwrap());

    let mut entry = desired_entry("ben", shell(IDENTITY_SCRIPT), 1000);
    entry.user = "ben".parse().unwrap();
    let ben = run_and_parse(&control, entry).await;
    assert_eq!(
        (
            ben["uid"].as_str(),
            ben["gid"].as_str(),
            ben["groups"].as_str()
        ),
        ("47002", "47003", "47003")
    );
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_the_agent_is_not_passed_on() {
    let control = FakeControlPlane::start().await;
    let extra_variables = [
        ("HAYWARD_TEST_SECRET", "planted-1"),
        ("AWS_SECRET_ACCESS_KEY", "planted-2"),
        ("LD_PRELOAD", ""),
        ("LANG", "C.UTF-8"),
    ];
    let _agent = Agent::start(&control, &extra_variables);
    let environment = run_and_parse(&control, desired_entry("env", shell("exec env"), 1000)).await;
    let text = format!("{environment:?}");
    assert!(!text.contains("planted"), "{text}");
    assert_eq!(environment["LANG"], "C.UTF-8");
    assert_eq!(
        environment["COLOUR"], "red",
        "the variables of the order are set"
    );
    let allowed = [
        "PATH",
        "LANG",
        "LC_ALL",
        "TZ",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TMPDIR",
        "COLOUR",
        "HAYWARD_ALLOCATION",
        "HAYWARD_CONTAINER",
        "PWD",
        "_",
        "SHLVL",
        "OLDPWD",
    ];
    for name in environment.keys() {
        assert!(allowed.contains(&name.as_str()), "{name} leaked");
    }
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_configured_to_run_work_as_root_does_not_start() {
    let control = FakeControlPlane::start().await;
    for (name, value) in [
        ("HAYWARD_RUN_AS_UID", "0"),
        ("HAYWARD_RUN_AS_USERS", "ada=root"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_hayward-node-agent"))
            .env("HAYWARD_NODE", "node-1")
            .env("HAYWARD_TOKEN_FILE", control.token_file())
            .env("HAYWARD_STATE_DIR", control.state_dir())
            .env(name, value)
            .output()
            .unwrap();
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(output_text.contains("never runs as root"), "{output_text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_directory_is_entered_with_the_rights_of_the_work() {
    if !is_root() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let _agent = Agent::start(&control, &[]);
    let private_dir = control.dir.path().join("closed");
    std::fs::create_dir(&private_dir).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&private_dir, mode).unwrap();
    for (name, directory) in [
        ("closed", private_dir.to_str().unwrap()),
        ("relative", "work"),
    ] {
        let mut entry = desired_entry(name, shell("true"), 1000);
        entry.launch.working_directory = Some(directory.to_owned());
        control.set_desired(entry);
        let exit = control
            .wait_for_state(&id(name), ContainerState::Ended)
            .await
            .exit;
        assert_eq!(exit.unwrap().cause, ExitCause::LaunchFailed, "{name}");
    }
    remove_all_entries(&control).await;
}

/// Program that forks until it fails, and prints how often it succeeded.
const FORK_BOMB: &str = "n=0; while [ $n -lt 200 ] && (sleep 300 >&- 2>&- &) 2>&-; do \
    n=$((n+1)); done; ps --no-headers -u $(id -u) 2>&- | wc -l; echo forks $n; exit 9";

/// Maximum number of processes of the container with the fork bomb.
const PROCESSES_LIMIT: usize = 30;

/// Runs the fork bomb under the limit. Returns its exit, and how often it forked.
async fn run_fork_bomb(
    control: &FakeControlPlane,
    extra_variables: &[(&str, &str)],
) -> (Exit, usize) {
    let limit = PROCESSES_LIMIT.to_string();
    let variables = [extra_variables, &[("HAYWARD_PROCESSES_LIMIT", &limit)]].concat();
    let _agent = Agent::start(control, &variables);
    let script = FORK_BOMB.to_owned();
    control.set_desired(desired_entry("bomb", shell(&script), 1000));
    let exit = control
        .wait_for_state(&id("bomb"), ContainerState::Ended)
        .await
        .exit;
    let output_text = control.state.borrow().output.get(&id("bomb")).cloned();
    let output_text = output_text.unwrap_or_default();
    let forks = output_text
        .lines()
        .find_map(|line| line.strip_prefix("forks "));
    let forks = forks.map_or(0, |forks| forks.trim().parse().unwrap());
    remove_all_entries(control).await;
    (exit.unwrap(), forks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_limited_and_leaves_no_process() {
    if !is_root() {
        return;
    }
    // Without cgroups, processes are counted per account.
    let control = FakeControlPlane::start().await;
    let (exit, forks) = run_fork_bomb(&control, &[("HAYWARD_RUN_AS_UID", "47011")]).await;
    assert!(
        forks <= PROCESSES_LIMIT,
        "{forks} processes despite the limit: {exit:?}"
    );
    assert_eq!(exit.cause, ExitCause::UserError);
    let control = FakeControlPlane::start().await;
    // The default is the cgroup of the agent, of either version.
    let own_cgroup = ("HAYWARD_CGROUP_ROOT", "");
    let limits_label = |plane: &ControlPlaneState| {
        let heartbeat = plane.heartbeats.last();
        heartbeat.map(|heartbeat| heartbeat.inventory.labels["hayward.limits"].clone())
    };
    let (exit, forks) =
        run_fork_bomb(&control, &[("HAYWARD_RUN_AS_UID", "47012"), own_cgroup]).await;
    let limits_label = limits_label(&control.state.borrow()).unwrap();
    println!("limits here: {limits_label}");
    assert!(
        forks <= PROCESSES_LIMIT,
        "{forks} processes despite the limits {limits_label}: {exit:?}"
    );
    wait_for("all processes of the fork bombs have ended", || {
        let processes = Command::new("ps")
            .args(["--no-headers", "-u", "47011,47012"])
            .output();
        processes.unwrap().stdout.is_empty().then_some(())
    });
}
