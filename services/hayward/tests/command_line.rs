//! Tests the program as a user sees it: output and exit status.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output};

/// Runs the program with a state directory and a user as its only environment variables.
fn hayward(arguments: &[&str], state: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayward"));
    command
        .args(arguments)
        .env_clear()
        .env("HAYWARD_STATE", state)
        .env("USER", "ada");
    command.output().expect("the program can be started")
}

fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_lists_the_commands_and_hides_internal_ones() {
    let dir = tempfile::tempdir().unwrap();
    let result = hayward(&["--help"], dir.path());
    assert!(result.status.success());
    let help = to_text(&result.stdout);
    for expected in [
        "up",
        "submit",
        "explain",
        "shares",
        "block",
        "completion",
        "--json",
        "--state",
    ] {
        assert!(help.contains(expected), "{expected}: {help}");
    }
    assert!(!help.contains("node-agent"), "{help}");
    let result = hayward(&["submit", "--help"], dir.path());
    assert!(result.status.success() && to_text(&result.stdout).contains("{task}"));
}

#[test]
fn the_name_of_a_link_selects_the_program() {
    let dir = tempfile::tempdir().unwrap();
    for (name, setting) in [
        ("rm-scheduler", "--round-min-ms"),
        ("node-agent", "--state-dir"),
    ] {
        let link = dir.path().join(format!("hayward-{name}"));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hayward"), &link).unwrap();
        let result = Command::new(&link).arg("--help").env_clear().output();
        let result = result.unwrap();
        let help = to_text(&result.stdout);
        assert!(result.status.success(), "{}", to_text(&result.stderr));
        assert!(help.contains(setting), "{name}: {help}");
    }
}

#[test]
fn a_shell_gets_a_completion_script() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let result = hayward(&["completion", shell], dir.path());
        assert!(
            result.status.success() && to_text(&result.stdout).contains("timeline"),
            "{shell}"
        );
    }
}

#[test]
fn groups_need_a_user_and_a_valid_name() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    let prepare = |arguments: &[&str]| {
        let all = ["prepare", "--keys", keys.to_str().unwrap()];
        hayward(&[&all, arguments].concat(), dir.path())
    };
    let good = prepare(&["--user", "ann", "--group", "dev", "--group", "ops"]);
    assert!(good.status.success(), "{}", to_text(&good.stderr));
    let bad = prepare(&["--user", "ann", "--group", "a b"]);
    assert!(!bad.status.success() && to_text(&bad.stderr).contains("group \"a b\" must have"));
    for arguments in [
        &["--group", "dev"][..],
        &["--no-groups"],
        &["--user", "ann", "--group", "dev", "--no-groups"],
    ] {
        assert_eq!(prepare(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn invalid_arguments_end_with_status_2() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["fly"][..],
        &["submit", "--nothing"],
        &["watch"],
        &["logs", "job_1", "--tail", "x"],
    ] {
        let result = hayward(arguments, dir.path());
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
        assert!(
            result.stdout.is_empty() && to_text(&result.stderr).contains("error:"),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_missing_fleet_gives_the_command_that_starts_one() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["jobs"][..],
        &["submit", "--", "true"],
        &["status"],
        &["shares", "--json"],
        &["block", "node-1"],
        &["policy", "show"],
    ] {
        let result = hayward(arguments, dir.path());
        let output = to_text(&result.stderr);
        assert_eq!(result.status.code(), Some(1), "{arguments:?}: {output}");
        assert!(result.stdout.is_empty(), "{arguments:?}");
        assert!(
            output.starts_with("hayward: no fleet found in "),
            "{arguments:?}: {output}"
        );
        assert!(
            output.contains("`hayward up`") && output.lines().count() == 1,
            "{arguments:?}: {output}"
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
    let result = hayward(&["replay", saved], dir.path());
    let output = to_text(&result.stdout);
    assert_eq!(result.status.code(), Some(0), "{}", to_text(&result.stderr));
    assert!(output.contains("the same plan, to the byte"), "{output}");

    // A changed node in the recorded plan makes the two plans differ.
    let recorded = std::fs::read_to_string(saved).unwrap();
    let (inputs, plan) = recorded.split_once("\"plan\":").unwrap();
    let plan = plan.replacen("\"node\":\"node-", "\"node\":\"elsewhere-", 1);
    let other = dir.path().join("other.json");
    std::fs::write(&other, format!("{inputs}\"plan\":{plan}")).unwrap();
    let result = hayward(&["replay", other.to_str().unwrap()], dir.path());
    let output = to_text(&result.stdout);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        output.contains("/grants/0/node: recorded \"elsewhere-"),
        "{output}"
    );
}

#[test]
fn an_unreachable_service_is_named() {
    let dir = tempfile::tempdir().unwrap();
    // The listener finds a free port and is closed, so that no service answers there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let result = Command::new(env!("CARGO_BIN_EXE_hayward"))
        .arg("jobs")
        .env_clear()
        .env("HAYWARD_STATE", dir.path())
        .env("HAYWARD_TOKEN", "t")
        .env("HAYWARD_JOB_CONVERTER_URL", format!("http://{address}"))
        .output()
        .unwrap();
    let output = to_text(&result.stderr);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        output.contains("cannot reach GET") && output.contains("hayward status"),
        "{output}"
    );
}

/// Answers one request with this body. Returns the first line of the request.
fn respond_once(listener: std::net::TcpListener, body: String) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client connects");
        let mut reader = BufReader::new(&stream);
        let mut request_line = String::new();
        reader.read_line(&mut request_line).expect("a request line");
        let mut line = String::from("more");
        while !line.trim().is_empty() {
            line.clear();
            reader.read_line(&mut line).expect("headers");
        }
        let response_head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        (&stream)
            .write_all(response_head.as_bytes())
            .expect("the response is sent");
        (&stream)
            .write_all(body.as_bytes())
            .expect("the response is sent");
        request_line
    })
}

#[test]
fn a_worker_of_a_pool_is_explained_by_the_scheduler() {
    let dir = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let verdict = serde_json::json!({
        "work": "wp_7.1", "reason": "no_host_large_enough", "since": "2026-11-27T10:00:00Z",
        "detail": "asks for 9 quanta, the largest node has 4",
        "numbers": { "order": 9 },
    });
    let requested = respond_once(listener, verdict.to_string());
    let result = Command::new(env!("CARGO_BIN_EXE_hayward"))
        .args(["explain", "wp_7.1"])
        .env_clear()
        .env("HAYWARD_STATE", dir.path())
        .env("HAYWARD_TOKEN", "t")
        .env("HAYWARD_RM_SCHEDULER_URL", format!("http://{address}"))
        .output()
        .unwrap();
    let output = to_text(&result.stdout);
    assert!(result.status.success(), "{}", to_text(&result.stderr));
    assert!(output.contains("no host large enough") && output.contains("the largest node has 4"));
    assert!(
        requested
            .join()
            .unwrap()
            .starts_with("GET /v1/verdicts/wp_7.1 ")
    );
    let pool = hayward(&["explain", "wp_7"], dir.path());
    assert!(to_text(&pool.stderr).contains("`hayward pool show wp_7`"));
}

#[test]
fn the_help_of_node_off_states_that_services_stay() {
    let dir = tempfile::tempdir().unwrap();
    let help = to_text(&hayward(&["node", "off", "--help"], dir.path()).stdout);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("services and reservations stay there"),
        "{help}"
    );
}

#[test]
fn settings_are_checked_without_starting_anything() {
    let dir = tempfile::tempdir().unwrap();
    let good = hayward(
        &["config", "check", "rm-scheduler", "--round-min-ms", "20"],
        dir.path(),
    );
    assert!(good.status.success(), "{}", to_text(&good.stderr));
    assert!(to_text(&good.stdout).contains("settings of rm-scheduler are good"));
    for (arguments, name) in [
        (
            &["config", "check", "blocklist", "--no-such-thing", "1"][..],
            "--no-such-thing",
        ),
        (
            &["config", "check", "node-status", "--lost-ms", "soon"],
            "--lost-ms",
        ),
    ] {
        let bad = hayward(arguments, dir.path());
        assert_eq!(bad.status.code(), Some(1), "{arguments:?}");
        assert!(
            to_text(&bad.stderr).contains(name),
            "{arguments:?}: {}",
            to_text(&bad.stderr)
        );
    }
    let help = hayward(&["config", "check", "job-converter", "--help"], dir.path());
    assert!(help.status.success() && to_text(&help.stdout).contains("HAYWARD_RM_SCHEDULER_URL"));
    let named = hayward(&["config", "check", "nothing"], dir.path());
    assert_eq!(named.status.code(), Some(2));
}

#[test]
fn a_file_with_a_wrong_field_is_refused_without_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.yaml");
    std::fs::write(&file, "command: [echo]\ntaks: {count: 2}\n").unwrap();
    let result = hayward(&["submit", "--file", file.to_str().unwrap()], dir.path());
    let output = to_text(&result.stderr);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        output.contains("job.yaml") && output.contains("taks"),
        "{output}"
    );
}

/// Writes a valid policy and a policy with three faults. Returns the paths of the two files.
fn write_policies(dir: &std::path::Path) -> (String, String) {
    let good = "pools: {default: {}, gpu: {parent: default, pattern: 'gpu-[0-9]+'}}\nclasses:\n  \
                base: {abstract: true, policy: FAIR_SHARE, pool: default}\n  \
                normal: {parent: base, default: true}\n  \
                fast: {parent: base, pool: gpu, cap: 3}\n";
    let bad = good
        .replace("parent: default", "parent: gpu")
        .replace("cap: 3", "weight: 0, pol: 1");
    let paths = [("good.yaml", good), ("bad.yaml", &bad)].map(|(name, text)| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    });
    let [good, bad] = paths;
    (good, bad)
}

#[test]
fn a_policy_is_checked_without_a_fleet() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = write_policies(dir.path());
    let result = hayward(&["policy", "check", &good], dir.path());
    assert!(result.status.success(), "{}", to_text(&result.stderr));
    assert!(
        to_text(&result.stdout).starts_with("nothing is wrong with it: 2 pool(s), 3 class(es)")
    );
    assert!(to_text(&result.stderr).contains("/classes/fast/cap: is accepted and has no effect"));

    let result = hayward(&["policy", "check", &bad], dir.path());
    assert_eq!(result.status.code(), Some(1));
    let output = to_text(&result.stderr);
    let lines: Vec<&str> = output.lines().collect();
    assert!(
        lines[0].contains("bad.yaml: the policy has 3 fault(s)"),
        "{output}"
    );
    // Each fault is on a line of its own, after the summary.
    for (line, start) in [
        (1, "  /classes/fast/pol: unknown field"),
        (2, "  /classes/fast/weight: must be at least 1"),
        (3, "  /pools/gpu/parent: pools form a cycle"),
    ] {
        assert!(lines[line].starts_with(start), "{output}");
    }
    let result = hayward(&["--json", "policy", "check", &bad], dir.path());
    assert_eq!(result.status.code(), Some(1));
    let faults: serde_json::Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!(faults["faults"].as_array().unwrap().len(), 3);
}

#[test]
fn the_configuration_of_ducc_is_imported_without_a_fleet() {
    let dir = tempfile::tempdir().unwrap();
    let samples = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../rm-scheduler/policy/samples"
    );
    let file = |name: &str| format!("{samples}/{name}");
    let (classes, users) = (file("village.classes"), file("village.users"));
    let properties = file("village.properties");
    let arguments = [
        "policy",
        "import",
        &classes,
        "--users",
        &users,
        "--properties",
        &properties,
    ];
    let result = hayward(&arguments, dir.path());
    assert!(result.status.success(), "{}", to_text(&result.stderr));
    assert!(to_text(&result.stderr).contains("village.properties:6: ducc.rm.node.stability"));
    let written = dir.path().join("village.yaml");
    std::fs::write(&written, &result.stdout).unwrap();
    let result = hayward(&["policy", "check", written.to_str().unwrap()], dir.path());
    assert!(result.status.success(), "{}", to_text(&result.stderr));

    let broken = dir.path().join("broken.classes");
    let stanzas = std::fs::read_to_string(&classes).unwrap();
    std::fs::write(&broken, stanzas.replace("weight = 300", "weight = much")).unwrap();
    let arguments = [
        "policy",
        "import",
        broken.to_str().unwrap(),
        "--nodes-dir",
        samples,
    ];
    let result = hayward(&arguments, dir.path());
    assert_eq!(result.status.code(), Some(1));
    assert!(to_text(&result.stderr).contains("broken.classes:22: harvest: weight is \"much\""));
}
