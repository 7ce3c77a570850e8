//! Tests of the layers of settings: file, environment and flags.

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(default)]
struct Settings {
    #[serde(flatten)]
    server: ServerSettings,
    lost_after_ms: u64,
    pools: Vec<String>,
    node_status_url: String,
    quantum: Option<u64>,
}

fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, OsString> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.into()))
        .collect()
}

fn read_settings(args: &[&str], pairs: &[(&str, &str)]) -> anyhow::Result<Outcome<Settings>> {
    read(
        "rm-scheduler",
        args.iter().map(OsString::from),
        &environment(pairs),
    )
}

fn settings(args: &[&str], pairs: &[(&str, &str)]) -> Settings {
    match read_settings(args, pairs).unwrap() {
        Outcome::Settings(settings) => settings,
        Outcome::Text(text) => panic!("{text}"),
    }
}

fn error_text(args: &[&str], pairs: &[(&str, &str)]) -> String {
    format!("{:#}", read_settings(args, pairs).unwrap_err())
}

#[test]
fn the_defaults_are_safe() {
    let settings = settings(&[], &[("PATH", "/bin")]);
    assert!(settings.server.listen.ip().is_loopback());
    assert!(!settings.server.allow_insecure && settings.server.database_url.is_none());
    assert!(
        settings
            .server
            .database_url()
            .unwrap_err()
            .to_string()
            .contains("database_url")
    );
    assert_eq!(settings.server.lease_ms, 5_000);
}

#[test]
fn the_strongest_layer_wins() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hayward.toml");
    std::fs::write(
        &file,
        "lease_ms = 1\nlost_after_ms = 1\nquantum = 1\npools = ['a']\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let pairs = [
        ("HAYWARD_LEASE_MS", "2"),
        ("HAYWARD_LOST_AFTER_MS", "2"),
        ("HAYWARD_RM_SCHEDULER_LOST_AFTER_MS", "3"),
    ];
    let settings = settings(&["--config", file, "--lease-ms=4"], &pairs);
    assert_eq!(settings.server.lease_ms, 4, "flag over environment");
    assert_eq!(settings.lost_after_ms, 3, "own variable over shared one");
    assert_eq!(settings.quantum, Some(1), "file over default");
    assert_eq!(settings.pools, ["a"]);
}

#[test]
fn the_type_of_a_setting_decides_how_a_text_is_read() {
    let args = [
        "--allow-insecure",
        "--pools",
        "a, b",
        "--keys",
        "/k",
        "--log-format=json",
    ];
    let pairs = [
        ("HAYWARD_QUANTUM", "5"),
        ("HAYWARD_DATABASE_URL", "12"),
        ("HAYWARD_LISTEN", "0.0.0.0:7401"),
        ("HAYWARD_LOG_FILTER", "true"),
    ];
    let settings = settings(&args, &pairs);
    assert!(settings.server.allow_insecure);
    assert_eq!(settings.pools, ["a", "b"]);
    assert_eq!(settings.quantum, Some(5));
    assert_eq!(
        settings.server.database_url.as_deref(),
        Some("12"),
        "an option of text stays text"
    );
    assert_eq!(settings.server.log_filter, "true");
    assert_eq!(settings.server.log_format, LogFormat::Json);
    assert_eq!(settings.server.listen.port(), 7401);
}

#[test]
fn an_unknown_or_invalid_setting_is_named_with_its_source() {
    assert!(error_text(&["--leese-ms", "1"], &[]).contains("--leese-ms"));
    assert!(error_text(&["stray"], &[]).contains("stray"));
    assert!(error_text(&["--lease-ms"], &[]).contains("--lease-ms"));
    assert!(error_text(&["--lease-ms", "soon"], &[]).contains("--lease-ms"));
    assert!(error_text(&[], &[("HAYWARD_LEESE_MS", "1")]).contains("HAYWARD_LEESE_MS"));
    assert!(error_text(&[], &[("HAYWARD_LEASE_MS", "soon")]).contains("HAYWARD_LEASE_MS"));
    let own = [("HAYWARD_RM_SCHEDULER_LEESE_MS", "1")];
    assert!(error_text(&[], &own).contains("HAYWARD_RM_SCHEDULER_LEESE_MS"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hayward.toml");
    std::fs::write(&file, "leese_ms = 1\n").unwrap();
    let config = [("HAYWARD_CONFIG", file.to_str().unwrap())];
    assert!(error_text(&[], &config).contains("leese_ms"));
    std::fs::write(&file, "lease_ms = 'soon'\n").unwrap();
    assert!(error_text(&[], &config).contains("lease_ms"));
}

#[test]
fn an_error_does_not_repeat_the_address_of_a_database() {
    let text = error_text(&[], &[("HAYWARD_LISTEN", "postgres://me:hush@db/x")]);
    assert!(
        text.contains("HAYWARD_LISTEN") && !text.contains("hush"),
        "{text}"
    );
}

#[test]
fn variables_of_other_programs_are_ignored() {
    let pairs = [
        ("HAYWARD_BLOCKLIST_LISTEN", "127.0.0.1:7404"),
        ("HAYWARD_RM_SCHEDULER_URL", "http://127.0.0.1:7401"),
        ("HAYWARD_NODE_STATUS_URL", "http://127.0.0.1:7403"),
        ("HAYWARD_STATE_DIR", "/var/lib/hayward"),
        ("HAYWARD_STATE", "/var/lib/hayward"),
        ("HAYWARD_ENROLMENT_SECRET_FILE", "/secret"),
        ("HAYWARD_TASK_LEASE_MS", "1"),
        ("HAYWARD_NODE_AGENT_OTLP_ENDPOINT_FILE", "/endpoint"),
    ];
    let settings = settings(&[], &pairs);
    assert_eq!(settings.node_status_url, "http://127.0.0.1:7403");
    assert_eq!(settings.server.listen.port(), 0);
}

#[test]
fn help_lists_every_setting() {
    let Outcome::Text(text) = read_settings(&["--help"], &[]).unwrap() else {
        panic!("no help")
    };
    let known = serde_json::to_value(Settings::default()).unwrap();
    for name in known.as_object().unwrap().keys() {
        assert!(
            text.contains(&format!("--{}", name.replace('_', "-"))),
            "{name}"
        );
    }
    assert!(text.contains("HAYWARD_LEASE_MS") && text.contains("5000"));
    assert!(text.contains("Milliseconds from the last renewal"));
}

#[test]
fn an_error_suggests_the_most_similar_name() {
    let assert_suggests = |text: &str, name: &str| {
        assert!(text.contains(&format!("did you mean {name}?")), "{text}");
    };
    assert_suggests(&error_text(&["--leese-ms", "1"], &[]), "--lease-ms");
    assert_suggests(
        &error_text(&[], &[("HAYWARD_LEESE_MS", "1")]),
        "HAYWARD_LEASE_MS",
    );
    let own = [("HAYWARD_RM_SCHEDULER_LEESE_MS", "1")];
    assert_suggests(&error_text(&[], &own), "HAYWARD_RM_SCHEDULER_LEASE_MS");
    let other = [("HAYWARD_BLOCKLIST_TRAIL_MS", "1")];
    assert_suggests(&error_text(&[], &other), "HAYWARD_BLOCKLIST_TRIAL_MS");
    let strange = error_text(&[], &[("HAYWARD_ZZZZZZZZZZZZ", "1")]);
    assert!(!strange.contains("did you mean"), "{strange}");
}

#[test]
fn one_file_serves_all_programs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hayward.toml");
    let config = [("HAYWARD_CONFIG", file.to_str().unwrap())];
    std::fs::write(&file, "lease_ms = 7\ntrial_ms = 1\n").unwrap();
    assert_eq!(settings(&[], &config).server.lease_ms, 7);
    std::fs::write(&file, "trail_ms = 1\n").unwrap();
    assert!(error_text(&[], &config).contains("did you mean trial_ms?"));
}

#[test]
fn a_switch_takes_an_optional_value() {
    for (args, on) in [
        (&["--allow-insecure", "false"][..], false),
        (&["--allow-insecure=false"], false),
        (&["--allow-insecure", "true"], true),
        (&["--allow-insecure", "--lease-ms", "1"], true),
        (&["--allow-insecure"], true),
    ] {
        let settings = settings(args, &[("HAYWARD_ALLOW_INSECURE", "true")]);
        assert_eq!(settings.server.allow_insecure, on, "{args:?}");
    }
    assert!(error_text(&["--allow-insecure", "no"], &[]).contains("no: there is no such flag"));
}

#[test]
fn the_standard_variable_of_a_collector_is_the_weakest_layer() {
    let standard = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let endpoint = |pairs: &[(&str, &str)]| settings(&[], pairs).server.otlp_endpoint;
    assert_eq!(endpoint(&[standard]).as_deref(), Some(standard.1));
    let own = ("HAYWARD_OTLP_ENDPOINT", "http://127.0.0.1:1");
    assert_eq!(endpoint(&[standard, own]).as_deref(), Some(own.1));
    assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), None);
}

/// The connection is refused before it is opened (S25).
#[test]
fn a_remote_database_without_tls_is_refused() {
    let plain = ("HAYWARD_DATABASE_URL", "postgres://me:hush@db/x");
    let found = settings(&[], &[plain]);
    let error = found.server.database_url().unwrap_err().to_string();
    assert!(error.contains("sslmode=verify-full"), "{error}");
    assert!(!error.contains("hush"), "{error}");
    let allowed = settings(&[], &[plain, ("HAYWARD_ALLOW_INSECURE", "true")]);
    assert!(allowed.server.database_url().is_ok());
    let collector = ("HAYWARD_OTLP_ENDPOINT", "http://collector:4318");
    let found = settings(&[], &[collector, ("HAYWARD_DATABASE_URL", "postgres:///x")]);
    assert!(found.server.database_url().is_err());
}

#[test]
fn a_secret_may_be_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("database.url");
    let address = "postgres://me:hush@db/x?sslmode=verify-full";
    std::fs::write(&file, format!("{address}\n")).unwrap();
    let path = file.to_str().unwrap();
    let found = settings(&[], &[("HAYWARD_DATABASE_URL_FILE", path)]);
    assert_eq!(found.server.database_url().unwrap(), address);
    let own = [("HAYWARD_RM_SCHEDULER_DATABASE_URL_FILE", path)];
    assert!(settings(&[], &own).server.database_url.is_some());
    let missing = [("HAYWARD_DATABASE_URL_FILE", "/nowhere/x")];
    assert!(error_text(&[], &missing).contains("HAYWARD_DATABASE_URL_FILE"));
}
