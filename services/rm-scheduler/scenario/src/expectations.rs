//! Compares outcomes with the expectations of a document. A field without an expectation may have
//! any value.

use serde_json::Value;

use crate::Outcome;

#[derive(Debug, Clone)]
pub struct Expectation {
    cycle: u64,
    /// Field of the outcome. `None` for the whole outcome.
    field: Option<String>,
    value: Value,
}

/// Collects the fields with names that start with `expect`, in each cycle and at the top of the
/// document.
pub fn collect_expectations(document: &Value) -> Vec<Expectation> {
    let mut expectations = Vec::new();
    let cycles = document["cycles"].as_array();
    let mut next = 1;
    for cycle in cycles.into_iter().flatten() {
        let number = cycle["cycle"].as_u64().unwrap_or(next);
        next = number.saturating_add(1);
        for (name, value) in expectation_fields(cycle) {
            push_expectation(&mut expectations, number, name, value);
        }
    }
    for (name, value) in expectation_fields(document) {
        let list = value.as_array().or_else(|| value["cycles"].as_array());
        for item in list.into_iter().flatten() {
            if let Some(cycle) = item["cycle"].as_u64() {
                push_expectation(&mut expectations, cycle, name, item);
            }
        }
        for (cycle, item) in value.as_object().into_iter().flatten() {
            if let Ok(cycle) = cycle.parse() {
                push_expectation(&mut expectations, cycle, name, item);
            }
        }
    }
    expectations
}

fn expectation_fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| name.starts_with("expect"))
        .map(|(name, value)| (name.as_str(), value))
}

/// `expect` and `expected` are about the whole outcome, `expect_jobs` about its jobs.
fn push_expectation(expectations: &mut Vec<Expectation>, cycle: u64, name: &str, value: &Value) {
    let field = name.strip_prefix("expect_").map(str::to_owned);
    let is_whole_outcome = value.get("jobs").is_some() || value.get("pools").is_some();
    expectations.push(Expectation {
        cycle,
        field: field.filter(|_| !is_whole_outcome),
        value: value.clone(),
    });
}

impl Expectation {
    /// Returns one line for each value that differs from the expectation.
    pub fn differences(&self, outcomes: &[Outcome]) -> Vec<String> {
        let outcome = outcomes.iter().find(|outcome| outcome.cycle == self.cycle);
        let Some(outcome) = outcome.and_then(|it| serde_json::to_value(it).ok()) else {
            return vec![format!("cycle {}: it was not planned", self.cycle)];
        };
        let mut differences = Vec::new();
        let cycle = format!("cycle {}", self.cycle);
        match &self.field {
            None => compare(&cycle, &self.value, &outcome, &mut differences),
            Some(field) => {
                let path = format!("{cycle}: {field}");
                compare(
                    &path,
                    &self.value,
                    &outcome[field.as_str()],
                    &mut differences,
                );
            }
        }
        differences
    }
}

fn compare(path: &str, expected: &Value, actual: &Value, differences: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (name, expected) in expected {
                let path = format!("{path}.{name}");
                let actual = actual.get(name).unwrap_or(&Value::Null);
                compare(&path, expected, actual, differences);
            }
        }
        _ if expected == actual => {}
        _ => differences.push(format!("{path}: expected {expected}, got {actual}")),
    }
}
