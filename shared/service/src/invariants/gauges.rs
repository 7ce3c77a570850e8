//! Gauges of the rules, from the last successful evaluation. A replica that no longer leads has
//! none.

use super::{Invariants, RuleResult};
use crate::metrics::catalogue::{
    INVARIANT, INVARIANT_HOLDS, INVARIANT_SINCE_GOOD, INVARIANT_VIOLATIONS, SERVICE,
};
use crate::metrics::{Metric, Reading, gauges};

const PART: &str = "invariants";

pub(super) fn set(service: &'static str, answer: &Invariants) {
    gauges::set(service, PART, readings(service, answer));
}

pub(super) fn clear(service: &'static str) {
    gauges::clear(service, PART);
}

fn readings(service: &'static str, all: &Invariants) -> Vec<Reading> {
    let gauges: [(&'static Metric, Value); 3] = [
        (&INVARIANT_HOLDS, holds),
        (&INVARIANT_VIOLATIONS, violations),
        (&INVARIANT_SINCE_GOOD, since_good),
    ];
    let mut readings = Vec::with_capacity(3 * all.rules.len());
    for (at, rule) in all.rules.iter().enumerate() {
        let attributes = || vec![SERVICE.is(service), INVARIANT.is(rule.id.clone())];
        let known = gauges
            .iter()
            .filter_map(|(gauge, value)| Some(gauge.count_reading(value(all, at)?, attributes())));
        readings.extend(known);
    }
    readings
}

/// Function that returns the value of a gauge for one rule. It returns `None` without a value.
type Value = fn(&Invariants, usize) -> Option<u64>;

fn holds(all: &Invariants, at: usize) -> Option<u64> {
    let known = all.rules.get(at);
    let known = known.filter(|rule| rule.result != RuleResult::NotChecked)?;
    Some(u64::from(known.result == RuleResult::Holds))
}

fn violations(all: &Invariants, at: usize) -> Option<u64> {
    Some(all.rules.get(at)?.violations)
}

/// Returns the time since the rule last held, in seconds.
fn since_good(all: &Invariants, at: usize) -> Option<u64> {
    let good = all.rules.get(at)?.last_good_at?;
    Some(all.checked_at.ms_since(good) / 1_000)
}

#[cfg(test)]
pub(super) fn held_of(service: &'static str) -> Vec<(String, f64)> {
    let shown = gauges::shown(service, PART).into_iter();
    let held = shown.filter(|it| std::ptr::eq(it.metric, &raw const INVARIANT_HOLDS));
    held.map(|it| (it.attributes[1].value.to_string(), it.value))
        .collect()
}
