//! Exporters to a collector, with OTLP over HTTP. Each exporter has batches and its own thread.
//! This module also creates the reader of metrics for Prometheus ([`super::scrape`]). Both are
//! optional.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::{Key, KeyValue, global};
use opentelemetry_otlp::{
    LogExporter, MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{self, BatchLogProcessor, SdkLoggerProvider};
use opentelemetry_sdk::metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream};
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{self, BatchSpanProcessor, Sampler, SdkTracerProvider};

use super::dropped_count::{CountDropped, MAX_QUEUE_LENGTH, QueueLength};
use super::otlp_http::OtlpHttp;
use super::scrape::ScrapeReader;
use crate::config::ServerSettings;
use crate::config::insecure_modes::check_peers;
use crate::metrics::catalogue;
use crate::runtime::clock::fresh_uuid;

/// Timeout of one attempt to send a batch.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the last export at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum time that spans and logs wait for a batch to fill.
const MAX_BATCH_DELAY: Duration = Duration::from_secs(2);

pub(super) struct Exporters {
    /// Providers for a collector. `None` if no collector is set.
    pub(super) otlp: Option<OtlpProviders>,
    meter: SdkMeterProvider,
}

/// Providers that only a collector needs.
pub(super) struct OtlpProviders {
    pub(super) tracer: SdkTracerProvider,
    pub(super) logs: SdkLoggerProvider,
}

/// Settings of the exporters.
#[derive(Clone)]
struct ExportSettings {
    base_url: String,
    /// Path of the file with the trusted authorities of the collector. `None` trusts those of the
    /// system.
    authority: Option<PathBuf>,
    interval: Duration,
    /// Fraction of traces that are exported, among those that begin here.
    sample_ratio: f64,
    resource: Resource,
}

impl Exporters {
    /// Creates the providers. Returns `None` if neither a collector nor a scrape listener is set.
    pub(super) fn from_settings(
        service: &str,
        settings: &ServerSettings,
    ) -> anyhow::Result<Option<Self>> {
        let scrape_reader = settings.scrape_listen.map(|_| ScrapeReader::default());
        let resource = resource(service);
        let Some(endpoint) = &settings.otlp_endpoint else {
            return Ok(scrape_reader.map(|scrape_reader| Self {
                meter: meter_provider(resource, None, Some(scrape_reader)),
                otlp: None,
            }));
        };
        check_peers(settings)?;
        crate::runtime::tls_provider::install_crypto();
        let export = ExportSettings {
            base_url: endpoint.trim_end_matches('/').to_owned(),
            authority: settings.otlp_authority.clone(),
            interval: Duration::from_millis(settings.otlp_interval_ms.max(10)),
            sample_ratio: f64::from(settings.otlp_trace_percent.min(100)) / 100.0,
            resource,
        };
        // The blocking client cannot be created on a thread of the runtime.
        let built = std::thread::spawn(move || Self::build(&export, scrape_reader)).join();
        built
            .unwrap_or_else(|_| Err(anyhow::anyhow!("making the exporters panicked")))
            .with_context(|| format!("cannot export to {endpoint:?}"))
            .map(Some)
    }

    fn build(export: &ExportSettings, scrape_reader: Option<ScrapeReader>) -> anyhow::Result<Self> {
        let ExportSettings {
            base_url, resource, ..
        } = export;
        let http = OtlpHttp::new(base_url, export.authority.as_deref())?;
        let metrics = MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base_url}/v1/metrics"))
            .with_timeout(SEND_TIMEOUT)
            .with_http_client(http.clone())
            .build()?;
        let metrics = CountDropped {
            inner: metrics,
            queue_length: QueueLength::default(),
        };
        let reader = PeriodicReader::builder(metrics)
            .with_interval(export.interval)
            .build();
        Ok(Self {
            otlp: Some(OtlpProviders {
                tracer: tracer_provider(export, &http)?,
                logs: logger_provider(export, http)?,
            }),
            meter: meter_provider(resource.clone(), Some(reader), scrape_reader),
        })
    }

    pub(super) fn make_global(&self) {
        if let Some(otlp) = &self.otlp {
            global::set_tracer_provider(otlp.tracer.clone());
        }
        global::set_meter_provider(self.meter.clone());
    }

    /// Ends the providers. An unreachable or silent collector delays the shutdown by a few seconds
    /// at most. Data that is not sent by then is lost (F47).
    pub(super) fn shutdown(self) {
        let (end_sender, end_receiver) = mpsc::channel();
        let Self { otlp, meter } = self;
        let mut shutdowns: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(move || {
            drop(meter.shutdown_with_timeout(SHUTDOWN_TIMEOUT));
        })];
        if let Some(OtlpProviders { tracer, logs }) = otlp {
            shutdowns.push(Box::new(move || {
                drop(tracer.shutdown_with_timeout(SHUTDOWN_TIMEOUT));
            }));
            shutdowns.push(Box::new(move || {
                drop(logs.shutdown_with_timeout(SHUTDOWN_TIMEOUT));
            }));
        }
        let count = shutdowns.len();
        for shutdown in shutdowns {
            let end_sender = end_sender.clone();
            std::thread::spawn(move || {
                shutdown();
                let _ = end_sender.send(());
            });
        }
        drop(end_sender);
        let deadline = std::time::Instant::now() + SHUTDOWN_TIMEOUT;
        for _ in 0..count {
            let timeout = deadline.saturating_duration_since(std::time::Instant::now());
            if end_receiver.recv_timeout(timeout).is_err() {
                return;
            }
        }
    }
}

fn meter_provider(
    resource: Resource,
    periodic_reader: Option<PeriodicReader<CountDropped<MetricExporter>>>,
    scrape_reader: Option<ScrapeReader>,
) -> SdkMeterProvider {
    let mut meter = SdkMeterProvider::builder()
        .with_resource(resource)
        .with_view(drop_unknown_attributes);
    if let Some(reader) = periodic_reader {
        meter = meter.with_reader(reader);
    }
    if let Some(scrape_reader) = scrape_reader {
        scrape_reader.publish();
        meter = meter.with_reader(scrape_reader);
    }
    meter.build()
}

fn tracer_provider(export: &ExportSettings, http: &OtlpHttp) -> anyhow::Result<SdkTracerProvider> {
    let queue_length = QueueLength::default();
    let inner = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/traces", export.base_url))
        .with_timeout(SEND_TIMEOUT)
        .with_http_client(http.clone())
        .build()?;
    let exporter = CountDropped {
        inner,
        queue_length: queue_length.clone(),
    };
    let config = trace::BatchConfigBuilder::default()
        .with_max_queue_size(MAX_QUEUE_LENGTH)
        .with_scheduled_delay(export.interval.min(MAX_BATCH_DELAY))
        .build();
    let inner = BatchSpanProcessor::builder(exporter)
        .with_batch_config(config)
        .build();
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(export.sample_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_resource(export.resource.clone())
        .with_sampler(sampler)
        .with_span_processor(CountDropped {
            inner,
            queue_length,
        })
        .build())
}

fn logger_provider(export: &ExportSettings, http: OtlpHttp) -> anyhow::Result<SdkLoggerProvider> {
    let queue_length = QueueLength::default();
    let inner = LogExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/logs", export.base_url))
        .with_timeout(SEND_TIMEOUT)
        .with_http_client(http)
        .build()?;
    let exporter = CountDropped {
        inner,
        queue_length: queue_length.clone(),
    };
    let config = logs::BatchConfigBuilder::default()
        .with_max_queue_size(MAX_QUEUE_LENGTH)
        .with_scheduled_delay(export.interval.min(MAX_BATCH_DELAY))
        .build();
    let inner = BatchLogProcessor::builder(exporter)
        .with_batch_config(config)
        .build();
    Ok(SdkLoggerProvider::builder()
        .with_resource(export.resource.clone())
        .with_log_processor(CountDropped {
            inner,
            queue_length,
        })
        .build())
}

/// Returns the resource of the process. The standard variables (`OTEL_SERVICE_NAME`, then
/// `OTEL_RESOURCE_ATTRIBUTES`) win over the built-in values.
fn resource(service: &str) -> Resource {
    let environment =
        std::env::var("DEPLOYMENT_ENVIRONMENT").unwrap_or_else(|_| "unnamed".to_owned());
    let service_name = std::env::var("OTEL_SERVICE_NAME").unwrap_or_default();
    let resource = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_service_name(format!("hayward-{service}"))
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", fresh_uuid().to_string()),
            KeyValue::new("deployment.environment.name", environment),
        ])
        .with_detector(Box::new(EnvResourceDetector::new()));
    if service_name.is_empty() {
        return resource.build();
    }
    resource.with_service_name(service_name).build()
}

/// Removes attributes that are not in the catalogue (T3).
fn drop_unknown_attributes(instrument: &Instrument) -> Option<Stream> {
    let metric = catalogue::find(instrument.name())?;
    let keys = metric.attributes.iter();
    Stream::builder()
        .with_allowed_attribute_keys(keys.map(|it| Key::from_static_str(it.key)))
        .build()
        .ok()
}
