//! Lists the differences between two policies, one line for each changed field.

use hayward_rm_scheduler_api::policy::Policy;
use serde_json::{Map, Value};

use crate::fault::pointer;

/// Maximum number of characters of a value in a line.
const MAX_CHARS: usize = 120;

/// Returns the differences, sorted by JSON pointer. Empty if the policies are equal.
pub fn differences(before: &Policy, after: &Policy) -> Vec<String> {
    let value = |policy| serde_json::to_value(policy).unwrap_or_default();
    let mut lines = Vec::new();
    compare("", &value(before), &value(after), &mut lines);
    lines
}

fn compare(path: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => compare_fields(path, before, after, lines),
        (Value::Array(before), Value::Array(after)) => compare_lists(path, before, after, lines),
        _ if before == after => {}
        _ => lines.push(format!(
            "{path}: {} becomes {}",
            value_text(before),
            value_text(after)
        )),
    }
}

fn compare_fields(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    lines: &mut Vec<String>,
) {
    let added = after.keys().filter(|name| !before.contains_key(*name));
    let mut names: Vec<&String> = before.keys().chain(added).collect();
    names.sort();
    for name in names {
        let path = format!("{path}{}", pointer(&[name]));
        match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) => compare(&path, before, after, lines),
            (Some(before), None) => {
                lines.push(format!("{path}: removed, was {}", value_text(before)));
            }
            (None, Some(after)) => lines.push(format!("{path}: added, {}", value_text(after))),
            (None, None) => {}
        }
    }
}

/// Compares two lists as sets of names: the lines name the entries that were added and removed.
fn compare_lists(path: &str, before: &[Value], after: &[Value], lines: &mut Vec<String>) {
    use std::collections::BTreeSet;
    let names = |items: &[Value]| items.iter().map(Value::to_string).collect::<BTreeSet<_>>();
    let (old, new) = (names(before), names(after));
    let join = |items: Vec<&String>| {
        let names: Vec<&str> = items.iter().map(|item| item.as_str()).collect();
        truncate(&names.join(", "))
    };
    let removed: Vec<&String> = old.difference(&new).collect();
    let added: Vec<&String> = new.difference(&old).collect();
    if !removed.is_empty() {
        lines.push(format!("{path}: without {}", join(removed)));
    }
    if !added.is_empty() {
        lines.push(format!("{path}: with {}", join(added)));
    }
}

fn value_text(value: &Value) -> String {
    truncate(&value.to_string())
}

fn truncate(text: &str) -> String {
    if text.chars().count() <= MAX_CHARS {
        return text.to_owned();
    }
    let start: String = text.chars().take(MAX_CHARS).collect();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_has_a_line() {
        let before = Policy::default();
        assert!(differences(&before, &before).is_empty());
        let mut after = before.clone();
        after.classes.entry("high".into()).or_default().weight = Some(300);
        after.classes.remove("low");
        let pool = after.pools.entry("gpu".into()).or_default();
        pool.nodes = vec!["n1".into()];
        assert_eq!(
            differences(&before, &after),
            [
                "/classes/high/weight: 200 becomes 300",
                "/classes/low: removed, was {\"policy\":\"FAIR_SHARE\",\"pool\":\"default\",\
                 \"priority\":10,\"weight\":50}",
                "/pools/gpu: added, {\"nodes\":[\"n1\"],\"search_order\":100}",
            ]
        );
        let mut moved = after.clone();
        let pool = moved.pools.entry("gpu".into()).or_default();
        pool.nodes = vec!["n2".into(), "n3".into()];
        assert_eq!(
            differences(&after, &moved),
            [
                "/pools/gpu/nodes: without \"n1\"",
                "/pools/gpu/nodes: with \"n2\", \"n3\""
            ]
        );
    }
}
