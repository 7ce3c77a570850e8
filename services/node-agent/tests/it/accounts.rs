//! Tests of the accounts that programs of several users run as (TC-21).

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use hayward_container_manager_api::{ContainerState, DesiredEntry};
use hayward_vocabulary::launch::LaunchAccount;
use hayward_vocabulary::{Exit, ExitCause};

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{FakeControlPlane, desired_entry, id, shell};
use crate::hardening::{is_root, run_and_parse};

/// Script that prints account and variables of its process as `name=value`.
const ACCOUNT_SCRIPT: &str = "echo uid=$(id -u); echo gid=$(id -g); echo groups=$(id -G); \
    echo user=$USER; echo logname=$LOGNAME; echo home=$HOME; echo shell=$SHELL; \
    touch \"$HOME/here\" && echo wrote=here";

fn entry_of(name: &str, user: &str, number: u32, script: &str) -> DesiredEntry {
    let mut entry = desired_entry(name, shell(script), 1000);
    entry.user = user.parse().unwrap();
    entry.launch.account = Some(LaunchAccount {
        user: entry.user.clone(),
        number,
    });
    entry
}

async fn end_of(control: &FakeControlPlane, entry: DesiredEntry) -> Exit {
    let id = entry.id.clone();
    control.set_desired(entry);
    let ended = control.wait_for_state(&id, ContainerState::Ended).await;
    ended.exit.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_users_have_two_accounts_without_further_groups() {
    if !is_root() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let homes = control.dir.path().join("homes");
    std::fs::create_dir(&homes).unwrap();
    let home_root = homes.to_str().unwrap();
    let variables = [
        ("HAYWARD_RUN_AS", "range"),
        ("HAYWARD_HOME_ROOT", home_root),
    ];
    let _agent = Agent::start(&control, &variables);
    for (user, number) in [("ada", 4), ("ben", 5)] {
        let entry = entry_of(user, user, number, ACCOUNT_SCRIPT);
        let found = run_and_parse(&control, entry).await;
        let uid = (1_900_000_000 + number).to_string();
        let home = homes.join(user);
        for (name, value) in [
            ("uid", uid.as_str()),
            ("gid", &uid),
            ("groups", &uid),
            ("user", user),
            ("logname", user),
            ("home", home.to_str().unwrap()),
            ("shell", "/bin/sh"),
            ("wrote", "here"),
        ] {
            assert_eq!(found[name], value, "{name}: {found:?}");
        }
        let owner = std::fs::metadata(&home).unwrap();
        assert_eq!(owner.uid().to_string(), uid);
        assert_eq!(owner.mode() & 0o777, 0o700);
    }
    remove_all_entries(&control).await;
}

/// (TC-23)
#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_an_allowed_account_starts_nothing_and_learns_why() {
    if !is_root() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let agent = Agent::start(&control, &[("HAYWARD_RUN_AS", "system")]);
    let refused = end_of(&control, entry_of("refused", "daemon", 1, "true")).await;
    assert_eq!(refused.cause, ExitCause::LaunchFailed);
    let message = "the system user \"daemon\" has uid 1, and work runs as no uid below 1000";
    assert_eq!(refused.message.as_deref(), Some(message));
    assert!(!control.container_dir(&id("refused")).exists());
    drop(agent);
    let _agent = Agent::start(&control, &[]);
    let beyond = end_of(&control, entry_of("beyond", "daemon", 70_000, "true")).await;
    assert_eq!(beyond.cause_code.as_deref(), Some("not_offered"));
    let passed_over = run_and_parse(&control, entry_of("over", "daemon", 2, ACCOUNT_SCRIPT)).await;
    assert_eq!(passed_over["uid"], "1900000002");
    remove_all_entries(&control).await;
}

/// (TC-21)
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_two_users_in_one_account_does_not_start() {
    if !is_root() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let output = Command::new(env!("CARGO_BIN_EXE_hayward-node-agent"))
        .env("HAYWARD_NODE", "node-1")
        .env("HAYWARD_TOKEN_FILE", control.token_file())
        .env("HAYWARD_STATE_DIR", control.state_dir())
        .env("HAYWARD_RUN_AS_USERS", "ada=4001, ben=4001")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in ["ada", "ben", "uid 4001", "shared_accounts"] {
        assert!(text.contains(part), "{text:?} does not name {part}");
    }
}
