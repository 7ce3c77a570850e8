//! Counts dropped telemetry. Each signal has a bounded queue before its exporter. Data is dropped
//! if the queue is full, or if a collector refuses it or does not respond (F47).
//!
//! The queue of the library has the same length but does not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter, LogProcessor, SdkLogRecord};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};

use super::event_names::set_event_name;
use crate::metrics::catalogue::{SIGNAL, TELEMETRY_DROPPED};

/// Maximum number of spans or records in a queue.
pub(super) const MAX_QUEUE_LENGTH: usize = 4_096;

/// Length of a queue. The sender and the exporter share it.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueLength(Arc<AtomicUsize>);

impl QueueLength {
    fn try_reserve(&self) -> bool {
        let incremented = |length| (length < MAX_QUEUE_LENGTH).then_some(length + 1);
        let reserved = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, incremented);
        reserved.is_ok()
    }

    fn release(&self, count: usize) {
        let decreased = |length: usize| Some(length.saturating_sub(count));
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, decreased);
    }
}

fn count_dropped(signal: &'static str, count: usize) {
    TELEMETRY_DROPPED.add(
        u64::try_from(count).unwrap_or(u64::MAX),
        &[SIGNAL.with(signal)],
    );
}

/// Makes the counters visible at 0.
pub(super) fn init_counters() {
    for signal in ["spans", "logs", "metrics"] {
        count_dropped(signal, 0);
    }
}

/// Wrapper that counts dropped data, around an exporter or around the queue before it.
#[derive(Debug)]
pub(super) struct CountDropped<T> {
    pub inner: T,
    pub queue_length: QueueLength,
}

impl<E: SpanExporter> SpanExporter for CountDropped<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.queue_length.release(count);
        let sent = self.inner.export(batch).await;
        if sent.is_err() {
            count_dropped("spans", count);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<P: SpanProcessor> SpanProcessor for CountDropped<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.queue_length.try_reserve() {
            self.inner.on_end(span);
        } else {
            count_dropped("spans", 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for CountDropped<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let count = batch.iter().count();
        self.queue_length.release(count);
        let sent = self.inner.export(batch).await;
        if sent.is_err() {
            count_dropped("logs", count);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<P: LogProcessor> LogProcessor for CountDropped<P> {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        set_event_name(record);
        if self.queue_length.try_reserve() {
            self.inner.emit(record, scope);
        } else {
            count_dropped("logs", 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for CountDropped<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let sent = self.inner.export(metrics).await;
        if sent.is_err() {
            // The next export contains the counters again. Only the gauges of this export are
            // lost.
            count_dropped("metrics", 1);
        }
        sent
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_accepts_no_item_until_one_leaves() {
        let queue_length = QueueLength::default();
        assert!((0..MAX_QUEUE_LENGTH).all(|_| queue_length.try_reserve()));
        assert!(!queue_length.try_reserve());
        queue_length.release(1);
        assert!(queue_length.try_reserve() && !queue_length.try_reserve());
    }
}
