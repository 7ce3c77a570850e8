//! Metrics for whoever comes to ask, as Prometheus does (T1): nothing is gathered until somebody
//! asks, and nothing is kept between two who do.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, Temporality};

use crate::metrics::exposition;

/// Of what [`scrape`] writes.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

static READER: OnceLock<ScrapeReader> = OnceLock::new();

/// The library's own reader for being asked, shared between it and us.
#[derive(Debug, Clone, Default)]
pub(super) struct ScrapeReader(Arc<ManualReader>);

impl ScrapeReader {
    /// From now on it is the one that [`scrape`] asks. A process has one.
    pub(super) fn publish(&self) {
        // Telemetry is made once, so there was none before.
        let _ = READER.set(self.clone());
    }
}

#[cfg(test)]
pub(crate) fn reader(reader: Arc<ManualReader>) -> impl MetricReader {
    ScrapeReader(reader)
}

/// Everything this process has measured, in the text format of Prometheus. None where nothing is
/// measured, because the setting `scrape_listen` was not there when telemetry was made.
///
/// It asks whoever has gauges, and so may wait for their locks: not on a thread of the runtime.
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
