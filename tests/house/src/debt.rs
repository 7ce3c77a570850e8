//! Tolerated findings: the technical debt of each crate. `debt.txt` has one number for each crate
//! and check, and the numbers only go down.
//!
//! A check fails when a crate has more findings than its number. The check also fails when the
//! crate has fewer, and `BLESS=1` then writes the lower number. A check without any line in the
//! file is new. `BLESS=1` then writes its current numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use crate::root;

const FILE: &str = "tests/house/debt.txt";
const HEADING: &str = "\
# Findings that the house tests still tolerate: crate, check, number. Numbers only go down.
# Rewrite: BLESS=1 cargo test -p hayward-tests-house
";
/// Maximum number of findings that a message lists for one crate.
const MAX_LISTED: usize = 60;

/// Lock on `debt.txt`. The checks of one program run in threads and write this file.
static WRITE_LOCK: Mutex<()> = Mutex::new(());

/// A fault that a check has found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Crate of the fault.
    pub package: String,
    /// Place of the fault, and its remedy.
    pub text: String,
}

/// Number of findings by crate and check.
type ToleratedCounts = BTreeMap<(String, String), usize>;

fn read_counts(text: &str) -> ToleratedCounts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let counts = lines.filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (package, check) = (fields.next()?, fields.next()?);
        let count = fields.next()?.parse().ok()?;
        Some(((package.to_owned(), check.to_owned()), count))
    });
    counts.collect()
}

fn format_counts(counts: &ToleratedCounts) -> String {
    let lines = counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|((package, check), count)| format!("{package} {check} {count}\n"));
    HEADING.to_owned() + &lines.collect::<String>()
}

/// Compares the findings of a check with `debt.txt`. With `BLESS=1`, writes lower numbers there.
///
/// # Panics
/// If a crate has more findings than its number, or fewer.
pub fn assert_within_debt(check: &str, rule: &str, findings: Vec<Finding>) {
    let _guard = WRITE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join(FILE);
    let mut counts = read_counts(&fs::read_to_string(&path).unwrap_or_default());
    let is_blessing = env::var_os("BLESS").is_some();
    let is_new = is_blessing && !counts.keys().any(|(_, known)| known == check);

    let mut by_package: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in findings {
        let list = by_package.entry(finding.package).or_default();
        list.push(finding.text);
    }
    let listed = counts.keys().filter(|(_, known)| known == check);
    let mut packages: BTreeSet<String> = listed.map(|(package, _)| package.clone()).collect();
    packages.extend(by_package.keys().cloned());

    let mut faults = Vec::new();
    for package in packages {
        let found = by_package.remove(&package).unwrap_or_default();
        let tolerated = counts
            .entry((package.clone(), check.to_owned()))
            .or_default();
        if found.len() > *tolerated && !is_new {
            faults.push(excess_message(&package, *tolerated, &found));
        } else if found.len() != *tolerated && !is_blessing {
            let current = found.len();
            faults.push(format!(
                "{package}: {current} in place of {tolerated}, well done. \
                 Write the lower number: BLESS=1 cargo test -p hayward-tests-house"
            ));
        } else {
            *tolerated = found.len();
        }
    }
    if is_blessing {
        fs::write(&path, format_counts(&counts)).unwrap_or_else(|e| panic!("{FILE}: {e}"));
    }
    assert!(faults.is_empty(), "{check}: {rule}\n{}", faults.join("\n"));
}

/// Returns the message for a crate with more findings than tolerated.
fn excess_message(package: &str, tolerated: usize, found: &[String]) -> String {
    let mut text = format!("{package}: {}, and {FILE} allows {tolerated}:", found.len());
    for finding in found.iter().take(MAX_LISTED) {
        text.push_str("\n  ");
        text.push_str(finding);
    }
    if let Some(unlisted) = found
        .len()
        .checked_sub(MAX_LISTED)
        .filter(|unlisted| *unlisted > 0)
    {
        text.push_str(&["\n  and ", &unlisted.to_string(), " more"].concat());
    }
    text
}

#[test]
fn counts_are_read_as_they_are_written() {
    let key = |package: &str, check: &str| (package.to_owned(), check.to_owned());
    let counts =
        ToleratedCounts::from([(key("b", "x"), 2), (key("a", "y"), 1), (key("a", "x"), 0)]);
    let text = format_counts(&counts);
    assert!(text.ends_with("\na y 1\nb x 2\n"), "{text}");
    assert_eq!(read_counts(&text).len(), 2);
}
