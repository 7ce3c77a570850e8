//! Checks the map of rules: every rule has a row, and the files and tests of a row exist.

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
/// Rules that are not built yet.
const NOT_YET: [&str; 1] = ["R-3.4"];

fn ids() -> Vec<String> {
    let rules = SECTIONS
        .iter()
        .flat_map(|(start, count)| (1..=*count).map(move |number| format!("{start}{number}")));
    let reasons = REASONS.iter().map(|reason| format!("`{reason}`"));
    rules.chain(reasons).collect()
}

/// Returns the cells of each row, by the rule of the row.
fn rows(map: &str) -> BTreeMap<String, Vec<String>> {
    let cells = map.lines().filter_map(|line| {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<String> = cells.split(" | ").map(str::to_owned).collect();
        (cells.len() == 4 && cells[0] != "Rule").then(|| (cells[0].clone(), cells))
    });
    cells.collect()
}

/// Returns the texts between backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Resolves a path of the map. Paths start in `services/`, and `../` leaves it.
fn path(name: &str) -> PathBuf {
    name.strip_prefix("../")
        .map_or_else(|| Path::new("services").join(name), PathBuf::from)
}

fn exists(test: &str) -> bool {
    let Some((file, function)) = test.split_once("::") else {
        let scenario = format!("{test}.json");
        return root().join(SCENARIOS).join(scenario).is_file();
    };
    let text = read(&path(file)).unwrap_or_default();
    text.contains(&format!("fn {function}("))
}

#[test]
fn every_rule_has_a_test() {
    let rows = rows(&read(Path::new(MAP)).expect("the map of rules"));
    let mut found = Vec::new();
    for id in ids() {
        let Some(cells) = rows.get(&id) else {
            found.push(format!("{id} has no row"));
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
fn named_files_and_tests_exist() {
    let rows = rows(&read(Path::new(MAP)).expect("the map of rules"));
    let known = ids();
    let mut found = Vec::new();
    for (id, cells) in &rows {
        if !known.contains(id) {
            found.push(format!("{id} is not a rule"));
        }
        let places = names(&cells[2]).into_iter();
        let lost = places.filter(|place| !root().join(path(place)).exists());
        found.extend(lost.map(|place| format!("{id}: no file {place}")));
        let tests = names(&cells[3]).into_iter();
        let lost = tests.filter(|test| !exists(test));
        found.extend(lost.map(|test| format!("{id}: no test {test}")));
    }
    assert_none(&format!("{MAP}: files and tests exist"), &found);
}

/// If no rule names a scenario, its rule is missing on the map.
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
fn tests_and_scenarios_are_found() {
    assert!(exists("x21") && !exists("x99"));
    let here = "../tests/house/tests/rules.rs::exists";
    assert!(exists(here) && !exists(&format!("{here}_not")));
    assert_eq!(names("`a`<br>`b::c`"), ["a", "b::c"]);
    assert_eq!(rows("| a | b | c | d |\n| Rule | b | c | d |").len(), 1);
}
