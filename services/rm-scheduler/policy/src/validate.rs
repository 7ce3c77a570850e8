//! What makes a policy acceptable (3.4, as far as a document can say it): all faults at once.
//!
//! Numbers in comments are the items of 3.4. Items 1 and 2 are the reader's, and 7 the importer's
//! where it speaks of files.

mod amounts;
mod classes;
mod planners;
mod pools;

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::policy::Policy;

use crate::fault::{Fault, Faults};

/// Pools at most; their trees are walked in every round.
const POOLS: usize = 1_000;
/// Pools with an expression at most; each is tried on each node.
const PATTERNS: usize = 100;
const CLASSES: usize = 10_000;
/// GB, so that every amount fits into a number of bytes.
const MOST_GB: u64 = 1_000_000_000;
/// Bytes of a name.
const NAME_BYTES: usize = 200;

/// All that is wrong with a policy; nothing when it may come into force.
pub fn faults(policy: &Policy) -> Vec<Fault> {
    judged(policy, true)
}

/// What is wrong with what is there. That a policy in use has no default class (3.4.12) is no
/// fault where all work names its class, as in a scenario.
pub fn contradictions(policy: &Policy) -> Vec<Fault> {
    judged(policy, false)
}

fn judged(policy: &Policy, needs_defaults: bool) -> Vec<Fault> {
    let mut faults = Faults::default();
    amounts::check(policy, &mut faults);
    pools::check(policy, &mut faults);
    classes::check(policy, needs_defaults, &mut faults);
    faults.0.sort();
    faults.0
}

/// A name for people and pointers: not empty, not long, on one line.
fn name(section: &str, name: &str, faults: &mut Faults) {
    let odd = name.chars().any(char::is_control) || name.trim() != name;
    if name.is_empty() || name.len() > NAME_BYTES || odd {
        let detail = format!("is no name: use 1 to {NAME_BYTES} bytes without control characters");
        faults.say(&[section, name], detail);
    }
}

/// The names there are, for a fault that says which would do.
fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let names: BTreeSet<&str> = names.collect();
    let shown: Vec<&str> = names.iter().take(SHOWN).copied().collect();
    let more = if names.len() > SHOWN { ", …" } else { "" };
    if shown.is_empty() {
        return "there are none".to_owned();
    }
    format!("there are {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests;
