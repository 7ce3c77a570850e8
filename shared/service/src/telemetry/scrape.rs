//! Metrics for scraping by Prometheus. They are collected at each scrape (T1).

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, Temporality};

use crate::metrics::exposition;

/// Content type of [`scrape`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

static READER: OnceLock<ScrapeReader> = OnceLock::new();

/// The manual reader of the library, shared with the provider.
#[derive(Debug, Clone, Default)]
pub(super) struct ScrapeReader(Arc<ManualReader>);

impl ScrapeReader {
    /// Makes this reader the source of [`scrape`]. A process has one such reader.
    pub(super) fn publish(&self) {
        // Telemetry is initialized once, so there is no other reader.
        let _ = READER.set(self.clone());
    }
}

#[cfg(test)]
pub(crate) fn reader(reader: Arc<ManualReader>) -> impl MetricReader {
    ScrapeReader(reader)
}

/// Returns all metrics of this process, in the text format of Prometheus. Returns `None` without
/// the setting `scrape_listen`.
///
/// The call may block on the locks of gauges. Do not call it on a thread of the runtime.
pub(crate) fn scrape() -> Option<String> {
    let mut metrics = ResourceMetrics::default();
    READER.get()?.collect(&mut metrics).ok()?;
    Some(exposition::render(&metrics))
}

impl MetricReader for ScrapeReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}
