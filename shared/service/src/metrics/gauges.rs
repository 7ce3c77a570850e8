//! What gauges say. Whoever leads puts its readings here now and then, the exporter takes what is
//! here; a replica that leads no more takes its own away, and then nothing is said.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use opentelemetry::metrics::ObservableGauge;
use opentelemetry::{KeyValue, global};
use parking_lot::Mutex;

use super::{Kind, Metric, SCOPE, catalogue};

/// One gauge with its attributes, and what it reads.
#[derive(Debug, Clone)]
pub struct Reading {
    pub metric: &'static Metric,
    pub attributes: Vec<KeyValue>,
    pub value: f64,
}

/// By service and by who of it speaks: one process may be several services.
type Sources = BTreeMap<(&'static str, &'static str), Source>;

/// Asked whenever the exporter looks. It has to answer at once.
type ReadGauges = Arc<dyn Fn() -> Vec<Reading> + Send + Sync>;

enum Source {
    Fixed(Vec<Reading>),
    Live(ReadGauges),
}

static SOURCES: Mutex<Sources> = Mutex::new(Sources::new());

/// Replaces what `part` of `service` said before.
pub fn set(service: &'static str, part: &'static str, readings: Vec<Reading>) {
    let source = Source::Fixed(readings);
    SOURCES.lock().insert((service, part), source);
}

/// The same for what moves by itself, as ages do, also while its owner is stuck.
pub fn set_live(
    service: &'static str,
    part: &'static str,
    readings: impl Fn() -> Vec<Reading> + Send + Sync + 'static,
) {
    let source = Source::Live(Arc::new(readings));
    SOURCES.lock().insert((service, part), source);
}

/// Nothing is known any more.
pub fn clear(service: &'static str, part: &'static str) {
    SOURCES.lock().remove(&(service, part));
}

#[cfg(test)]
pub(crate) fn shown(service: &'static str, part: &'static str) -> Vec<Reading> {
    match SOURCES.lock().get(&(service, part)) {
        Some(Source::Fixed(readings)) => readings.clone(),
        _ => Vec::new(),
    }
}

static GAUGES: OnceLock<Vec<ObservableGauge<f64>>> = OnceLock::new();

/// Once, when the process has its exporters.
pub(crate) fn register() {
    GAUGES.get_or_init(|| {
        let meter = global::meter(SCOPE);
        let gauges = catalogue::all().filter(|metric| metric.kind == Kind::Gauge);
        let made = gauges.map(|metric| {
            meter
                .f64_observable_gauge(metric.name)
                .with_unit(metric.unit)
                .with_description(metric.what)
                .with_callback(move |observer| {
                    let observe = |reading: &Reading| {
                        if std::ptr::eq(reading.metric, metric) {
                            observer.observe(reading.value, &reading.attributes);
                        }
                    };
                    let mut live: Vec<ReadGauges> = Vec::new();
                    for source in SOURCES.lock().values() {
                        match source {
                            Source::Fixed(readings) => readings.iter().for_each(&observe),
                            Source::Live(read) => live.push(Arc::clone(read)),
                        }
                    }
                    for read in live {
                        read().iter().for_each(&observe);
                    }
                })
                .build()
        });
        made.collect()
    });
}
