//! Gauges of the process. The leader of a service sets its readings here, and the exporter reads
//! them. A replica that no longer leads clears its readings.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use opentelemetry::metrics::ObservableGauge;
use opentelemetry::{KeyValue, global};
use parking_lot::Mutex;

use super::{Kind, Metric, SCOPE, catalogue};

/// Value of a gauge, with its attributes.
#[derive(Debug, Clone)]
pub struct Reading {
    pub metric: &'static Metric,
    pub attributes: Vec<KeyValue>,
    pub value: f64,
}

/// Sources of readings by service and part of the service. A process may run several services.
type Sources = BTreeMap<(&'static str, &'static str), Source>;

/// Function that returns readings. It is called at every export and must not block.
type ReadGauges = Arc<dyn Fn() -> Vec<Reading> + Send + Sync>;

enum Source {
    Fixed(Vec<Reading>),
    Live(ReadGauges),
}

static SOURCES: Mutex<Sources> = Mutex::new(Sources::new());

/// Replaces the readings of `part` of `service`.
pub fn set(service: &'static str, part: &'static str, readings: Vec<Reading>) {
    let source = Source::Fixed(readings);
    SOURCES.lock().insert((service, part), source);
}

/// Sets a function for readings that change with time, such as ages.
pub fn set_live(
    service: &'static str,
    part: &'static str,
    readings: impl Fn() -> Vec<Reading> + Send + Sync + 'static,
) {
    let source = Source::Live(Arc::new(readings));
    SOURCES.lock().insert((service, part), source);
}

/// Removes the readings of `part` of `service`.
pub fn clear(service: &'static str, part: &'static str) {
    SOURCES.lock().remove(&(service, part));
}

#[cfg(test)]
pub(crate) fn fixed_readings(service: &'static str, part: &'static str) -> Vec<Reading> {
    match SOURCES.lock().get(&(service, part)) {
        Some(Source::Fixed(readings)) => readings.clone(),
        _ => Vec::new(),
    }
}

static GAUGES: OnceLock<Vec<ObservableGauge<f64>>> = OnceLock::new();

/// Registers all gauges once. Call it after the exporters exist.
pub(crate) fn register() {
    GAUGES.get_or_init(|| {
        let meter = global::meter(SCOPE);
        let gauges = catalogue::all().filter(|metric| metric.kind == Kind::Gauge);
        let registered = gauges.map(|metric| {
            meter
                .f64_observable_gauge(metric.name)
                .with_unit(metric.unit)
                .with_description(metric.description)
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
        registered.collect()
    });
}
