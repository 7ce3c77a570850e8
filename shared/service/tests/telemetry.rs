//! What a collector receives of a process, and that nobody waits for one that is away (T1).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use bytes::Bytes;
use hayward_service::{FrameSettings, telemetry};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use parking_lot::Mutex;

type Received = Arc<Mutex<BTreeMap<String, Vec<Bytes>>>>;

async fn receive(State(received): State<Received>, Path(kind): Path<String>, body: Bytes) {
    received.lock().entry(kind).or_default().push(body);
}

fn all<M: prost::Message + Default>(received: &Received, kind: &str) -> Vec<M> {
    let received = received.lock();
    let bodies = received.get(kind).map(Vec::as_slice).unwrap_or_default();
    bodies
        .iter()
        .map(|body| M::decode(body.clone()).unwrap())
        .collect()
}

/// One test, because a process has one subscriber.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_receives_spans_logs_and_metrics_and_its_death_delays_nobody() {
    let received = Received::default();
    let router = axum::Router::new()
        .route("/v1/{kind}", axum::routing::post(receive))
        .with_state(Arc::clone(&received));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let collector = tokio::spawn(async move { axum::serve(listener, router).await });

    let settings = FrameSettings {
        otlp_endpoint: Some(endpoint.clone()),
        ..FrameSettings::default()
    };
    let telemetry = telemetry::init("test", &settings).unwrap();
    tracing::info_span!("round").in_scope(|| tracing::info!(event = "planned", "a plan"));
    opentelemetry::global::meter("hayward")
        .u64_counter("hayward.test.rounds")
        .build()
        .add(1, &[]);
    tokio::task::spawn_blocking(|| telemetry.shutdown())
        .await
        .unwrap();

    let traces: Vec<ExportTraceServiceRequest> = all(&received, "traces");
    let resource = traces[0].resource_spans[0].resource.as_ref().unwrap();
    let named = resource.attributes.iter().any(|pair| {
        pair.key == "service.name" && format!("{:?}", pair.value).contains("hayward-test")
    });
    assert!(named, "{resource:?}");
    let span = &traces[0].resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(span.name, "round");
    let logs: Vec<ExportLogsServiceRequest> = all(&received, "logs");
    let records = logs.iter().flat_map(|log| &log.resource_logs[0].scope_logs);
    let record = records
        .flat_map(|scope| &scope.log_records)
        .next()
        .expect("a log record");
    assert_eq!(record.trace_id, span.trace_id, "a log names its trace");
    let metrics: Vec<ExportMetricsServiceRequest> = all(&received, "metrics");
    assert!(format!("{metrics:?}").contains("hayward.test.rounds"));

    // F47: the collector is gone; whoever logs does not notice.
    collector.abort();
    let began = Instant::now();
    for number in 0..20_000 {
        tracing::info_span!("round").in_scope(|| tracing::trace!(number));
    }
    assert!(began.elapsed() < Duration::from_secs(5));
}
