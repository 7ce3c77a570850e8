//! Checks that the files of the observability stack agree: parts of pipelines, addresses and ports,
//! certificates. Two of the programs come from a registry that not every machine reaches, so their
//! files are checked without running them.

use std::collections::BTreeSet;
use std::path::Path;

use hayward_tests_house::{assert_none, read};
use serde_json::Value;

const HOME: &str = "docker/observability";
const PARTS: [&str; 3] = ["receivers", "processors", "exporters"];

fn text(path: &str) -> String {
    read(Path::new(path)).unwrap_or_else(|| panic!("{path} is not there"))
}

fn yaml(path: &str) -> Value {
    yaml_serde::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn keys(value: &Value) -> BTreeSet<&str> {
    let map = value.as_object().into_iter().flatten();
    map.map(|(key, _)| key.as_str()).collect()
}

fn words(value: &Value) -> BTreeSet<&str> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// Returns the parts of a pipeline that are used and not defined, or defined and not used.
fn unmatched(file: &str, settings: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let service = &settings["service"];
    let pipelines = service["pipelines"].as_object();
    for part in PARTS {
        let lists = pipelines.into_iter().flatten();
        let used: BTreeSet<&str> = lists.flat_map(|(_, line)| words(&line[part])).collect();
        let there = keys(&settings[part]);
        for name in used.symmetric_difference(&there) {
            found.push(format!(
                "{file}: {part}: {name} is only used, or only defined"
            ));
        }
    }
    let (used, there) = (words(&service["extensions"]), keys(&settings["extensions"]));
    for name in used.symmetric_difference(&there) {
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
        assert_none(file, &unmatched(file, &yaml(&format!("{HOME}/{file}"))));
    }
    let broken = serde_json::json!({
        "receivers": {"otlp": null},
        "service": {"pipelines": {"a": {"receivers": ["other"]}}},
    });
    assert_eq!(unmatched("x", &broken).len(), 2);
}

/// The `host:port` that one program calls is the one on which the other listens.
#[test]
fn programs_call_each_other_where_they_listen() {
    let (collector, jaeger) = (
        yaml(&format!("{HOME}/collector.yaml")),
        yaml(&format!("{HOME}/jaeger.yaml")),
    );
    let (prometheus, grafana) = (
        text(&format!("{HOME}/prometheus.yml")),
        text(&format!("{HOME}/grafana/datasources/hayward.yaml")),
    );
    let compose = text("docker-compose.yml");
    let own = &collector["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"];
    let own = format!("0.0.0.0:{}", own["prometheus"]["port"]);
    let otlp = &collector["receivers"]["otlp"]["protocols"];
    let traces = collector["exporters"]["otlp/traces"]["endpoint"].to_string();
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
            &Value::from(own),
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
    let mut wrong = Vec::new();
    for (file, host, listens, caller) in calls {
        let port = listens.as_str().and_then(|it| it.strip_prefix("0.0.0.0:"));
        let at = port.map(|port| format!("{host}:{port}"));
        if !at.is_some_and(|at| file.contains(&at)) {
            wrong.push(format!("{caller} calls {host} elsewhere than at {listens}"));
        }
    }
    assert_none("an address", &wrong);
}

/// The collector presents the certificate that `prepare` makes, and services are given its
/// authority (S3).
#[test]
fn the_collector_presents_the_certificate_that_is_made_for_it() {
    let collector = yaml(&format!("{HOME}/collector.yaml"));
    let compose = text("docker-compose.yml");
    let made = ["docker/first-start.sh", "docker/prepare.sh"].map(text);
    let mut wrong = Vec::new();
    for (kind, door) in collector["receivers"]["otlp"]["protocols"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let shown = ["cert_file", "key_file"].map(|file| door["tls"][file].as_str());
        if shown
            != [
                Some("/tls/otel-collector.pem"),
                Some("/tls/otel-collector.key"),
            ]
        {
            wrong.push(format!("{kind} presents {shown:?}"));
        }
    }
    let wanted = "--certificate otel-collector=/own/keys-collector";
    if !made.iter().all(|script| script.contains(wanted)) {
        wrong.push(format!("not every script that prepares has {wanted}"));
    }
    let collectors = compose.matches("HAYWARD_OTLP_ENDPOINT: ${").count();
    let authority = "HAYWARD_OTLP_AUTHORITY: ${HAYWARD_OTLP_AUTHORITY-/keys/tls/ca.pem}";
    if collectors == 0 || compose.matches(authority).count() != collectors {
        wrong.push("a service has the collector without its authority".to_owned());
    }
    if !compose.contains("keys-collector:/tls:ro") {
        wrong.push("the collector does not see its certificate".to_owned());
    }
    assert_none("TLS to the collector", &wrong);
}
