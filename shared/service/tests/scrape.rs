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
fn a_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

async fn asked(at: SocketAddr, token: Option<&str>) -> reqwest::Response {
    let mut client = reqwest::Client::new().get(format!("http://{at}/metrics"));
    if let Some(token) = token {
        client = client.bearer_auth(token);
    }
    client.send().await.unwrap()
}

/// Returns the series by name, and the type of each family.
fn read(page: &str) -> (BTreeMap<&str, Vec<&str>>, BTreeMap<&str, &str>) {
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
fn promtool_reads(page: &str) {
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
    let judged = promtool.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&judged.stderr);
    assert_ne!(judged.status.code(), Some(1), "{stderr}");
}

/// Checks the page after three requests: only series of the catalogue, with the right types.
fn echoed_thrice(page: &str) {
    let (series, types) = read(page);
    let known: BTreeMap<String, &str> = catalogue::all()
        .map(|metric| (metric.prometheus(), metric.kind.as_str()))
        .collect();
    for (name, kind) in &types {
        assert_eq!(known.get(*name), Some(kind), "{name}");
    }
    let safe = "hayward_service_insecure_modes";
    assert!(series[safe][0].ends_with(" 0"), "{:?}", series[safe]);
    let counts = &series["http_server_request_duration_seconds_count"];
    let echoed = counts
        .iter()
        .find(|line| line.contains("http_route=\"/v1/echo\""));
    assert!(echoed.unwrap().ends_with(" 3"), "{counts:?}");
    assert!(
        echoed.unwrap().contains("service_name=\"hayward-test\""),
        "{counts:?}"
    );
    let whole = series["http_server_request_duration_seconds_bucket"]
        .iter()
        .find(|line| line.contains("http_route=\"/v1/echo\"") && line.contains("le=\"+Inf\""));
    assert!(whole.unwrap().ends_with(" 3"), "{whole:?}");
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
        scrape_listen: Some(a_port()),
        ..ServerSettings::default()
    };
    let at = settings.scrape_listen.unwrap();
    let telemetry = telemetry::init("test", &settings).unwrap();
    assert!(telemetry::metrics_enabled() && !telemetry::traces_enabled());
    let shutdown = Shutdown::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = listener.local_addr().unwrap();
    let router = Router::new().route("/v1/echo", get(|| async { "echo" }));
    let frame = Server::new("rm-scheduler", Some(verifier))
        .configure(&settings)
        .unwrap();
    let served = tokio::spawn(frame.serve(router, listener, shutdown.clone()));

    let viewer = TokenSource::fixed(token(Scope::Viewer));
    let client = Client::new([format!("http://{api}")], viewer).unwrap();
    for _ in 0..3 {
        // The response is text. The client rejects it as JSON, but the request is measured.
        drop(client.get::<serde_json::Value>("/v1/echo").await);
    }
    assert_eq!(asked(at, None).await.status(), 401);
    assert_eq!(asked(at, Some("nonsense")).await.status(), 401);
    for scope in [
        Scope::Submitter,
        Scope::Auditor,
        Scope::Service("rm-scheduler".to_owned()),
    ] {
        assert_eq!(asked(at, Some(&token(scope))).await.status(), 403);
    }
    for scope in [Scope::Viewer, Scope::Operator] {
        assert_eq!(asked(at, Some(&token(scope))).await.status(), 200);
    }
    let answer = asked(at, Some(&token(Scope::Scraper))).await;
    assert_eq!(
        answer.headers()[CONTENT_TYPE],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let page = answer.text().await.unwrap();

    echoed_thrice(&page);
    promtool_reads(&page);

    // This listener has only one route, and the listener of the API does not have it.
    let stray = format!("http://{at}/v1/echo");
    let stray = reqwest::Client::new()
        .get(stray)
        .bearer_auth(token(Scope::Viewer));
    assert_eq!(stray.send().await.unwrap().status(), 404);
    let other = format!("http://{api}/metrics");
    let other = reqwest::Client::new()
        .get(other)
        .bearer_auth(token(Scope::Viewer));
    assert_eq!(other.send().await.unwrap().status(), 404);

    shutdown.begin();
    tokio::time::timeout(Duration::from_secs(20), served)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let gone = reqwest::Client::new().get(format!("http://{at}/metrics"));
    assert!(gone.send().await.is_err(), "both listeners are closed");
    tokio::task::spawn_blocking(|| telemetry.shutdown())
        .await
        .unwrap();
}

/// A reachable scrape listener without TLS needs `allow_insecure` (S3).
#[tokio::test]
async fn a_reachable_scrape_listener_needs_permission() {
    let far = ServerSettings {
        scrape_listen: Some("0.0.0.0:0".parse().unwrap()),
        ..ServerSettings::default()
    };
    let refused = Server::new("test", None).configure(&far).err().unwrap();
    let error = format!("{refused:#}");
    assert!(
        error.contains("scrape_listen") && error.contains("allow_insecure"),
        "{error}"
    );
    let allowed = ServerSettings {
        allow_insecure: true,
        ..far
    };
    assert!(Server::new("test", None).configure(&allowed).is_ok());
    assert_eq!(ServerSettings::default().scrape_listen, None);
}
