//! The program as a person meets it: what it prints where, and how it ends.

use std::process::{Command, Output};

/// The program with nothing of this process' surroundings but the path.
fn hayward(words: &[&str], state: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayward"));
    command
        .args(words)
        .env_clear()
        .env("HAYWARD_STATE", state)
        .env("USER", "ada");
    command.output().expect("the program can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_names_the_commands_and_hides_those_for_machines() {
    let dir = tempfile::tempdir().unwrap();
    let told = hayward(&["--help"], dir.path());
    assert!(told.status.success());
    let help = text(&told.stdout);
    for word in [
        "up",
        "submit",
        "explain",
        "shares",
        "block",
        "completion",
        "--json",
        "--state",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("node-agent"), "{help}");
    let told = hayward(&["submit", "--help"], dir.path());
    assert!(told.status.success() && text(&told.stdout).contains("{task}"));
}

#[test]
fn a_shell_can_complete_it() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let told = hayward(&["completion", shell], dir.path());
        assert!(
            told.status.success() && text(&told.stdout).contains("timeline"),
            "{shell}"
        );
    }
}

#[test]
fn what_is_not_understood_ends_with_2() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        &["fly"][..],
        &["submit", "--nothing"],
        &["watch"],
        &["logs", "job_1", "--task", "x"],
    ] {
        let told = hayward(words, dir.path());
        assert_eq!(told.status.code(), Some(2), "{words:?}");
        assert!(
            told.stdout.is_empty() && text(&told.stderr).contains("error:"),
            "{words:?}"
        );
    }
}

#[test]
fn without_a_fleet_every_question_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        &["jobs"][..],
        &["submit", "--", "true"],
        &["status"],
        &["shares", "--json"],
        &["block", "node-1"],
        &["policy", "show"],
    ] {
        let told = hayward(words, dir.path());
        let said = text(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{words:?}: {said}");
        assert!(told.stdout.is_empty(), "{words:?}");
        assert!(
            said.starts_with("hayward: no fleet found in "),
            "{words:?}: {said}"
        );
        assert!(
            said.contains("`hayward up`") && said.lines().count() == 1,
            "{words:?}: {said}"
        );
    }
}

#[test]
fn a_saved_round_is_replayed_without_a_fleet() {
    let dir = tempfile::tempdir().unwrap();
    let saved = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../rm-scheduler/tests/rounds/room-after-a-newcomer.json"
    );
    let told = hayward(&["replay", saved], dir.path());
    let said = text(&told.stdout);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    assert!(said.contains("the same plan, to the byte"), "{said}");

    let kept = std::fs::read_to_string(saved).unwrap();
    let (inputs, plan) = kept.split_once("\"plan\":").unwrap();
    let plan = plan.replacen("\"node\":\"node-", "\"node\":\"elsewhere-", 1);
    let other = dir.path().join("other.json");
    std::fs::write(&other, format!("{inputs}\"plan\":{plan}")).unwrap();
    let told = hayward(&["replay", other.to_str().unwrap()], dir.path());
    let said = text(&told.stdout);
    assert_eq!(told.status.code(), Some(1));
    assert!(said.contains("/grants/0/node: kept \"elsewhere-"), "{said}");
}

#[test]
fn a_service_that_is_away_is_named() {
    let dir = tempfile::tempdir().unwrap();
    // A port that was free a moment ago, and that nobody is given while we hold it.
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    drop(held);
    let told = Command::new(env!("CARGO_BIN_EXE_hayward"))
        .arg("jobs")
        .env_clear()
        .env("HAYWARD_STATE", dir.path())
        .env("HAYWARD_TOKEN", "t")
        .env("HAYWARD_JOB_CONVERTER_URL", format!("http://{address}"))
        .output()
        .unwrap();
    let said = text(&told.stderr);
    assert_eq!(told.status.code(), Some(1));
    assert!(
        said.contains("cannot reach GET") && said.contains("hayward status"),
        "{said}"
    );
}

#[test]
fn settings_are_checked_without_starting_anything() {
    let dir = tempfile::tempdir().unwrap();
    let good = hayward(
        &["config", "check", "rm-scheduler", "--round-min-ms", "20"],
        dir.path(),
    );
    assert!(good.status.success(), "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains("settings of rm-scheduler are good"));
    for (words, name) in [
        (
            &["config", "check", "blocklist", "--no-such-thing", "1"][..],
            "--no-such-thing",
        ),
        (
            &["config", "check", "node-status", "--lost-ms", "soon"],
            "--lost-ms",
        ),
    ] {
        let bad = hayward(words, dir.path());
        assert_eq!(bad.status.code(), Some(1), "{words:?}");
        assert!(
            text(&bad.stderr).contains(name),
            "{words:?}: {}",
            text(&bad.stderr)
        );
    }
    let help = hayward(&["config", "check", "job-converter", "--help"], dir.path());
    assert!(help.status.success() && text(&help.stdout).contains("HAYWARD_RM_SCHEDULER_URL"));
    let named = hayward(&["config", "check", "nothing"], dir.path());
    assert_eq!(named.status.code(), Some(2));
}

#[test]
fn a_file_with_a_wrong_field_is_refused_before_anybody_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.yaml");
    std::fs::write(&file, "command: [echo]\ntaks: {count: 2}\n").unwrap();
    let told = hayward(&["submit", "--file", file.to_str().unwrap()], dir.path());
    let said = text(&told.stderr);
    assert_eq!(told.status.code(), Some(1));
    assert!(said.contains("job.yaml") && said.contains("taks"), "{said}");
}
