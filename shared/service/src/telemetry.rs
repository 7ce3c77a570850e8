//! Logs, traces and metrics of a process (T1).
//!
//! Logs go to standard error, as text on a terminal and as JSON otherwise. If a collector is set,
//! all signals go there too. If it is down, data is dropped and counted, and no code waits for it.
//! Metrics can also be scraped: see [`mod@scrape`]. A process has one subscriber for all its
//! services. Their signals have the attribute `hayward.service`.
//!
//! The filter of the log does not affect the collector.

mod dropped_count;
mod event_names;
mod json_line;
mod log_throttle;
mod otlp;
mod otlp_http;
mod scrape;
mod sql_timing;

use std::io::IsTerminal as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::config::{LogFormat, ServerSettings};
use crate::metrics::{self, gauges};
use crate::trace;
use otlp::Exporters;

pub use crate::metrics::metrics_enabled;
pub use crate::trace::traces_enabled;
#[cfg(test)]
pub(crate) use scrape::reader;
pub(crate) use scrape::{CONTENT_TYPE, scrape};

/// Libraries of which only warnings and errors are used. Some of them log while exporting, which
/// would cause more exports.
const WARN_ONLY_LIBRARIES: [&str; 8] = [
    "hyper",
    "hyper_util",
    "h2",
    "reqwest",
    "rustls",
    "opentelemetry",
    "tower",
    "sqlx",
];
/// Target of spans of routine requests. These spans are only for the log.
pub(crate) const LOG_ONLY_TARGET: &str = "hayward::chatter";

static INITIALIZED: OnceLock<()> = OnceLock::new();
static INITIALIZING: Mutex<()> = Mutex::new(());

/// Guard that flushes the exporters when it is dropped. It is empty for all but the first caller of
/// [`init`].
#[must_use = "telemetry ends when this is dropped"]
#[derive(Default)]
pub struct Telemetry {
    exporters: Option<Exporters>,
}

/// Starts the telemetry of the process, once.
///
/// # Errors
/// If the filter or the address of the collector is invalid.
pub fn init(service: &str, settings: &ServerSettings) -> anyhow::Result<Telemetry> {
    let _guard = INITIALIZING.lock();
    if INITIALIZED.get().is_some() {
        return Ok(Telemetry::default());
    }
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let exporters = Exporters::from_settings(service, settings)?;
    if let Some(exporters) = &exporters {
        exporters.make_global();
        metrics::ENABLED.store(true, Ordering::Relaxed);
        trace::ENABLED.store(exporters.otlp.is_some(), Ordering::Relaxed);
        gauges::register();
        dropped_count::init_counters();
    }
    subscribe(exporters.as_ref(), settings)?;
    let _ = INITIALIZED.set(());
    Ok(Telemetry { exporters })
}

fn subscribe(exporters: Option<&Exporters>, settings: &ServerSettings) -> anyhow::Result<()> {
    let otlp = exporters.and_then(|exporters| exporters.otlp.as_ref());
    let spans_layer = otlp.map(|otlp| {
        tracing_opentelemetry::layer()
            .with_tracer(otlp.tracer.tracer("hayward"))
            .with_filter(export_filter().with_target(LOG_ONLY_TARGET, LevelFilter::OFF))
    });
    let logs_layer = otlp.map(|otlp| {
        let bridge =
            opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge::new(&otlp.logs);
        bridge.with_filter(export_filter())
    });
    let sql_layer = exporters.map(|_| {
        let targets = Targets::new().with_target(sql_timing::TARGET, LevelFilter::DEBUG);
        sql_timing::SqlTiming.with_filter(targets)
    });
    let json = match settings.log_format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let json_layer = json.then(|| {
        fmt::layer()
            .fmt_fields(JsonFields::new())
            .event_format(json_line::JsonLine)
            .with_writer(std::io::stderr)
    });
    let text_layer = (!json).then(|| {
        fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
    });
    let result = tracing_subscriber::registry()
        .with(spans_layer)
        .with(json_layer.with_filter(log_filter(&settings.log_filter)?))
        .with(text_layer.with_filter(log_filter(&settings.log_filter)?))
        .with(logs_layer)
        .with(sql_layer)
        // The filter ensures that disabled events cost nothing.
        .with(log_throttle::LogThrottle::default().with_filter(export_filter()))
        .try_init();
    // A test may have its own subscriber.
    if let Err(error) = result {
        tracing::debug!(%error, "another subscriber is set already");
    }
    Ok(())
}

/// Returns the filter of events that are exported to a collector.
fn export_filter() -> Targets {
    let all = Targets::new().with_default(LevelFilter::INFO);
    all.with_targets(WARN_ONLY_LIBRARIES.map(|library| (library, LevelFilter::WARN)))
}

fn log_filter(directives: &str) -> anyhow::Result<EnvFilter> {
    let mut text = WARN_ONLY_LIBRARIES
        .map(|library| format!("{library}=warn"))
        .join(",");
    if !directives.is_empty() {
        // Later directives win, so a library can still be enabled by name.
        text.push(',');
        text.push_str(directives);
    }
    EnvFilter::builder()
        .parse(&text)
        .with_context(|| format!("the setting `log_filter` is not a filter: {directives:?}"))
}

impl Telemetry {
    /// Flushes the exporters and ends them. Call it from a thread that may block for some seconds.
    pub fn shutdown(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if let Some(exporters) = self.exporters.take() {
            exporters.shutdown();
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if self.exporters.is_some() {
            // The exporters block, which would panic on a thread of the runtime.
            std::thread::scope(|scope| {
                scope.spawn(|| self.finish());
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_log_only_warnings_and_invalid_filters_are_refused() {
        let text = log_filter("debug").unwrap().to_string();
        assert!(
            text.contains("hyper=warn") && text.contains("debug"),
            "{text}"
        );
        assert!(log_filter("=====").is_err());
    }

    #[test]
    fn several_services_of_one_process_share_one_subscriber() {
        let settings = ServerSettings::default();
        let _first = init("one", &settings).unwrap();
        let _second = init("two", &settings).unwrap();
    }
}
