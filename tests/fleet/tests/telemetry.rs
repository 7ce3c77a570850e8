//! The telemetry of a real fleet. A submission can be followed to its running process across all
//! services, every metric matches the catalogue, and no secret occurs. A collector that hangs
//! changes nothing (T1).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hayward_job_converter_api::submission::Submitted;
use hayward_job_converter_api::{Timeline, WorkState};
use hayward_service::Client;
use hayward_service::metrics::catalogue;
use hayward_service::runtime::clock;
use hayward_testkit::until_within;
use hayward_tests_fleet::{
    Agent, Collector, Measurement, Span, TestFleet, attributes_to_text, is_running, job,
    reservation, service, submit, wait_for_end, wait_for_view,
};
use hayward_vocabulary::WorkId;
use http::{HeaderName, Method};

const LIMIT: Duration = Duration::from_mins(2);
const SECRET: &str = "sesame-that-stays-secret";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn parse_hex(hex: &str) -> Vec<u8> {
    let byte = |index: usize| u8::from_str_radix(&hex[index..index + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Submits a service under a trace of its own.
async fn submit_traced(client: &Client) -> WorkId {
    let mut wanted = service(&["sleep", "600"], 1);
    wanted.environment = BTreeMap::from([("TOKEN".to_owned(), SECRET.to_owned())]);
    let call = client
        .call(Method::POST, "/v1/services")
        .body(&wanted)
        .idempotency_key(&clock::fresh_uuid().to_string())
        .header(
            HeaderName::from_static("traceparent"),
            &format!("00-{TRACE}-00f067aa0ba902b7-01"),
        );
    let response: Submitted = call.send().await.expect("accepted");
    response.id
}

fn spans_with_name<'a>(spans: &'a [Span], name: &str) -> impl Iterator<Item = &'a Span> {
    let name = name.to_owned();
    spans.iter().filter(move |span| span.name == name)
}

/// Returns the names of the children of a span, with the process of each.
fn child_names(spans: &[Span], parent: &Span) -> BTreeSet<(String, String)> {
    let children = spans
        .iter()
        .filter(|span| span.trace == parent.trace && span.parent == parent.id);
    children
        .map(|span| (span.process.clone(), span.name.clone()))
        .collect()
}

fn has_spans(found: &BTreeSet<(String, String)>, process: &str, names: &[&str]) -> bool {
    let has_name =
        |name: &&str| found.contains(&(format!("hayward-{process}"), (*name).to_owned()));
    names.iter().all(has_name)
}

/// Checks the three traces of a submission and their links. An error names the missing part (T5).
fn check_submission_traces(spans: &[Span]) -> Result<(), String> {
    let trace = parse_hex(TRACE);
    let mut requests = spans_with_name(spans, "POST /v1/services");
    let request = requests
        .find(|span| span.trace == trace)
        .ok_or("no request")?;
    let phases = child_names(spans, request);
    if !has_spans(&phases, "job-converter", &["validate", "commit"]) {
        return Err(format!("the request has only {phases:?}"));
    }
    let mut rounds = spans_with_name(spans, "round");
    let round = rounds
        .find(|span| span.links.contains(&trace))
        .ok_or("no round is linked to the submission")?;
    if !round.parent.is_empty() || round.failed || round.trace == trace {
        return Err(format!("a round is a trace of its own: {round:?}"));
    }
    let phases = child_names(spans, round);
    let wanted = ["snapshot", "how_much", "what_of", "defragment", "commit"];
    if !has_spans(&phases, "rm-scheduler", &wanted) {
        return Err(format!("the round has only {phases:?}"));
    }
    let commit = spans_with_name(spans, "commit").find(|span| span.parent == round.id);
    let commit = commit.ok_or("no commit")?;
    let mut allocations =
        spans_with_name(spans, "allocation").filter(|span| span.parent == commit.id);
    let allocation = allocations
        .find(|span| span.links.contains(&trace))
        .ok_or("no allocation is linked to the submission")?;
    let stages = child_names(spans, allocation);
    let is_complete = has_spans(&stages, "container-manager", &["order", "first heartbeat"])
        && has_spans(
            &stages,
            "node-agent",
            &["fetch", "launch", "running", "stop"],
        )
        && has_spans(&stages, "rm-scheduler", &["release"]);
    if !is_complete {
        return Err(format!("the life of the allocation has only {stages:?}"));
    }
    Ok(())
}

/// Checks the trace of a reservation, which has no process. The trace is linked to its submission
/// as well, and only rm-scheduler writes spans of it.
fn check_reservation_trace(spans: &[Span]) -> Result<(), String> {
    let mut requests = spans_with_name(spans, "POST /v1/reservations");
    let request = requests.next().ok_or("no request")?;
    let mut allocations = spans_with_name(spans, "allocation");
    let allocation = allocations.find(|span| span.links.contains(&request.trace));
    let allocation = allocation.ok_or("no allocation is linked to the reservation")?;
    let parent = spans.iter().find(|span| span.id == allocation.parent);
    if !parent.is_some_and(|span| span.name == "commit" && span.trace == allocation.trace) {
        return Err(format!("the allocation is below {parent:?}"));
    }
    let stages = child_names(spans, allocation);
    let is_complete = has_spans(&stages, "rm-scheduler", &["held", "release"]);
    is_complete
        .then_some(())
        .ok_or(format!("the allocation has only {stages:?}"))
}

/// Returns the fault of one series, if any.
fn find_fault(measurement: &Measurement) -> Option<String> {
    let Some(known) = catalogue::find(&measurement.name) else {
        return Some(format!("{} is not in the catalogue", measurement.name));
    };
    if known.unit != measurement.unit || known.kind.as_str() != measurement.kind {
        return Some(format!(
            "{} is a {} in {:?}",
            measurement.name, measurement.kind, measurement.unit
        ));
    }
    let service = measurement.process.strip_prefix("hayward-").unwrap_or("");
    if !known.services.contains(&service) {
        return Some(format!(
            "{} comes from {}",
            measurement.name, measurement.process
        ));
    }
    measurement.attributes.iter().find_map(|(key, value)| {
        let mut attributes = known.attributes.iter();
        let attribute = attributes.find(|attribute| attribute.key == key);
        match attribute {
            None => Some(format!("{} has {key}", measurement.name)),
            Some(it) if !it.allows(value) => {
                Some(format!("{} has {key}={value}", measurement.name))
            }
            Some(_) => None,
        }
    })
}

/// Returns the metrics that the catalogue promises for a quiet fleet and that did not arrive.
fn missing_metrics(metrics: &[Measurement]) -> Vec<String> {
    let reported: BTreeSet<(&str, &str)> = metrics
        .iter()
        .map(|it| (it.process.as_str(), it.name.as_str()))
        .collect();
    let promised = catalogue::all().filter(|metric| metric.always_reported);
    let promised = promised.flat_map(|metric| {
        let services = metric.services.iter();
        services.map(move |service| (format!("hayward-{service}"), metric.name))
    });
    promised
        .filter(|(process, name)| !reported.contains(&(process.as_str(), *name)))
        .map(|(process, name)| format!("{process}: {name}"))
        .collect()
}

/// Returns every secret of the fleet and of this test.
fn secrets(fleet: &TestFleet) -> Vec<String> {
    let mut secrets = vec![SECRET.to_owned()];
    let mut folders = vec![fleet.keys.dir().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("keys").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let public =
                    path.extension().is_some_and(|it| it == "pub") || text.contains("PUBLIC");
                // The first long line of a key is its secret. A token is one line.
                let lines = text.lines().filter(|line| line.len() > 20);
                let secret = lines.filter(|line| !line.starts_with("-----"));
                secrets.extend(secret.filter(|_| !public).map(str::to_owned));
            }
        }
    }
    secrets
}

fn read_logs(fleet: &TestFleet) -> String {
    let entries = std::fs::read_dir(fleet.dir.path()).expect("logs").flatten();
    let logs = entries.map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|it| it == "log"));
    logs.map(|path| std::fs::read_to_string(path).unwrap_or_default())
        .collect()
}

/// Asserts that no secret occurs in anything that arrived (S23).
fn assert_no_secret_arrives(collector: &Collector, fleet: &TestFleet) {
    let log_text = read_logs(fleet);
    let received = collector.received_text();
    for secret in secrets(fleet) {
        assert!(!received.contains(&secret), "a collector received {secret}");
        assert!(!log_text.contains(&secret), "the log holds {secret}");
    }
}

/// Asserts that every metric arrives and matches the catalogue (T6).
async fn assert_every_metric_arrives(collector: &Collector, fleet: &TestFleet) {
    // Invariants are evaluated each minute and on each request.
    for (name, _) in hayward::prepare::SERVICES {
        let client = fleet.client(name, "operator");
        let response: Result<serde_json::Value, _> = client.get("/v1/invariants").await;
        response.expect("the invariants");
    }
    until_within("every metric of a quiet fleet", LIMIT, async || {
        let missing = missing_metrics(&collector.metrics());
        if !missing.is_empty() {
            eprintln!("{missing:?}");
        }
        missing.is_empty().then_some(())
    })
    .await;
    let faults: BTreeSet<String> = collector.metrics().iter().filter_map(find_fault).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Asserts that every log line is a structured event (T4).
fn assert_every_line_is_an_event(collector: &Collector, fleet: &TestFleet, spans: &[Span]) {
    let logs = collector.logs();
    let allocation =
        spans_with_name(spans, "allocation").find(|span| span.links.contains(&parse_hex(TRACE)));
    let allocation = allocation.expect("checked above");
    let agent_logs = logs
        .iter()
        .filter(|(process, _)| process == "hayward-node-agent");
    let mut traced = agent_logs.filter(|(_, record)| record.trace_id == allocation.trace);
    assert!(traced.next().is_some(), "the agent's lines name the trace");
    for (process, record) in &logs {
        let attributes = attributes_to_text(&record.attributes);
        assert!(attributes.contains_key("event"), "{process}: {record:?}");
    }
    let log_text = read_logs(fleet);
    for line in log_text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let event = line["event"].as_str();
        assert!(event.is_some_and(|event| !event.is_empty()), "{line}");
    }
}

/// Asserts that the timeline from the database has every stage, even when traces are sampled away.
async fn assert_timeline_is_complete(ada: &Client, path: &str) {
    let timeline: Timeline = ada
        .get(&format!("{path}/timeline"))
        .await
        .expect("a timeline");
    let events: Vec<&str> = timeline.events.iter().map(|it| it.event.as_str()).collect();
    for stage in [
        "submitted",
        "granted on node-1",
        "runs on node-1",
        "cancelled",
    ] {
        let found = events.iter().any(|event| event.ends_with(stage));
        assert!(found, "{stage}: {events:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_is_traced_to_its_process_and_all_metrics_exist() {
    let collector = Collector::start_behind_relay().await;
    let mut fleet = TestFleet::start_with_collector(&collector.endpoint).await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.wait_until_nodes_take_work(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let id = submit_traced(&ada).await;
    let path = format!("/v1/services/{id}");
    wait_for_view(&ada, &path, LIMIT, is_running).await;
    let tasks = submit(&ada, "jobs", &job(&["/bin/true"], 4)).await;
    assert_eq!(
        wait_for_end(&ada, &tasks, LIMIT).await.state,
        WorkState::Completed
    );
    // Shares are reported for users with work, and for no others.
    until_within("the share of ada to be measured", LIMIT, async || {
        let metrics = collector.metrics();
        let mut found = metrics
            .iter()
            .filter(|it| it.name == "hayward.fairness.entitled");
        found.next().map(drop)
    })
    .await;
    let cancelled: Result<serde_json::Value, _> = ada.delete(&path).await;
    cancelled.expect("cancelled");
    wait_for_view(&ada, &path, LIMIT, |view| view.state.is_final()).await;

    let reservation_id = submit(&ada, "reservations", &reservation()).await;
    let reservation_path = format!("/v1/reservations/{reservation_id}");
    wait_for_view(&ada, &reservation_path, LIMIT, is_running).await;
    let released: Result<serde_json::Value, _> = ada.delete(&reservation_path).await;
    released.expect("released");
    wait_for_view(&ada, &reservation_path, LIMIT, |view| view.state.is_final()).await;

    // The whole trace of the submission (T5).
    until_within("all traces of the submission", LIMIT, async || {
        let spans = collector.spans();
        let result = check_submission_traces(&spans).and_then(|()| check_reservation_trace(&spans));
        result.inspect_err(|fault| eprintln!("{fault}")).ok()
    })
    .await;
    let spans = collector.spans();
    for span in &spans {
        let service = span.attributes.get("hayward.service");
        let is_inner_span = ["validate", "commit"].contains(&span.name.as_str());
        assert!(
            service.is_some() || is_inner_span,
            "which service? {span:?}"
        );
    }
    assert_timeline_is_complete(&ada, &path).await;
    assert_every_metric_arrives(&collector, &fleet).await;
    assert_every_line_is_an_event(&collector, &fleet, &spans);
    assert_no_secret_arrives(&collector, &fleet);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_variables_name_the_collector_and_the_process() {
    let collector = Collector::start().await;
    let attributes = "deployment.environment.name=laboratory,team=blue-team";
    let mut fleet = TestFleet::start_with_collector_variables(vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint.clone()),
        ("OTEL_SERVICE_NAME", "whole-fleet".to_owned()),
        ("OTEL_RESOURCE_ATTRIBUTES", attributes.to_owned()),
    ])
    .await;
    fleet.start_agent("node-1", &Agent::default());
    until_within("metrics and logs of that name", LIMIT, async || {
        let metrics = collector.metrics();
        let has_name = metrics.iter().any(|it| it.process == "whole-fleet");
        (has_name && !collector.logs().is_empty()).then_some(())
    })
    .await;
    let metrics = collector.metrics();
    assert!(metrics.iter().all(|it| it.process == "whole-fleet"));
    let text = collector.received_text();
    assert!(text.contains("laboratory") && text.contains("blue-team"));
    assert!(!text.contains("unnamed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_changes_nothing_and_losses_are_counted() {
    let collector = Collector::start().await;
    collector.set_hanging(true);
    let mut fleet = TestFleet::start_with_collector(&collector.endpoint).await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.wait_until_nodes_take_work(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    for _ in 0..10 {
        // The job gets one attempt within the timeout of a client, because no request waits for the
        // collector.
        let wanted = job(&["/bin/true"], 1);
        let key = clock::fresh_uuid().to_string();
        let response: Result<Submitted, _> = ada.post("/v1/jobs", &wanted, Some(&key)).await;
        let id = response.expect("accepted").id;
        assert_eq!(
            wait_for_end(&ada, &id, LIMIT).await.state,
            WorkState::Completed
        );
    }
    // At its end a process tries for at most four seconds to send its last telemetry, in addition
    // to the usual time of an orderly end.
    let started = Instant::now();
    fleet.terminate("blocklist");
    let elapsed = started.elapsed();
    assert!(
        elapsed < Duration::from_secs(20),
        "it ended after {elapsed:?}"
    );

    collector.set_hanging(false);
    until_within("dropped telemetry to be counted", LIMIT, async || {
        let metrics = collector.metrics();
        let is_counted = |signal: &str| {
            let mut metrics = metrics.iter();
            metrics.any(|it| {
                it.name == "hayward.telemetry.dropped"
                    && it.attributes["hayward.telemetry.signal"] == signal
                    && it.value > 0.0
            })
        };
        let all_counted = is_counted("spans") && is_counted("logs") && is_counted("metrics");
        all_counted.then_some(())
    })
    .await;
}
