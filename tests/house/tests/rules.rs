//! The map of rules is true: every rule has a line, and what a line names is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hayward_tests_house::{assert_none, read, root};

const MAP: &str = "docs/rules.md";
const SCENARIOS: &str = "services/rm-scheduler/scenario/scenarios";

/// Sections of the specification and how many rules each has.
const SECTIONS: [(&str, u32); 16] = [
    ("R-2.", 6),
    ("R-3.", 5),
    ("R-4.", 7),
    ("R-5.", 6),
    ("R-6.", 9),
    ("R-7.", 7),
    ("R-8.", 5),
    ("R-9.", 15),
    ("R-10.", 7),
    ("R-11.", 3),
    ("R-12.", 13),
    ("R-13.", 4),
    ("R-14.", 5),
    ("R-15.", 5),
    ("C-", 17),
    ("I-", 14),
];
const REASONS: [&str; 15] = [
    "waiting_for_preemption",
    "waiting_for_defragmentation",
    "insufficient_resources",
    "no_host_large_enough",
    "no_host_of_size",
    "resources_exhausted",
    "allotment_exceeded",
    "no_listed_machine",
    "no_class",
    "unknown_class",
    "not_authorised",
    "policy_mismatch",
    "unknown_kind",
    "unknown_node",
    "zero_share",
];
/// Not built yet. What is built leaves this list, and gets a test.
const NOT_YET: [&str; 1] = ["R-3.4"];

fn ids() -> Vec<String> {
    let rules = SECTIONS
        .iter()
        .flat_map(|(start, count)| (1..=*count).map(move |number| format!("{start}{number}")));
    let reasons = REASONS.iter().map(|reason| format!("`{reason}`"));
    rules.chain(reasons).collect()
}

/// The cells of each line by its rule.
fn lines(map: &str) -> BTreeMap<String, Vec<String>> {
    let rows = map.lines().filter_map(|line| {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<String> = cells.split(" | ").map(str::to_owned).collect();
        (cells.len() == 4 && cells[0] != "Rule").then(|| (cells[0].clone(), cells))
    });
    rows.collect()
}

/// What stands between backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Paths start from `services/`, which `../` leaves.
fn path(name: &str) -> PathBuf {
    name.strip_prefix("../")
        .map_or_else(|| Path::new("services").join(name), PathBuf::from)
}

fn is_there(test: &str) -> bool {
    let Some((file, function)) = test.split_once("::") else {
        let scenario = format!("{test}.json");
        return root().join(SCENARIOS).join(scenario).is_file();
    };
    let text = read(&path(file)).unwrap_or_default();
    text.contains(&format!("fn {function}("))
}

#[test]
fn every_rule_has_a_test() {
    let lines = lines(&read(Path::new(MAP)).expect("the map of rules"));
    let mut found = Vec::new();
    for id in ids() {
        let Some(cells) = lines.get(&id) else {
            found.push(format!("{id} has no line"));
            continue;
        };
        let tests = names(&cells[3]);
        let open = NOT_YET.contains(&id.as_str());
        if open != cells[3].starts_with("not yet: ") || open != tests.is_empty() {
            found.push(format!("{id} has {} tests", tests.len()));
        }
    }
    assert_none(&format!("{MAP}: a rule has a test"), &found);
}

#[test]
fn what_is_named_is_there() {
    let lines = lines(&read(Path::new(MAP)).expect("the map of rules"));
    let known = ids();
    let mut found = Vec::new();
    for (id, cells) in &lines {
        if !known.contains(id) {
            found.push(format!("{id} is no rule"));
        }
        let places = names(&cells[2]).into_iter();
        let lost = places.filter(|place| !root().join(path(place)).exists());
        found.extend(lost.map(|place| format!("{id}: no file {place}")));
        let tests = names(&cells[3]).into_iter();
        let lost = tests.filter(|test| !is_there(test));
        found.extend(lost.map(|test| format!("{id}: no test {test}")));
    }
    assert_none(&format!("{MAP}: what is named is there"), &found);
}

/// A scenario that no rule needs is a rule that was forgotten.
#[test]
fn every_scenario_of_a_rule_is_on_the_map() {
    let map = read(Path::new(MAP)).expect("the map of rules");
    let folder = std::fs::read_dir(root().join(SCENARIOS)).expect("the folder of scenarios");
    let names = folder.filter_map(|file| {
        let name = file.ok()?.file_name().into_string().ok()?;
        name.strip_suffix(".json").map(str::to_owned)
    });
    let lost = names
        .filter(|name| name.starts_with("r-") && !map.contains(&format!("`{name}`")))
        .map(|name| format!("{name} proves no rule"));
    assert_none(MAP, &lost.collect::<Vec<_>>());
}

#[test]
fn the_checks_see_what_they_should() {
    assert!(is_there("x21") && !is_there("x99"));
    let here = "../tests/house/tests/rules.rs::is_there";
    assert!(is_there(here) && !is_there(&format!("{here}_not")));
    assert_eq!(names("`a`<br>`b::c`"), ["a", "b::c"]);
    assert_eq!(lines("| a | b | c | d |\n| Rule | b | c | d |").len(), 1);
}
