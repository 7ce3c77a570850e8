//! Tests of accounts, privileges and limits of work (S16).

use std::collections::BTreeMap;
use std::process::Command;

use hayward_container_manager_api::{ContainerState, DesiredEntry};
use hayward_vocabulary::{Exit, ExitCause, Program};

use crate::agent::{Agent, clear};
use crate::control::{Control, ControlState, id, shell, wait_for, wanted};

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can change who its children are");
    }
    root
}

/// Runs a container to its end, and parses its output lines as `name=value`.
async fn run_and_parse(control: &Control, entry: DesiredEntry) -> BTreeMap<String, String> {
    let id = entry.id.clone();
    control.want(entry);
    let exit = control.reported(&id, ContainerState::Ended).await.exit;
    assert_eq!(exit.unwrap().cause, ExitCause::Success);
    let output_text = control.plane.borrow().output[&id].clone();
    let pair = |line: &str| {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        (name.to_owned(), value.trim().to_owned())
    };
    output_text.lines().map(pair).collect()
}

const IDENTITY: &str = "echo uid=$(id -u); echo gid=$(id -g); echo groups=$(id -G); echo \
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
    let control = Control::start().await;
    // The agent inherits this descriptor.
    let with_descriptor = [
        "sh",
        "-c",
        "exec 7</dev/zero; umask 000; exec \"$0\" \"$@\"",
    ];
    let more = [("HAYWARD_RUN_AS_USERS", "ben=47002:47003")];
    let _agent = Agent::start_with(&control, &with_descriptor, &more);
    let ada = run_and_parse(&control, wanted("ada", shell(IDENTITY), 1000)).await;
    let session = std::process::id().to_string();
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
    assert_ne!(ada["session"], session, "a session of its own");
    assert!(ada["files"].parse::<u64>().unwrap() <= 65_536);
    // This program opens only the directory that it lists, as descriptor 3. A shell would open
    // pipes.
    let list = Program::Command {
        argv: ["ls", "/proc/self/fd"].map(str::to_owned).to_vec(),
    };
    let open = run_and_parse(&control, wanted("open", list, 1000)).await;
    let open: Vec<&str> = open.keys().map(String::as_str).collect();
    assert_eq!(open, ["0", "1", "2", "3"], "descriptors of the agent's");
    let place = control.container_dir(&id("ada")).join("work");
    assert_eq!(ada["pwd"], place.to_str().unwrap());
    assert_eq!(ada["home"], place.to_str().unwrap());

    let mut entry = wanted("ben", shell(IDENTITY), 1000);
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
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_the_agent_is_not_passed_on() {
    let control = Control::start().await;
    let more = [
        ("HAYWARD_TEST_SECRET", "planted-1"),
        ("AWS_SECRET_ACCESS_KEY", "planted-2"),
        ("LD_PRELOAD", ""),
        ("LANG", "C.UTF-8"),
    ];
    let _agent = Agent::start(&control, &more);
    let run_and_parse = run_and_parse(&control, wanted("env", shell("exec env"), 1000)).await;
    let everything = format!("{run_and_parse:?}");
    assert!(!everything.contains("planted"), "{everything}");
    assert_eq!(run_and_parse["LANG"], "C.UTF-8");
    assert_eq!(run_and_parse["COLOUR"], "red", "what was ordered is there");
    let allowed = [
        "PATH",
        "LANG",
        "LC_ALL",
        "TZ",
        "HOME",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "COLOUR",
        "HAYWARD_ALLOCATION",
        "HAYWARD_CONTAINER",
        "PWD",
        "_",
        "SHLVL",
        "OLDPWD",
    ];
    for name in run_and_parse.keys() {
        assert!(allowed.contains(&name.as_str()), "{name} leaked");
    }
    clear(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_configured_to_run_work_as_root_does_not_start() {
    let control = Control::start().await;
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
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let closed = control.dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&closed, mode).unwrap();
    for (name, directory) in [("closed", closed.to_str().unwrap()), ("relative", "work")] {
        let mut entry = wanted(name, shell("true"), 1000);
        entry.launch.working_directory = Some(directory.to_owned());
        control.want(entry);
        let exit = control
            .reported(&id(name), ContainerState::Ended)
            .await
            .exit;
        assert_eq!(exit.unwrap().cause, ExitCause::LaunchFailed, "{name}");
    }
    clear(&control).await;
}

/// Program that forks until it fails, and prints how often it succeeded.
const BOMB: &str = "n=0; while [ $n -lt 200 ] && (sleep 300 >&- 2>&- &) 2>&-; do n=$((n+1)); done; \
    ps --no-headers -u $(id -u) 2>&- | wc -l; echo forks $n; exit 9";

async fn run_fork_bomb(control: &Control, more: &[(&str, &str)]) -> (Exit, usize) {
    let all = [more, &[("HAYWARD_PROCESSES_LIMIT", "30")]].concat();
    let _agent = Agent::start(control, &all);
    let script = BOMB.to_owned();
    control.want(wanted("bomb", shell(&script), 1000));
    let exit = control
        .reported(&id("bomb"), ContainerState::Ended)
        .await
        .exit;
    let output_text = control.plane.borrow().output.get(&id("bomb")).cloned();
    let output_text = output_text.unwrap_or_default();
    let forks = output_text
        .lines()
        .find_map(|line| line.strip_prefix("forks "));
    let forks = forks.map_or(0, |forks| forks.trim().parse().unwrap());
    clear(control).await;
    (exit.unwrap(), forks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_limited_and_leaves_no_process() {
    if !is_root() {
        return;
    }
    // Without cgroups, processes are counted per account.
    let control = Control::start().await;
    let (exit, forks) = run_fork_bomb(&control, &[("HAYWARD_RUN_AS_UID", "47011")]).await;
    assert!(
        forks < 31,
        "{forks} processes in spite of the limit: {exit:?}"
    );
    assert_eq!(exit.cause, ExitCause::UserError);
    let control = Control::start().await;
    // The default is the cgroup of the agent, of either version.
    let own = ("HAYWARD_CGROUP_ROOT", "");
    let limits = |plane: &ControlState| {
        let beat = plane.heartbeats.last();
        beat.map(|beat| beat.inventory.labels["hayward.limits"].clone())
    };
    let (exit, forks) = run_fork_bomb(&control, &[("HAYWARD_RUN_AS_UID", "47012"), own]).await;
    let limits = limits(&control.plane.borrow()).unwrap();
    println!("limits here: {limits}");
    assert!(
        forks < 31,
        "{forks} processes in spite of {limits}: {exit:?}"
    );
    wait_for("all of them gone", || {
        let all = Command::new("ps")
            .args(["--no-headers", "-u", "47011,47012"])
            .output();
        all.unwrap().stdout.is_empty().then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_lines_of_many_short_containers_are_stored() {
    let control = Control::start().await;
    let _agent = Agent::start(&control, &[]);
    let mut output_text = BTreeMap::new();
    for round in 0..6 {
        let names: Vec<String> = (0..20).map(|number| format!("r{round}n{number}")).collect();
        for name in &names {
            control.want(wanted(
                name,
                shell(&format!("echo first; printf 'last of {name}'")),
                1,
            ));
        }
        // Like container-manager, removes the entry as soon as the end is reported.
        let all = |plane: &ControlState| {
            names
                .iter()
                .all(|name| plane.ends.contains_key(&(id(name), 1)))
        };
        control.until("all have ended", all).await;
        control.change(|plane| plane.desired.clear());
        let plane = control.plane.borrow().clone();
        output_text.extend(names.into_iter().map(|name| {
            let text = plane.output.get(&id(&name)).cloned();
            (name, text.unwrap_or_default())
        }));
    }
    assert_eq!(output_text.len(), 120);
    for (name, text) in output_text {
        assert_eq!(text, format!("first\nlast of {name}"), "{name}");
    }
    clear(&control).await;
}
