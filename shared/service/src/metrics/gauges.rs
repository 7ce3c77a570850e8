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
type Boards = BTreeMap<(&'static str, &'static str), Board>;

/// Asked whenever the exporter looks. It has to answer at once.
type Asks = Arc<dyn Fn() -> Vec<Reading> + Send + Sync>;

enum Board {
    Shown(Vec<Reading>),
    Live(Asks),
}

static BOARDS: Mutex<Boards> = Mutex::new(Boards::new());

/// Replaces what `part` of `service` said before.
pub fn show(service: &'static str, part: &'static str, readings: Vec<Reading>) {
    let board = Board::Shown(readings);
    BOARDS.lock().insert((service, part), board);
}

/// The same for what moves by itself, as ages do, also while its owner is stuck.
pub fn ask(
    service: &'static str,
    part: &'static str,
    readings: impl Fn() -> Vec<Reading> + Send + Sync + 'static,
) {
    let board = Board::Live(Arc::new(readings));
    BOARDS.lock().insert((service, part), board);
}

/// Nothing is known any more.
pub fn clear(service: &'static str, part: &'static str) {
    BOARDS.lock().remove(&(service, part));
}

#[cfg(test)]
pub(crate) fn shown(service: &'static str, part: &'static str) -> Vec<Reading> {
    match BOARDS.lock().get(&(service, part)) {
        Some(Board::Shown(readings)) => readings.clone(),
        _ => Vec::new(),
    }
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
                    let tell = |reading: &Reading| {
                        if std::ptr::eq(reading.metric, metric) {
                            observer.observe(reading.value, &reading.attributes);
                        }
                    };
                    let mut asks: Vec<Asks> = Vec::new();
                    for board in BOARDS.lock().values() {
                        match board {
                            Board::Shown(readings) => readings.iter().for_each(&tell),
                            Board::Live(ask) => asks.push(Arc::clone(ask)),
                        }
                    }
                    for ask in asks {
                        ask().iter().for_each(&tell);
                    }
                })
                .build()
        });
        made.collect()
    });
}
