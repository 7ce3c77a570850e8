//! Our client with our server: request ids, traces, failing addresses, and complete refusals.

use std::time::Duration;

use hayward_service::client::{Client, ClientError, TokenSource};
use hayward_service::{Code, Limits, Problem};
use http::Method;
use tokio::net::TcpListener;

use crate::fixture::{Fixture, fixture, install_tracing, problem_of};

fn client(urls: &[String], fixture: &Fixture) -> Client {
    Client::new(urls, TokenSource::fixed(fixture.token())).unwrap()
}

/// An unsafe id is replaced (A13).
#[tokio::test]
async fn a_valid_request_id_is_in_the_response_and_in_problems() {
    let fixture = fixture(Limits::default()).await;
    let send = |id: &'static str| {
        let request = fixture
            .request(Method::GET, "/v1/nowhere")
            .header("x-request-id", id);
        async { request.send().await.unwrap() }
    };
    let response = send("mine-1").await;
    assert_eq!(response.headers()["x-request-id"], "mine-1");
    assert_eq!(
        problem_of(response).await.1.request_id.as_deref(),
        Some("mine-1")
    );
    let response = send("not safe <>").await;
    assert_eq!(response.headers()["x-request-id"].len(), 32);
}

#[tokio::test]
async fn the_client_switches_to_the_next_address_and_keeps_it() {
    let fixture = fixture(Limits::default()).await;
    // The listener is bound and dropped, so the port is closed.
    let closed_address = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let client = client(
        &[format!("http://{closed_address}"), fixture.url("")],
        &fixture,
    );
    for _ in 0..3 {
        let sum: u32 = client
            .call(Method::POST, "/v1/items")
            .body(&serde_json::json!([{"size": 4}]))
            .send()
            .await
            .unwrap();
        assert_eq!(sum, 4);
    }
}

#[tokio::test]
async fn the_client_leaves_a_standby_for_the_next_address() {
    let fixture = fixture(Limits::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let standby = format!("http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().route(
        "/v1/items",
        axum::routing::post(|| async { Problem::standby() }),
    );
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let body = serde_json::json!([{"size": 5}]);
    let both_addresses = client(&[standby.clone(), fixture.url("")], &fixture);
    assert_eq!(
        both_addresses
            .post::<_, u32>("/v1/items", &body, None)
            .await
            .unwrap(),
        5
    );
    let standby_only = client(&[standby], &fixture);
    let refused = standby_only
        .post::<_, u32>("/v1/items", &body, None)
        .await
        .unwrap_err();
    assert_eq!(
        refused.problem().map(|problem| problem.code),
        Some(Code::Standby)
    );
    assert!(refused.retryable());
    serving.abort();
}

#[tokio::test]
async fn a_refusal_is_complete_and_a_silent_server_times_out() {
    let fixture = fixture(Limits::default()).await;
    let client = client(&[fixture.url("/")], &fixture);
    let refused = client.get::<()>("/v1/nowhere").await.unwrap_err();
    assert!(refused.is_not_found() && !refused.retryable());
    let short_timeout = client
        .call(Method::GET, "/v1/work")
        .timeout(Duration::from_millis(100));
    let timed_out = short_timeout.send::<String>().await.unwrap_err();
    assert!(
        matches!(timed_out, ClientError::Unreachable { .. }),
        "{timed_out:?}"
    );
    let unreadable = client.get::<u32>("/v1/echo").await.unwrap_err();
    assert!(
        matches!(unreadable, ClientError::Unreadable { .. }),
        "{unreadable:?}"
    );
    assert!(Client::new(Vec::<String>::new(), TokenSource::none()).is_err());
    assert!(Client::from_list("ftp://x", TokenSource::none()).is_err());
}

#[tokio::test]
async fn a_changed_token_file_is_read_again() {
    let fixture = fixture(Limits::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.token");
    let client = Client::new([fixture.url("")], TokenSource::file(&path)).unwrap();
    let missing = client.get::<()>("/v1/status").await.unwrap_err();
    assert!(
        matches!(missing, ClientError::InvalidRequest(_)),
        "{missing:?}"
    );
    let send = || client.get::<serde_json::Value>("/v1/status");
    std::fs::write(&path, fixture.expired_token()).unwrap();
    assert_eq!(
        send().await.unwrap_err().problem().unwrap().code,
        Code::Unauthenticated
    );
    std::fs::write(&path, format!("{}\n", fixture.token())).unwrap();
    // The modification time must differ, whatever the resolution of the file system.
    let later = std::fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_secs(1);
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(later)
        .unwrap();
    assert_eq!(send().await.unwrap()["name"], "test");
}

#[tokio::test]
async fn a_trace_continues_through_server_and_client() {
    use tracing::Instrument as _;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;
    install_tracing();
    let fixture = fixture(Limits::default()).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let response = fixture
        .request(Method::GET, "/v1/nowhere")
        .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
        .send()
        .await
        .unwrap();
    let returned = response.headers()["traceparent"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(returned.contains(trace), "{returned}");
    let refused = problem_of(response).await.1;
    assert_eq!(refused.trace_id.as_deref(), Some(trace));
    assert_eq!(refused.instance.as_deref(), Some("/v1/nowhere"));

    let span = tracing::info_span!("submission");
    let ours = opentelemetry::trace::TraceContextExt::span(&span.context())
        .span_context()
        .trace_id()
        .to_string();
    let client = client(&[fixture.url("")], &fixture);
    let received = client
        .get::<String>("/v1/traceparent")
        .instrument(span)
        .await
        .unwrap();
    assert!(
        received.contains(&ours),
        "{received} does not go on from {ours}"
    );
}
