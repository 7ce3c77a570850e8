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
    Agent, Collector, Measurement, Span, TestFleet, ends, is_running, job, reaches, reservation,
    service, submit, text_of,
};
use hayward_vocabulary::WorkId;
use http::{HeaderName, Method};

const LIMIT: Duration = Duration::from_mins(2);
const SECRET: &str = "sesame-that-stays-secret";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digit).collect()
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
    let answer: Submitted = call.send().await.expect("accepted");
    answer.id
}

fn named<'a>(spans: &'a [Span], name: &str) -> impl Iterator<Item = &'a Span> {
    let name = name.to_owned();
    spans.iter().filter(move |span| span.name == name)
}

/// Returns the names of the children of a span, with the process of each.
fn children(spans: &[Span], parent: &Span) -> BTreeSet<(String, String)> {
    let children = spans
        .iter()
        .filter(|span| span.trace == parent.trace && span.parent == parent.id);
    children
        .map(|span| (span.process.clone(), span.name.clone()))
        .collect()
}

fn holds(all: &BTreeSet<(String, String)>, process: &str, names: &[&str]) -> bool {
    let found = |name: &&str| all.contains(&(format!("hayward-{process}"), (*name).to_owned()));
    names.iter().all(found)
}

/// Checks the three traces of a submission and their links. An error names the missing part (T5).
fn followed(spans: &[Span]) -> Result<(), String> {
    let trace = bytes(TRACE);
    let mut requests = named(spans, "POST /v1/services");
    let request = requests
        .find(|span| span.trace == trace)
        .ok_or("no request")?;
    let parts = children(spans, request);
    if !holds(&parts, "job-converter", &["validate", "commit"]) {
        return Err(format!("the request has only {parts:?}"));
    }
    let mut rounds = named(spans, "round");
    let round = rounds
        .find(|span| span.links.contains(&trace))
        .ok_or("no round is linked to the submission")?;
    if !round.parent.is_empty() || round.failed || round.trace == trace {
        return Err(format!("a round is a trace of its own: {round:?}"));
    }
    let phases = children(spans, round);
    let wanted = ["snapshot", "how_much", "what_of", "defragment", "commit"];
    if !holds(&phases, "rm-scheduler", &wanted) {
        return Err(format!("the round has only {phases:?}"));
    }
    let commit = named(spans, "commit").find(|span| span.parent == round.id);
    let commit = commit.ok_or("no commit")?;
    let mut lives = named(spans, "allocation").filter(|span| span.parent == commit.id);
    let life = lives
        .find(|span| span.links.contains(&trace))
        .ok_or("no allocation is linked to the submission")?;
    let stages = children(spans, life);
    let whole = holds(&stages, "container-manager", &["order", "first heartbeat"])
        && holds(
            &stages,
            "node-agent",
            &["fetch", "launch", "running", "stop"],
        )
        && holds(&stages, "rm-scheduler", &["release"]);
    if !whole {
        return Err(format!("the life of the allocation has only {stages:?}"));
    }
    Ok(())
}

/// Checks the trace of an allocation without a process. It is linked to its submission as well, and
/// rm-scheduler alone writes it.
fn followed_reservation(spans: &[Span]) -> Result<(), String> {
    let mut requests = named(spans, "POST /v1/reservations");
    let request = requests.next().ok_or("no request")?;
    let mut lives = named(spans, "allocation");
    let life = lives.find(|span| span.links.contains(&request.trace));
    let life = life.ok_or("no allocation is linked to the reservation")?;
    let within = spans.iter().find(|span| span.id == life.parent);
    if !within.is_some_and(|span| span.name == "commit" && span.trace == life.trace) {
        return Err(format!("its allocation is below {within:?}"));
    }
    let stages = children(spans, life);
    let whole = holds(&stages, "rm-scheduler", &["held", "release"]);
    whole
        .then_some(())
        .ok_or(format!("its life has {stages:?}"))
}

/// Returns the fault of one series, if any.
fn fault(one: &Measurement) -> Option<String> {
    let Some(known) = catalogue::find(&one.name) else {
        return Some(format!("{} is not in the catalogue", one.name));
    };
    if known.unit != one.unit || known.kind.as_str() != one.kind {
        return Some(format!("{} is a {} in {:?}", one.name, one.kind, one.unit));
    }
    let service = one.process.strip_prefix("hayward-").unwrap_or("");
    if !known.services.contains(&service) {
        return Some(format!("{} comes from {}", one.name, one.process));
    }
    one.attributes.iter().find_map(|(key, value)| {
        let mut attributes = known.attributes.iter();
        let attribute = attributes.find(|attribute| attribute.key == key);
        match attribute {
            None => Some(format!("{} has {key}", one.name)),
            Some(it) if !it.allows(value) => Some(format!("{} has {key}={value}", one.name)),
            Some(_) => None,
        }
    })
}

/// Returns the metrics that the catalogue promises for a quiet fleet and that did not arrive.
fn missing(metrics: &[Measurement]) -> Vec<String> {
    let found: BTreeSet<(&str, &str)> = metrics
        .iter()
        .map(|one| (one.process.as_str(), one.name.as_str()))
        .collect();
    let promised = catalogue::all().filter(|metric| metric.always_reported);
    let promised = promised.flat_map(|metric| {
        let services = metric.services.iter();
        services.map(move |service| (format!("hayward-{service}"), metric.name))
    });
    promised
        .filter(|(process, name)| !found.contains(&(process.as_str(), *name)))
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

fn logged(fleet: &TestFleet) -> String {
    let entries = std::fs::read_dir(fleet.dir.path()).expect("logs").flatten();
    let logs = entries.map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|it| it == "log"));
    logs.map(|path| std::fs::read_to_string(path).unwrap_or_default())
        .collect()
}

/// Asserts that no secret occurs in anything that arrived (S23).
fn no_secret_arrives(collector: &Collector, fleet: &TestFleet) {
    let lines = logged(fleet);
    let everything = collector.everything();
    for secret in secrets(fleet) {
        assert!(
            !everything.contains(&secret),
            "a collector received {secret}"
        );
        assert!(!lines.contains(&secret), "the log holds {secret}");
    }
}

/// Asserts that every metric arrives and matches the catalogue (T6).
async fn every_metric_arrives(collector: &Collector, fleet: &TestFleet) {
    // Invariants are evaluated each minute and on each request.
    for (name, _) in hayward::prepare::SERVICES {
        let client = fleet.client(name, "operator");
        let answer: Result<serde_json::Value, _> = client.get("/v1/invariants").await;
        answer.expect("the invariants");
    }
    until_within("every metric of a quiet fleet", LIMIT, async || {
        let missing = missing(&collector.metrics());
        if !missing.is_empty() {
            eprintln!("{missing:?}");
        }
        missing.is_empty().then_some(())
    })
    .await;
    let faults: BTreeSet<String> = collector.metrics().iter().filter_map(fault).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Asserts that every log line is a structured event (T4).
fn every_line_is_an_event(collector: &Collector, fleet: &TestFleet, spans: &[Span]) {
    let logs = collector.logs();
    let life = named(spans, "allocation").find(|span| span.links.contains(&bytes(TRACE)));
    let life = life.expect("followed above");
    let of_agent = logs.iter().filter(|(from, _)| from == "hayward-node-agent");
    let mut traced = of_agent.filter(|(_, record)| record.trace_id == life.trace);
    assert!(traced.next().is_some(), "the agent's lines name the trace");
    for (from, record) in &logs {
        let attributes = text_of(&record.attributes);
        assert!(attributes.contains_key("event"), "{from}: {record:?}");
    }
    let lines = logged(fleet);
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let event = line["event"].as_str();
        assert!(event.is_some_and(|event| !event.is_empty()), "{line}");
    }
}

/// Asserts that the timeline from the database has every stage, even when traces are sampled away.
async fn timeline_is_complete(ada: &Client, path: &str) {
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
    let collector = Collector::start_behind_another().await;
    let mut fleet = TestFleet::collected(&collector.endpoint).await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.nodes_take_work(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let id = submit_traced(&ada).await;
    let path = format!("/v1/services/{id}");
    reaches(&ada, &path, LIMIT, is_running).await;
    let tasks = submit(&ada, "jobs", &job(&["/bin/true"], 4)).await;
    assert_eq!(ends(&ada, &tasks, LIMIT).await.state, WorkState::Completed);
    // Shares are reported for users with work, and for no others.
    until_within("her share to be measured", LIMIT, async || {
        let metrics = collector.metrics();
        let mut found = metrics
            .iter()
            .filter(|it| it.name == "hayward.fairness.entitled");
        found.next().map(drop)
    })
    .await;
    let cancelled: Result<serde_json::Value, _> = ada.delete(&path).await;
    cancelled.expect("cancelled");
    reaches(&ada, &path, LIMIT, |view| view.state.is_final()).await;

    let reserved = submit(&ada, "reservations", &reservation()).await;
    let place = format!("/v1/reservations/{reserved}");
    reaches(&ada, &place, LIMIT, is_running).await;
    let given_back: Result<serde_json::Value, _> = ada.delete(&place).await;
    given_back.expect("given back");
    reaches(&ada, &place, LIMIT, |view| view.state.is_final()).await;

    // The whole trace of the submission (T5).
    until_within("the whole story of the submission", LIMIT, async || {
        let spans = collector.spans();
        let story = followed(&spans).and_then(|()| followed_reservation(&spans));
        story.inspect_err(|gap| eprintln!("{gap}")).ok()
    })
    .await;
    let spans = collector.spans();
    for span in &spans {
        let service = span.attributes.get("hayward.service");
        let inner = ["validate", "commit"].contains(&span.name.as_str());
        assert!(service.is_some() || inner, "which service? {span:?}");
    }
    timeline_is_complete(&ada, &path).await;
    every_metric_arrives(&collector, &fleet).await;
    every_line_is_an_event(&collector, &fleet, &spans);
    no_secret_arrives(&collector, &fleet);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_variables_name_the_collector_and_the_process() {
    let collector = Collector::start().await;
    let attributes = "deployment.environment.name=laboratory,team=blue-team";
    let mut fleet = TestFleet::with_collector_variables(vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint.clone()),
        ("OTEL_SERVICE_NAME", "whole-fleet".to_owned()),
        ("OTEL_RESOURCE_ATTRIBUTES", attributes.to_owned()),
    ])
    .await;
    fleet.start_agent("node-1", &Agent::default());
    until_within("metrics and logs of that name", LIMIT, async || {
        let metrics = collector.metrics();
        let named = metrics.iter().any(|one| one.process == "whole-fleet");
        (named && !collector.logs().is_empty()).then_some(())
    })
    .await;
    let metrics = collector.metrics();
    assert!(metrics.iter().all(|one| one.process == "whole-fleet"));
    let text = collector.everything();
    assert!(text.contains("laboratory") && text.contains("blue-team"));
    assert!(!text.contains("unnamed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_changes_nothing_and_losses_are_counted() {
    let collector = Collector::start().await;
    collector.hang(true);
    let mut fleet = TestFleet::collected(&collector.endpoint).await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.nodes_take_work(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    for _ in 0..10 {
        // The job gets one attempt within the timeout of a client, because no request waits for the
        // collector.
        let wanted = job(&["/bin/true"], 1);
        let key = clock::fresh_uuid().to_string();
        let answer: Result<Submitted, _> = ada.post("/v1/jobs", &wanted, Some(&key)).await;
        let id = answer.expect("accepted").id;
        assert_eq!(ends(&ada, &id, LIMIT).await.state, WorkState::Completed);
    }
    // The end takes at most four seconds for the rest of the telemetry, and the time of an orderly
    // end.
    let began = Instant::now();
    fleet.terminate("blocklist");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "it ended after {took:?}");

    collector.hang(false);
    until_within("dropped telemetry to be counted", LIMIT, async || {
        let metrics = collector.metrics();
        let dropped = |signal: &str| {
            let mut metrics = metrics.iter();
            metrics.any(|one| {
                one.name == "hayward.telemetry.dropped"
                    && one.attributes["hayward.telemetry.signal"] == signal
                    && one.value > 0.0
            })
        };
        let all = dropped("spans") && dropped("logs") && dropped("metrics");
        all.then_some(())
    })
    .await;
}
