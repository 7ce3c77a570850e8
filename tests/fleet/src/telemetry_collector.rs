//! A collector of telemetry for tests. It receives OTLP over HTTP and stores everything.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Path, State};
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::Mutex;

use crate::vendor_collector::Relay;

type Attributes = BTreeMap<String, String>;

/// OTLP status code of a failed span.
const STATUS_ERROR: i32 = 2;

#[derive(Default)]
struct Received {
    /// Bodies of all requests, by kind: `traces`, `logs` or `metrics`.
    bodies: Mutex<BTreeMap<String, Vec<Bytes>>>,
    is_hanging: AtomicBool,
}

/// A telemetry collector on its own port. It stops when it is dropped.
pub struct Collector {
    pub endpoint: String,
    received: Arc<Received>,
    relay: Option<Relay>,
}

/// A span, with the process that sent it.
#[derive(Debug, Clone)]
pub struct Span {
    /// `service.name` of the process.
    pub process: String,
    pub name: String,
    pub trace: Vec<u8>,
    pub id: Vec<u8>,
    pub parent: Vec<u8>,
    /// Trace ids of the links.
    pub links: Vec<Vec<u8>>,
    pub attributes: Attributes,
    pub failed: bool,
}

/// One series of a metric, with the process that sent it.
#[derive(Debug, Clone)]
pub struct Measurement {
    pub process: String,
    pub name: String,
    pub unit: String,
    pub kind: &'static str,
    pub attributes: Attributes,
    /// Last value of the series. For a histogram it is the number of observations.
    pub value: f64,
}

async fn receive(
    State(received): State<Arc<Received>>,
    Path(kind): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) {
    if received.is_hanging.load(Ordering::SeqCst) {
        // The request is received and never answered.
        return std::future::pending().await;
    }
    let body = decompress(&headers, body);
    received.bodies.lock().entry(kind).or_default().push(body);
}

/// Decompresses a body. The fleet sends plain bodies, but other collectors compress them.
fn decompress(headers: &HeaderMap, body: Bytes) -> Bytes {
    if headers.get(CONTENT_ENCODING).is_none_or(|it| it != "gzip") {
        return body;
    }
    let mut plain = Vec::new();
    let result = GzDecoder::new(body.as_ref()).read_to_end(&mut plain);
    result.expect("a valid gzip body");
    plain.into()
}

impl Collector {
    pub async fn start() -> Self {
        let received = Arc::new(Received::default());
        let router = axum::Router::new()
            .route("/v1/{kind}", axum::routing::post(receive))
            .with_state(Arc::clone(&received));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            endpoint: format!("http://{address}"),
            received,
            relay: None,
        }
    }

    /// Starts a collector behind the collector of another vendor, if `HAYWARD_COLLECTOR` names one.
    pub async fn start_behind_relay() -> Self {
        let mut collector = Self::start().await;
        collector.relay = Relay::start_in_front_of(&collector.endpoint).await;
        if let Some(relay) = &collector.relay {
            collector.endpoint.clone_from(&relay.endpoint);
        }
        collector
    }

    /// Stops answering requests, or answers them again.
    pub fn set_hanging(&self, is_hanging: bool) {
        self.received.is_hanging.store(is_hanging, Ordering::SeqCst);
    }

    /// Returns all received bodies as text. Invalid UTF-8 is replaced.
    pub fn received_text(&self) -> String {
        let bodies = self.received.bodies.lock();
        let all_bodies = bodies.values().flatten();
        all_bodies
            .map(|body| String::from_utf8_lossy(body).into_owned())
            .collect()
    }

    fn decode_all<M: prost::Message + Default>(&self, kind: &str) -> Vec<M> {
        let bodies = self.received.bodies.lock();
        let bodies = bodies.get(kind).map(Vec::as_slice).unwrap_or_default();
        let decode = |body: &Bytes| M::decode(body.clone()).expect("a valid OTLP request");
        bodies.iter().map(decode).collect()
    }

    pub fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for request in self.decode_all::<ExportTraceServiceRequest>("traces") {
            for resource in request.resource_spans {
                let process = service_name(resource.resource.as_ref());
                for span in resource.scope_spans.into_iter().flat_map(|it| it.spans) {
                    let links = span.links.into_iter().map(|link| link.trace_id);
                    spans.push(Span {
                        process: process.clone(),
                        name: span.name,
                        trace: span.trace_id,
                        id: span.span_id,
                        parent: span.parent_span_id,
                        links: links.collect(),
                        attributes: attributes_to_text(&span.attributes),
                        failed: span
                            .status
                            .is_some_and(|status| status.code == STATUS_ERROR),
                    });
                }
            }
        }
        spans
    }

    /// Returns all log records, each with the process that wrote it.
    pub fn logs(&self) -> Vec<(String, LogRecord)> {
        let mut logs = Vec::new();
        for request in self.decode_all::<ExportLogsServiceRequest>("logs") {
            for resource in request.resource_logs {
                let process = service_name(resource.resource.as_ref());
                let records = resource.scope_logs.into_iter();
                let records = records.flat_map(|scope| scope.log_records);
                logs.extend(records.map(|record| (process.clone(), record)));
            }
        }
        logs
    }

    /// Returns every series that ever arrived, with its last value.
    pub fn metrics(&self) -> Vec<Measurement> {
        let mut last: BTreeMap<(String, String, Attributes), Measurement> = BTreeMap::new();
        for request in self.decode_all::<ExportMetricsServiceRequest>("metrics") {
            for resource in request.resource_metrics {
                let process = service_name(resource.resource.as_ref());
                let metrics = resource.scope_metrics.into_iter();
                for metric in metrics.flat_map(|scope| scope.metrics) {
                    for measurement in measurements(&process, metric) {
                        let key = (
                            process.clone(),
                            measurement.name.clone(),
                            measurement.attributes.clone(),
                        );
                        last.insert(key, measurement);
                    }
                }
            }
        }
        last.into_values().collect()
    }
}

/// Returns one measurement for each data point of a metric.
fn measurements(process: &str, metric: Metric) -> Vec<Measurement> {
    let (name, unit) = (metric.name, metric.unit);
    let measurement = |kind, attributes: &[KeyValue], value| Measurement {
        process: process.to_owned(),
        name: name.clone(),
        unit: unit.clone(),
        kind,
        attributes: attributes_to_text(attributes),
        value,
    };
    let number_measurement =
        |kind, point: &NumberDataPoint| measurement(kind, &point.attributes, point_value(point));
    match metric.data {
        Some(Data::Gauge(gauge)) => {
            let points = gauge.data_points.iter();
            points
                .map(|point| number_measurement("gauge", point))
                .collect()
        }
        Some(Data::Sum(sum)) => {
            let kind = if sum.is_monotonic { "counter" } else { "sum" };
            let points = sum.data_points.iter();
            points
                .map(|point| number_measurement(kind, point))
                .collect()
        }
        Some(Data::Histogram(histogram)) => {
            let points = histogram.data_points.iter();
            let count = |count: u64| u32::try_from(count).map_or(f64::MAX, f64::from);
            points
                .map(|point| measurement("histogram", &point.attributes, count(point.count)))
                .collect()
        }
        _ => vec![measurement("unknown", &[], 0.0)],
    }
}

fn point_value(point: &NumberDataPoint) -> f64 {
    match point.value {
        Some(number_data_point::Value::AsDouble(value)) => value,
        Some(number_data_point::Value::AsInt(value)) => {
            i32::try_from(value).map_or(f64::MAX, f64::from)
        }
        None => f64::NAN,
    }
}

/// Converts attributes to text.
pub fn attributes_to_text(attributes: &[KeyValue]) -> Attributes {
    let pairs = attributes.iter();
    pairs
        .map(|pair| (pair.key.clone(), value_to_text(pair.value.as_ref())))
        .collect()
}

fn value_to_text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(yes)) => yes.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn service_name(resource: Option<&Resource>) -> String {
    let attributes = resource.map(|it| attributes_to_text(&it.attributes));
    let mut attributes = attributes.unwrap_or_default();
    attributes.remove("service.name").unwrap_or_default()
}
