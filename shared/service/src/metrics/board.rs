//! What gauges say. Whoever leads puts its readings here now and then, the exporter takes what is
//! here; a replica that leads no more takes its own away, and then nothing is said.

use std::collections::BTreeMap;
use std::sync::OnceLock;

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
type Boards = BTreeMap<(&'static str, &'static str), Vec<Reading>>;

static BOARDS: Mutex<Boards> = Mutex::new(Boards::new());

/// Replaces what `part` of `service` said before.
pub fn show(service: &'static str, part: &'static str, readings: Vec<Reading>) {
    if crate::telemetry::collected() {
        BOARDS.lock().insert((service, part), readings);
    }
}

/// Nothing is known any more.
pub fn clear(service: &'static str, part: &'static str) {
    BOARDS.lock().remove(&(service, part));
}

static GAUGES: OnceLock<Vec<ObservableGauge<f64>>> = OnceLock::new();

/// Once, when the process has its exporters.
pub(crate) fn watch() {
    GAUGES.get_or_init(|| {
        let meter = global::meter(SCOPE);
        let gauges = catalogue::all().filter(|metric| metric.kind == Kind::Gauge);
        let made = gauges.map(|metric| {
            meter
                .f64_observable_gauge(metric.name)
                .with_unit(metric.unit)
                .with_description(metric.what)
                .with_callback(move |observer| {
                    let boards = BOARDS.lock();
                    let all = boards.values().flatten();
                    for reading in all.filter(|it| std::ptr::eq(it.metric, metric)) {
                        observer.observe(reading.value, &reading.attributes);
                    }
                })
                .build()
        });
        made.collect()
    });
}
