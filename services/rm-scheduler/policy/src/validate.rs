//! Validation of a policy: reports all faults at once. `document` and `import` report the faults of
//! their formats.

mod amounts;
mod classes;
mod planners;
mod pools;

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::policy::Policy;

use crate::fault::{Fault, Faults};

/// Maximum number of pools. Every round visits their trees.
const MAX_POOLS: usize = 1_000;
/// Maximum number of pools with a pattern. Each pattern is matched with each node.
const MAX_PATTERNS: usize = 100;
const MAX_CLASSES: usize = 10_000;
/// Maximum amount in GB, so that every amount in bytes fits its type.
const MAX_GB: u64 = 1_000_000_000;
/// Maximum bytes of a name.
const MAX_NAME_BYTES: usize = 200;

/// Returns all faults of a policy. Empty if it may be applied.
pub fn faults(policy: &Policy) -> Vec<Fault> {
    validate(policy, true)
}

/// Returns all faults except missing default classes. Used where all work names its class, for
/// example in a scenario.
pub fn contradictions(policy: &Policy) -> Vec<Fault> {
    validate(policy, false)
}

fn validate(policy: &Policy, needs_defaults: bool) -> Vec<Fault> {
    let mut faults = Faults::default();
    amounts::check(policy, &mut faults);
    pools::check(policy, &mut faults);
    classes::check(policy, needs_defaults, &mut faults);
    faults.0.sort();
    faults.0
}

/// Checks a name: not empty, not long, on one line.
fn check_name(section: &str, name: &str, faults: &mut Faults) {
    let is_malformed = name.chars().any(char::is_control) || name.trim() != name;
    if name.is_empty() || name.len() > MAX_NAME_BYTES || is_malformed {
        let detail =
            format!("is not a name: use 1 to {MAX_NAME_BYTES} bytes without control characters");
        faults.add(&[section, name], detail);
    }
}

/// Lists the existing names for a fault.
fn list_existing<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 8;
    let names: BTreeSet<&str> = names.collect();
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).copied().collect();
    let suffix = if names.len() > MAX_NAMES { ", …" } else { "" };
    if shown.is_empty() {
        return "there are none".to_owned();
    }
    format!("there are {}{suffix}", shown.join(", "))
}

#[cfg(test)]
mod tests;
