//! Checks that the files of the observability stack agree: parts of pipelines, addresses and ports,
//! certificates. The test reads the files and runs none of the programs, because not every machine
//! can install them.

use std::collections::BTreeSet;
use std::path::Path;

use hayward_tests_house::{assert_none, read};
use serde_json::Value;

const FOLDER: &str = "docker/observability";
const PIPELINE_PARTS: [&str; 3] = ["receivers", "processors", "exporters"];

fn read_text(path: &str) -> String {
    read(Path::new(path)).unwrap_or_else(|| panic!("{path} is not there"))
}

fn read_yaml(path: &str) -> Value {
    yaml_serde::from_str(&read_text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn object_keys(value: &Value) -> BTreeSet<&str> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, _)| key.as_str()).collect()
}

fn string_items(value: &Value) -> BTreeSet<&str> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// Returns the parts of a pipeline that are used and not defined, or defined and not used.
fn unmatched_parts(file: &str, settings: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let service = &settings["service"];
    let pipelines = service["pipelines"].as_object();
    for part in PIPELINE_PARTS {
        let lists = pipelines.into_iter().flatten();
        let used: BTreeSet<&str> = lists
            .flat_map(|(_, pipeline)| string_items(&pipeline[part]))
            .collect();
        let defined = object_keys(&settings[part]);
        for name in used.symmetric_difference(&defined) {
            found.push(format!(
                "{file}: {part}: {name} is only used, or only defined"
            ));
        }
    }
    let (used, defined) = (
        string_items(&service["extensions"]),
        object_keys(&settings["extensions"]),
    );
    for name in used.symmetric_difference(&defined) {
        found.push(format!(
            "{file}: extensions: {name} is only used, or only defined"
        ));
    }
    if pipelines.is_none_or(serde_json::Map::is_empty) {
        found.push(format!("{file}: no pipeline"));
    }
    found
}

#[test]
fn every_part_of_a_pipeline_is_defined_and_used() {
    for file in ["collector.yaml", "jaeger.yaml"] {
        assert_none(
            file,
            &unmatched_parts(file, &read_yaml(&format!("{FOLDER}/{file}"))),
        );
    }
    let broken = serde_json::json!({
        "receivers": {"otlp": null},
        "service": {"pipelines": {"a": {"receivers": ["other"]}}},
    });
    assert_eq!(unmatched_parts("x", &broken).len(), 2);
}

/// Each program calls another program at the `host:port` on which the other listens.
#[test]
fn programs_call_each_other_where_they_listen() {
    let (collector, jaeger) = (
        read_yaml(&format!("{FOLDER}/collector.yaml")),
        read_yaml(&format!("{FOLDER}/jaeger.yaml")),
    );
    let (prometheus, grafana) = (
        read_text(&format!("{FOLDER}/prometheus.yml")),
        read_text(&format!("{FOLDER}/grafana/datasources/hayward.yaml")),
    );
    let compose = read_text("docker-compose.yml");
    let reader = &collector["service"]["telemetry"]["metrics"]["readers"][0];
    let port = &reader["pull"]["exporter"]["prometheus"]["port"];
    let own_address = format!("0.0.0.0:{port}");
    let otlp = &collector["receivers"]["otlp"]["protocols"];
    let traces = collector["exporters"]["otlp/traces"]["endpoint"].to_string();
    // Each row is (file with the address, host, listening address, caller).
    let calls: [(&str, &str, &Value, &str); 5] = [
        (
            &compose,
            "https://otel-collector",
            &otlp["http"]["endpoint"],
            "services",
        ),
        (
            &prometheus,
            "otel-collector",
            &collector["exporters"]["prometheus"]["endpoint"],
            "prometheus",
        ),
        (
            &prometheus,
            "otel-collector",
            &Value::from(own_address),
            "prometheus, of the collector",
        ),
        (
            &traces,
            "jaeger",
            &jaeger["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"],
            "collector",
        ),
        (
            &grafana,
            "http://jaeger",
            &jaeger["extensions"]["jaeger_query"]["http"]["endpoint"],
            "grafana",
        ),
    ];
    let mut faults = Vec::new();
    for (file, host, listener, caller) in calls {
        let port = listener.as_str().and_then(|it| it.strip_prefix("0.0.0.0:"));
        let address = port.map(|port| format!("{host}:{port}"));
        if !address.is_some_and(|address| file.contains(&address)) {
            faults.push(format!(
                "{caller} calls {host} elsewhere than at {listener}"
            ));
        }
    }
    assert_none("an address", &faults);
}

/// The collector presents the certificate that `hayward prepare` makes, and each service that sends
/// telemetry gets the authority of this certificate (S3).
#[test]
fn the_collector_presents_the_certificate_that_is_made_for_it() {
    let collector = read_yaml(&format!("{FOLDER}/collector.yaml"));
    let compose = read_text("docker-compose.yml");
    let scripts = ["docker/first-start.sh", "docker/prepare.sh"].map(read_text);
    let mut faults = Vec::new();
    for (kind, protocol) in collector["receivers"]["otlp"]["protocols"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let presented = ["cert_file", "key_file"].map(|file| protocol["tls"][file].as_str());
        if presented
            != [
                Some("/tls/otel-collector.pem"),
                Some("/tls/otel-collector.key"),
            ]
        {
            faults.push(format!("{kind} presents {presented:?}"));
        }
    }
    let expected = "--certificate otel-collector=/own/keys-collector";
    if !scripts.iter().all(|script| script.contains(expected)) {
        faults.push(format!("not every script that prepares has {expected}"));
    }
    let collectors = compose.matches("HAYWARD_OTLP_ENDPOINT: ${").count();
    let authority = "HAYWARD_OTLP_AUTHORITY: ${HAYWARD_OTLP_AUTHORITY-/keys/tls/ca.pem}";
    if collectors == 0 || compose.matches(authority).count() != collectors {
        faults.push("a service has the collector without its authority".to_owned());
    }
    if !compose.contains("keys-collector:/tls:ro") {
        faults.push("the collector does not see its certificate".to_owned());
    }
    assert_none("TLS to the collector", &faults);
}
