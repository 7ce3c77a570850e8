//! Compares outcomes with the expectations of a document. A field without an expectation may have
//! any value.

use serde_json::Value;

use crate::Outcome;

#[derive(Debug, Clone)]
pub struct Expectation {
    cycle: u64,
    /// Place in the outcome. Empty for the whole outcome.
    at: Option<String>,
    value: Value,
}

/// Collects the fields with names that start with `expect`, of each cycle and of the document.
pub fn gather(document: &Value) -> Vec<Expectation> {
    let mut found = Vec::new();
    let cycles = document["cycles"].as_array();
    let mut next = 1;
    for cycle in cycles.into_iter().flatten() {
        let number = cycle["cycle"].as_u64().unwrap_or(next);
        next = number.saturating_add(1);
        for (name, value) in named(cycle) {
            add(&mut found, number, name, value);
        }
    }
    for (name, value) in named(document) {
        let list = value.as_array().or_else(|| value["cycles"].as_array());
        for item in list.into_iter().flatten() {
            if let Some(cycle) = item["cycle"].as_u64() {
                add(&mut found, cycle, name, item);
            }
        }
        for (cycle, item) in value.as_object().into_iter().flatten() {
            if let Ok(cycle) = cycle.parse() {
                add(&mut found, cycle, name, item);
            }
        }
    }
    found
}

fn named(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| name.starts_with("expect"))
        .map(|(name, value)| (name.as_str(), value))
}

/// `expect` and `expected` are about the whole outcome, `expect_jobs` about its jobs.
fn add(found: &mut Vec<Expectation>, cycle: u64, name: &str, value: &Value) {
    let part = name.strip_prefix("expect_").map(str::to_owned);
    let whole = value.get("jobs").is_some() || value.get("pools").is_some();
    found.push(Expectation {
        cycle,
        at: part.filter(|_| !whole),
        value: value.clone(),
    });
}

impl Expectation {
    pub fn differences(&self, outcomes: &[Outcome]) -> Vec<String> {
        let outcome = outcomes.iter().find(|outcome| outcome.cycle == self.cycle);
        let Some(outcome) = outcome.and_then(|it| serde_json::to_value(it).ok()) else {
            return vec![format!("cycle {}: it was not planned", self.cycle)];
        };
        let mut found = Vec::new();
        let start = format!("cycle {}", self.cycle);
        match &self.at {
            None => compare(&start, &self.value, &outcome, &mut found),
            Some(part) => {
                let at = format!("{start}: {part}");
                compare(&at, &self.value, &outcome[part.as_str()], &mut found);
            }
        }
        found
    }
}

fn compare(at: &str, expected: &Value, seen: &Value, found: &mut Vec<String>) {
    match (expected, seen) {
        (Value::Object(expected), Value::Object(seen)) => {
            for (name, expected) in expected {
                let at = format!("{at}.{name}");
                let seen = seen.get(name).unwrap_or(&Value::Null);
                compare(&at, expected, seen, found);
            }
        }
        _ if expected == seen => {}
        _ => found.push(format!("{at}: expected {expected}, got {seen}")),
    }
}
