//! What the gauges say of the rules: how they stood at the last look, while looks succeed. A
//! replica that leads no more knows nothing, and says nothing.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use opentelemetry::metrics::{AsyncInstrument, ObservableGauge};
use opentelemetry::{KeyValue, global};
use parking_lot::Mutex;

use super::{Invariants, RuleResult};

type Standings = BTreeMap<&'static str, Invariants>;

/// By service: one process may be several.
static LAST: Mutex<Standings> = Mutex::new(Standings::new());

pub(super) fn take(service: &'static str, answer: &Invariants) {
    LazyLock::force(&GAUGES);
    LAST.lock().insert(service, answer.clone());
}

pub(super) fn forget(service: &'static str) {
    LAST.lock().remove(service);
}

/// What a gauge says of one rule, if it says anything.
type Value = fn(&Invariants, usize) -> Option<u64>;

fn holds(all: &Invariants, at: usize) -> Option<u64> {
    let known = all.rules.get(at);
    let known = known.filter(|rule| rule.result != RuleResult::NotChecked)?;
    Some(u64::from(known.result == RuleResult::Holds))
}

fn violations(all: &Invariants, at: usize) -> Option<u64> {
    Some(all.rules.get(at)?.violations)
}

/// In seconds.
fn since_good(all: &Invariants, at: usize) -> Option<u64> {
    let good = all.rules.get(at)?.last_good_at?;
    Some(all.checked_at.ms_since(good) / 1_000)
}

/// Service, rule, value.
fn values(value: Value) -> Vec<(&'static str, String, u64)> {
    let last = LAST.lock();
    let all = last.iter().flat_map(|(service, all)| {
        let rules = all.rules.iter().enumerate();
        rules.filter_map(move |(at, rule)| Some((*service, rule.id.clone(), value(all, at)?)))
    });
    all.collect()
}

fn observe(observer: &dyn AsyncInstrument<u64>, value: Value) {
    for (service, rule, value) in values(value) {
        let labels = [
            KeyValue::new("hayward.service", service),
            KeyValue::new("hayward.invariant.id", rule),
        ];
        observer.observe(value, &labels);
    }
}

/// Made at the first look, when the process has its exporters (T6).
static GAUGES: LazyLock<[ObservableGauge<u64>; 3]> = LazyLock::new(|| {
    let meter = global::meter("hayward");
    let gauge = |name: &'static str, unit: &'static str, what: &'static str, value: Value| {
        let gauge = meter.u64_observable_gauge(name).with_unit(unit);
        let gauge = gauge.with_description(what);
        gauge.with_callback(move |to| observe(to, value)).build()
    };
    [
        gauge(
            "hayward.invariant.holds",
            "1",
            "one where the invariant holds",
            holds,
        ),
        gauge(
            "hayward.invariant.violations",
            "{violation}",
            "how often the invariant is broken",
            violations,
        ),
        gauge(
            "hayward.invariant.since_good",
            "s",
            "time since the invariant was last seen to hold",
            since_good,
        ),
    ]
});

#[cfg(test)]
pub(super) fn held_of(service: &str) -> Vec<(String, u64)> {
    let all = values(holds).into_iter();
    let mine = all.filter(|(of, ..)| *of == service);
    mine.map(|(_, rule, value)| (rule, value)).collect()
}
