//! The exporters to a collector, OTLP over HTTP. Each batches on a thread of its own.

use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::{Key, KeyValue, global};
use opentelemetry_otlp::{
    LogExporter, MetricExporter, Protocol, SpanExporter, WithExportConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream};
use opentelemetry_sdk::trace::SdkTracerProvider;

use crate::clock::fresh_uuid;

const PATIENCE: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_secs(15);

pub(super) struct Exporters {
    pub(super) tracer: SdkTracerProvider,
    pub(super) logs: SdkLoggerProvider,
    meter: SdkMeterProvider,
}

impl Exporters {
    pub(super) fn new(service: &str, endpoint: &str) -> anyhow::Result<Self> {
        crate::client::install_crypto();
        let base = endpoint.trim_end_matches('/').to_owned();
        let resource = resource(service);
        // The blocking client refuses to be made on a thread of the runtime.
        let made = std::thread::spawn(move || Self::build(&base, &resource)).join();
        made.unwrap_or_else(|_| Err(anyhow::anyhow!("making the exporters panicked")))
            .with_context(|| format!("cannot export to {endpoint:?}"))
    }

    fn build(base: &str, resource: &Resource) -> anyhow::Result<Self> {
        let spans = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/traces"))
            .with_timeout(PATIENCE)
            .build()?;
        let metrics = MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/metrics"))
            .with_timeout(PATIENCE)
            .build()?;
        let logs = LogExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/logs"))
            .with_timeout(PATIENCE)
            .build()?;
        let reader = PeriodicReader::builder(metrics)
            .with_interval(INTERVAL)
            .build();
        Ok(Self {
            tracer: SdkTracerProvider::builder()
                .with_resource(resource.clone())
                .with_batch_exporter(spans)
                .build(),
            logs: SdkLoggerProvider::builder()
                .with_resource(resource.clone())
                .with_batch_exporter(logs)
                .build(),
            meter: SdkMeterProvider::builder()
                .with_resource(resource.clone())
                .with_reader(reader)
                .with_view(bounded)
                .build(),
        })
    }

    pub(super) fn make_global(&self) {
        global::set_tracer_provider(self.tracer.clone());
        global::set_meter_provider(self.meter.clone());
    }

    pub(super) fn shutdown(self) {
        // Each is tried whatever became of the others; a collector that is away is no news by now.
        let _ = self.tracer.shutdown();
        let _ = self.meter.shutdown();
        let _ = self.logs.shutdown();
    }
}

fn resource(service: &str) -> Resource {
    let environment =
        std::env::var("DEPLOYMENT_ENVIRONMENT").unwrap_or_else(|_| "unnamed".to_owned());
    Resource::builder()
        .with_service_name(format!("hayward-{service}"))
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", fresh_uuid().to_string()),
            KeyValue::new("deployment.environment.name", environment),
        ])
        .build()
}

/// T3: a client chooses the `Host` header, so it may not become a label of its own.
fn bounded(instrument: &Instrument) -> Option<Stream> {
    if !instrument.name().starts_with("http.server.") {
        return None;
    }
    let allowed = [
        "http.request.method",
        "http.route",
        "http.response.status_code",
    ];
    Stream::builder()
        .with_allowed_attribute_keys(allowed.map(Key::from_static_str))
        .build()
        .ok()
}
