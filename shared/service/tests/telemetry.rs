//! The data that a collector receives from a process. An unreachable collector delays nothing (T1).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, Request, State};
use bytes::Bytes;
use hayward_service::http::deprecation::{DeprecationNotice, deprecated};
use hayward_service::{Caller, Principal, Scope, ServerSettings, telemetry};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use parking_lot::Mutex;
use tower::ServiceExt as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

type Received = Arc<Mutex<BTreeMap<String, Vec<Bytes>>>>;

async fn receive(State(received): State<Received>, Path(kind): Path<String>, body: Bytes) {
    received.lock().entry(kind).or_default().push(body);
}

fn decode_all<M: prost::Message + Default>(received: &Received, kind: &str) -> Vec<M> {
    let received = received.lock();
    let bodies = received.get(kind).map(Vec::as_slice).unwrap_or_default();
    bodies
        .iter()
        .map(|body| M::decode(body.clone()).unwrap())
        .collect()
}

#[utoipa::path(get, path = "/v1/old/{thing}", operation_id = "deprecated_route", responses(
    (status = 200, description = "as ever")))]
async fn deprecated_route() {}

/// Uses a deprecated route: twice as the user ann, once without a caller.
async fn call_deprecated_route() {
    let notice = DeprecationNotice {
        deprecated_since: 1_688_169_599,
        sunset: 1_719_791_999,
        successor: "/v1/new",
    };
    let routes = OpenApiRouter::<()>::new().routes(routes!(deprecated_route));
    let (router, document) = deprecated(routes, notice).split_for_parts();
    let described = document.paths.paths["/v1/old/{thing}"].get.clone().unwrap();
    assert!(described.deprecated.is_some());
    let ann = Caller(Arc::new(Principal::new("ann", [Scope::Submitter])));
    for caller in [Some(ann.clone()), Some(ann), None] {
        let mut request = Request::get("/v1/old/7").body(Body::empty()).unwrap();
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["deprecation"], "@1688169599");
        assert_eq!(
            response.headers()["sunset"],
            "Sun, 30 Jun 2024 23:59:59 GMT"
        );
    }
}

/// This is a single test, because a process has one subscriber.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_receives_spans_logs_and_metrics_and_its_loss_delays_nothing() {
    let received = Received::default();
    let router = axum::Router::new()
        .route("/v1/{kind}", axum::routing::post(receive))
        .with_state(Arc::clone(&received));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let collector = tokio::spawn(async move { axum::serve(listener, router).await });

    let settings = ServerSettings {
        otlp_endpoint: Some(endpoint.clone()),
        ..ServerSettings::default()
    };
    let telemetry = telemetry::init("test", &settings).unwrap();
    tracing::info_span!("round").in_scope(|| tracing::info!(event = "planned", "a plan"));
    opentelemetry::global::meter("hayward")
        .u64_counter("hayward.test.rounds")
        .build()
        .add(1, &[]);
    call_deprecated_route().await;
    tokio::task::spawn_blocking(|| telemetry.shutdown())
        .await
        .unwrap();

    let traces: Vec<ExportTraceServiceRequest> = decode_all(&received, "traces");
    let resource = traces[0].resource_spans[0].resource.as_ref().unwrap();
    let has_service_name = resource.attributes.iter().any(|pair| {
        pair.key == "service.name" && format!("{:?}", pair.value).contains("hayward-test")
    });
    assert!(has_service_name, "{resource:?}");
    let scopes = &traces[0].resource_spans[0].scope_spans;
    let mut spans = scopes.iter().flat_map(|scope| &scope.spans);
    let span = spans.find(|span| span.name == "round").expect("our span");
    let logs: Vec<ExportLogsServiceRequest> = decode_all(&received, "logs");
    let records = logs.iter().flat_map(|log| &log.resource_logs[0].scope_logs);
    // The record is found by its text, because the order within a batch is undefined.
    let record = records
        .flat_map(|scope| &scope.log_records)
        .find(|record| format!("{:?}", record.body).contains("a plan"))
        .expect("our log record");
    assert_eq!(record.trace_id, span.trace_id, "a log names its trace");
    let metrics: Vec<ExportMetricsServiceRequest> = decode_all(&received, "metrics");
    assert!(format!("{metrics:?}").contains("hayward.test.rounds"));
    // Use of deprecated routes is counted by route and kind of caller, and not by name (A14).
    let metrics = format!("{metrics:?}");
    let (_, counter_text) = metrics.split_once("hayward.api.deprecated").unwrap();
    assert!(
        counter_text.contains("/v1/old/{thing}") && counter_text.contains("submitter"),
        "{counter_text}"
    );
    assert!(counter_text.contains("stranger"), "{counter_text}");
    assert!(
        !counter_text.contains("\"ann\"") && !counter_text.contains("/v1/old/7"),
        "{counter_text}"
    );

    // The collector is gone, but logging does not block (F47).
    collector.abort();
    let began = Instant::now();
    for number in 0..20_000 {
        tracing::info_span!("round").in_scope(|| tracing::trace!(number));
    }
    assert!(began.elapsed() < Duration::from_secs(5));
}
