//! The metrics that Prometheus reads from a process without a collector (T1), and access control.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use hayward_service::auth::Scope;
use hayward_service::metrics::catalogue;
use hayward_service::{
    Client, Clock, Keys, Server, ServerSettings, Shutdown, SystemClock, TokenSource, telemetry,
};
use http::header::CONTENT_TYPE;

/// Returns an address with a port that is free at this moment.
fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

async fn scrape(address: SocketAddr, token: Option<&str>) -> reqwest::Response {
    let mut client = reqwest::Client::new().get(format!("http://{address}/metrics"));
    if let Some(token) = token {
        client = client.bearer_auth(token);
    }
    client.send().await.unwrap()
}

/// Returns the series by name, and the type of each family.
fn parse_page(page: &str) -> (BTreeMap<&str, Vec<&str>>, BTreeMap<&str, &str>) {
    let (mut series, mut types) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name, kind).is_none(), "{name} comes twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            series.entry(name).or_default().push(line);
        }
    }
    (series, types)
}

/// Checks the format with `promtool` if it is installed. Its warnings about names have another exit
/// code and are ignored.
fn check_with_promtool(page: &str) {
    let Ok(mut promtool) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
    else {
        return;
    };
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(page.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(1), "{stderr}");
}

/// Checks the page after three requests: only series of the catalogue, with the right types.
fn check_page_after_three_requests(page: &str) {
    let (series, types) = parse_page(page);
    let known: BTreeMap<String, &str> = catalogue::all()
        .map(|metric| (metric.prometheus_name(), metric.kind.as_str()))
        .collect();
    for (name, kind) in &types {
        assert_eq!(known.get(*name), Some(kind), "{name}");
    }
    let insecure_modes = "hayward_service_insecure_modes";
    assert!(
        series[insecure_modes][0].ends_with(" 0"),
        "{:?}",
        series[insecure_modes]
    );
    let counts = &series["http_server_request_duration_seconds_count"];
    let echoed = counts
        .iter()
        .find(|line| line.contains("http_route=\"/v1/echo\""));
    assert!(echoed.unwrap().ends_with(" 3"), "{counts:?}");
    assert!(
        echoed.unwrap().contains("service_name=\"hayward-test\""),
        "{counts:?}"
    );
    let infinite_bucket = series["http_server_request_duration_seconds_bucket"]
        .iter()
        .find(|line| line.contains("http_route=\"/v1/echo\"") && line.contains("le=\"+Inf\""));
    assert!(
        infinite_bucket.unwrap().ends_with(" 3"),
        "{infinite_bucket:?}"
    );
}

/// This is a single test, because a process has one telemetry.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_readable_with_a_permitted_scope_and_without_a_collector() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::create(dir.path()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let verifier = Arc::new(keys.verifier(Arc::clone(&clock)).unwrap());
    let issuer = keys.issuer(clock).unwrap();
    let token = |scope| issuer.mint("ann", &[scope], 60_000).unwrap();
    hayward_service::client::install_crypto();

    let settings = ServerSettings {
        scrape_listen: Some(free_address()),
        ..ServerSettings::default()
    };
    let address = settings.scrape_listen.unwrap();
    let telemetry = telemetry::init("test", &settings).unwrap();
    assert!(telemetry::metrics_enabled() && !telemetry::traces_enabled());
    let shutdown = Shutdown::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = listener.local_addr().unwrap();
    let router = Router::new().route("/v1/echo", get(|| async { "echo" }));
    let server = Server::new("rm-scheduler", Some(verifier))
        .configure(&settings)
        .unwrap();
    let server_task = tokio::spawn(server.serve(router, listener, shutdown.clone()));

    let viewer = TokenSource::fixed(token(Scope::Viewer));
    let client = Client::new([format!("http://{api}")], viewer).unwrap();
    for _ in 0..3 {
        // The response is text. The client rejects it as JSON, but the request is measured.
        drop(client.get::<serde_json::Value>("/v1/echo").await);
    }
    assert_eq!(scrape(address, None).await.status(), 401);
    assert_eq!(scrape(address, Some("nonsense")).await.status(), 401);
    for scope in [
        Scope::Submitter,
        Scope::Auditor,
        Scope::Service("rm-scheduler".to_owned()),
    ] {
        assert_eq!(scrape(address, Some(&token(scope))).await.status(), 403);
    }
    for scope in [Scope::Viewer, Scope::Operator] {
        assert_eq!(scrape(address, Some(&token(scope))).await.status(), 200);
    }
    let response = scrape(address, Some(&token(Scope::Scraper))).await;
    assert_eq!(
        response.headers()[CONTENT_TYPE],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let page = response.text().await.unwrap();

    check_page_after_three_requests(&page);
    check_with_promtool(&page);

    // This listener has only one route, and the listener of the API does not have it.
    let other_route = format!("http://{address}/v1/echo");
    let other_route = reqwest::Client::new()
        .get(other_route)
        .bearer_auth(token(Scope::Viewer));
    assert_eq!(other_route.send().await.unwrap().status(), 404);
    let other = format!("http://{api}/metrics");
    let other = reqwest::Client::new()
        .get(other)
        .bearer_auth(token(Scope::Viewer));
    assert_eq!(other.send().await.unwrap().status(), 404);

    shutdown.begin();
    tokio::time::timeout(Duration::from_secs(20), server_task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let request = reqwest::Client::new().get(format!("http://{address}/metrics"));
    assert!(request.send().await.is_err(), "both listeners are closed");
    tokio::task::spawn_blocking(|| telemetry.shutdown())
        .await
        .unwrap();
}

/// A reachable scrape listener without TLS needs `allow_insecure` (S3).
#[tokio::test]
async fn a_reachable_scrape_listener_needs_permission() {
    let reachable = ServerSettings {
        scrape_listen: Some("0.0.0.0:0".parse().unwrap()),
        ..ServerSettings::default()
    };
    let refused = Server::new("test", None)
        .configure(&reachable)
        .err()
        .unwrap();
    let error = format!("{refused:#}");
    assert!(
        error.contains("scrape_listen") && error.contains("allow_insecure"),
        "{error}"
    );
    let allowed = ServerSettings {
        allow_insecure: true,
        ..reachable
    };
    assert!(Server::new("test", None).configure(&allowed).is_ok());
    assert_eq!(ServerSettings::default().scrape_listen, None);
}
