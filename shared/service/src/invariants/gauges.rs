//! Gauges of the rules, from the last successful evaluation. A replica that no longer leads has
//! none.

use super::{Invariants, RuleResult};
use crate::metrics::catalogue::{
    INVARIANT, INVARIANT_HOLDS, INVARIANT_SINCE_GOOD, INVARIANT_VIOLATIONS, SERVICE,
};
use crate::metrics::{Metric, Reading, gauges};

const PART: &str = "invariants";

pub(super) fn set(service: &'static str, invariants: &Invariants) {
    gauges::set(service, PART, readings(service, invariants));
}

pub(super) fn clear(service: &'static str) {
    gauges::clear(service, PART);
}

fn readings(service: &'static str, invariants: &Invariants) -> Vec<Reading> {
    let gauges: [(&'static Metric, ReadValue); 3] = [
        (&INVARIANT_HOLDS, holds),
        (&INVARIANT_VIOLATIONS, violations),
        (&INVARIANT_SINCE_GOOD, seconds_since_good),
    ];
    let mut readings = Vec::with_capacity(3 * invariants.rules.len());
    for (index, rule) in invariants.rules.iter().enumerate() {
        let attributes = || vec![SERVICE.with(service), INVARIANT.with(rule.id.clone())];
        let rule_readings = gauges.iter().filter_map(|(gauge, value)| {
            Some(gauge.count_reading(value(invariants, index)?, attributes()))
        });
        readings.extend(rule_readings);
    }
    readings
}

/// Function that returns the value of a gauge for one rule. It returns `None` without a value.
type ReadValue = fn(&Invariants, usize) -> Option<u64>;

fn holds(invariants: &Invariants, index: usize) -> Option<u64> {
    let rule = invariants.rules.get(index);
    let rule = rule.filter(|rule| rule.result != RuleResult::NotChecked)?;
    Some(u64::from(rule.result == RuleResult::Holds))
}

fn violations(invariants: &Invariants, index: usize) -> Option<u64> {
    Some(invariants.rules.get(index)?.violations)
}

/// Returns the time since the rule last held, in seconds.
fn seconds_since_good(invariants: &Invariants, index: usize) -> Option<u64> {
    let last_good = invariants.rules.get(index)?.last_good_at?;
    Some(invariants.checked_at.ms_since(last_good) / 1_000)
}

#[cfg(test)]
pub(super) fn holds_readings(service: &'static str) -> Vec<(String, f64)> {
    let fixed_readings = gauges::fixed_readings(service, PART).into_iter();
    let holds = fixed_readings.filter(|it| std::ptr::eq(it.metric, &raw const INVARIANT_HOLDS));
    holds
        .map(|it| (it.attributes[1].value.to_string(), it.value))
        .collect()
}
