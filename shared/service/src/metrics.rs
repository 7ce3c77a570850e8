//! The metrics of Hayward (T2). Every metric is described once, in [`catalogue`]. Its instrument is
//! created from that description, so name, unit and attributes always agree.
//!
//! Counters and histograms are recorded where an event happens. The leader sets gauges as
//! [`Reading`]s from time to time: see [`gauges`]. Without a collector, no value is measured.

pub mod catalogue;
mod docs_page;
pub(crate) mod exposition;
pub mod gauges;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::metrics::{Counter, Histogram};
use opentelemetry::{KeyValue, Value, global};

pub use docs_page::render_docs_page;
pub use gauges::Reading;

/// Whether metrics are exported. Telemetry sets it once.
pub(crate) static ENABLED: AtomicBool = AtomicBool::new(false);

/// Returns whether metrics are exported. Otherwise no value is measured.
pub fn metrics_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// OpenTelemetry scope of our own instruments.
pub const SCOPE: &str = "hayward";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A current value.
    Gauge,
    /// A distribution of amounts.
    Histogram,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Groups of metrics in the documentation. HTTP and the process have their own groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Waiting,
    Rounds,
    Fairness,
    Preemption,
    Gangs,
    Nodes,
    Agents,
    Leadership,
    Database,
    Stream,
    Invariants,
    Audit,
    Work,
    Placements,
    Http,
    Process,
}

/// Possible values of an attribute. Ids and free text of clients are not allowed (T3).
#[derive(Debug, Clone, Copy)]
pub enum Values {
    /// One of these words.
    Listed(&'static [&'static str]),
    /// One value of a bounded set, which this text describes.
    Bounded(&'static str),
}

/// An attribute of metrics.
#[derive(Debug)]
pub struct Attribute {
    pub key: &'static str,
    pub values: Values,
}

impl Attribute {
    pub const fn listed(key: &'static str, words: &'static [&'static str]) -> Self {
        Self {
            key,
            values: Values::Listed(words),
        }
    }

    pub const fn bounded(key: &'static str, description: &'static str) -> Self {
        Self {
            key,
            values: Values::Bounded(description),
        }
    }

    /// Returns the attribute with this value, for a measurement.
    pub fn with(&'static self, value: impl Into<Value>) -> KeyValue {
        KeyValue::new(self.key, value)
    }

    /// Returns whether the attribute may have this value. Only values from other sources are
    /// checked.
    pub fn allows(&self, value: &str) -> bool {
        match self.values {
            Values::Listed(words) => words.contains(&value),
            Values::Bounded(_) => true,
        }
    }
}

/// One metric: its description, and its instrument, which is created at the first use.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    /// Unit in UCUM notation, or the counted thing in braces.
    pub unit: &'static str,
    /// Human-readable description: one sentence without a full stop.
    pub description: &'static str,
    pub group: Group,
    pub attributes: &'static [&'static Attribute],
    /// Services that report the metric. Agents count as one of them.
    pub services: &'static [&'static str],
    /// Whether every fleet reports it. Otherwise it appears only after unusual events.
    pub always_reported: bool,
    /// Upper limits of the buckets of a histogram.
    boundaries: &'static [f64],
    instrument: OnceLock<Instrument>,
}

#[derive(Debug)]
enum Instrument {
    Counter(Counter<u64>),
    Histogram(Histogram<f64>),
    Gauge,
}

/// Default bucket boundaries in seconds, from operations in memory to those that take hours.
pub const SECONDS: &[f64] = &[
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0, 1_800.0, 7_200.0,
];

impl Metric {
    const fn new(
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        group: Group,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            unit,
            description,
            group,
            attributes: &[],
            services: &[],
            always_reported: true,
            boundaries: SECONDS,
            instrument: OnceLock::new(),
        }
    }

    const fn counter(
        name: &'static str,
        unit: &'static str,
        group: Group,
        description: &'static str,
    ) -> Self {
        Self::new(name, Kind::Counter, unit, group, description)
    }

    const fn gauge(
        name: &'static str,
        unit: &'static str,
        group: Group,
        description: &'static str,
    ) -> Self {
        Self::new(name, Kind::Gauge, unit, group, description)
    }

    const fn histogram(
        name: &'static str,
        unit: &'static str,
        group: Group,
        description: &'static str,
    ) -> Self {
        Self::new(name, Kind::Histogram, unit, group, description)
    }

    const fn with_attributes(mut self, attributes: &'static [&'static Attribute]) -> Self {
        self.attributes = attributes;
        self
    }

    const fn reported_by(mut self, services: &'static [&'static str]) -> Self {
        self.services = services;
        self
    }

    const fn with_boundaries(mut self, boundaries: &'static [f64]) -> Self {
        self.boundaries = boundaries;
        self
    }

    /// Marks a metric as reported only in unusual situations.
    const fn rare(mut self) -> Self {
        self.always_reported = false;
        self
    }

    /// Returns the instrument. It is created at the first use, when the exporters of the process
    /// exist.
    fn instrument(&'static self) -> &'static Instrument {
        self.instrument.get_or_init(|| {
            let meter = global::meter(SCOPE);
            match self.kind {
                Kind::Counter => Instrument::Counter(
                    meter
                        .u64_counter(self.name)
                        .with_unit(self.unit)
                        .with_description(self.description)
                        .build(),
                ),
                Kind::Histogram => Instrument::Histogram(
                    meter
                        .f64_histogram(self.name)
                        .with_unit(self.unit)
                        .with_description(self.description)
                        .with_boundaries(self.boundaries.to_vec())
                        .build(),
                ),
                Kind::Gauge => Instrument::Gauge,
            }
        })
    }

    /// Adds to a counter. Adding zero makes the counter visible before the first event.
    pub fn add(&'static self, count: u64, attributes: &[KeyValue]) {
        if !metrics_enabled() {
            return;
        }
        if let Instrument::Counter(counter) = self.instrument() {
            counter.add(count, attributes);
        }
    }

    /// Records an amount in a histogram.
    pub fn record(&'static self, amount: f64, attributes: &[KeyValue]) {
        if !metrics_enabled() {
            return;
        }
        if let Instrument::Histogram(histogram) = self.instrument() {
            histogram.record(amount, attributes);
        }
    }

    /// Records a duration in a histogram of seconds.
    pub fn record_duration(&'static self, time: Duration, attributes: &[KeyValue]) {
        self.record(time.as_secs_f64(), attributes);
    }

    /// Returns a reading of a gauge.
    pub fn reading(&'static self, value: f64, attributes: Vec<KeyValue>) -> Reading {
        Reading {
            metric: self,
            attributes,
            value,
        }
    }

    /// Returns a reading of a gauge that counts things.
    #[expect(clippy::cast_precision_loss, reason = "no count is larger than 2^53")]
    pub fn count_reading(&'static self, count: u64, attributes: Vec<KeyValue>) -> Reading {
        self.reading(count as f64, attributes)
    }

    /// Returns the name of this metric in Prometheus, as a collector would convert it.
    pub fn prometheus_name(&self) -> String {
        let mut name = self.name.replace('.', "_");
        let unit: Cow<'static, str> = match self.unit {
            "s" => "_seconds".into(),
            "By" => "_bytes".into(),
            "1" if self.kind == Kind::Gauge => "_ratio".into(),
            _ => "".into(),
        };
        if !name.ends_with(unit.as_ref()) {
            name.push_str(&unit);
        }
        if self.kind == Kind::Counter {
            name.push_str("_total");
        }
        name
    }
}
