//! Checks the map of scheduling rules `docs/rules.md`: every rule has a row, and the files and
//! tests of a row exist.

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
/// Reasons of verdicts. Each counts as a rule.
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

fn rule_ids() -> Vec<String> {
    let rules = SECTIONS
        .iter()
        .flat_map(|(start, count)| (1..=*count).map(move |number| format!("{start}{number}")));
    let reasons = REASONS.iter().map(|reason| format!("`{reason}`"));
    rules.chain(reasons).collect()
}

/// The cells of a row with the files and the tests of its rule.
struct Row {
    files: String,
    tests: String,
}

/// Returns the rows by rule. A row has the rule, its summary, its files and its tests.
fn rows(map: &str) -> BTreeMap<String, Row> {
    let rows = map.lines().filter_map(|line| {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<&str> = cells.split(" | ").collect();
        let [rule, _summary, files, tests] = cells[..] else {
            return None;
        };
        let row = Row {
            files: files.to_owned(),
            tests: tests.to_owned(),
        };
        (rule != "Rule").then(|| (rule.to_owned(), row))
    });
    rows.collect()
}

/// Returns the texts between backticks.
fn code_spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Resolves a path of the map. Paths start in `services/`, and `../` leaves it.
fn resolve_path(name: &str) -> PathBuf {
    name.strip_prefix("../")
        .map_or_else(|| Path::new("services").join(name), PathBuf::from)
}

fn test_exists(reference: &str) -> bool {
    let Some((file, function)) = reference.split_once("::") else {
        let scenario = format!("{reference}.json");
        return root().join(SCENARIOS).join(scenario).is_file();
    };
    let text = read(&resolve_path(file)).unwrap_or_default();
    text.contains(&format!("fn {function}("))
}

#[test]
fn every_rule_has_a_test() {
    let rows = rows(&read(Path::new(MAP)).expect("the map of rules"));
    let mut found = Vec::new();
    for id in rule_ids() {
        let Some(row) = rows.get(&id) else {
            found.push(format!("{id} has no row"));
            continue;
        };
        let tests = code_spans(&row.tests);
        let is_unbuilt = NOT_YET.contains(&id.as_str());
        if is_unbuilt != row.tests.starts_with("not yet: ") || is_unbuilt != tests.is_empty() {
            found.push(format!("{id} has {} tests", tests.len()));
        }
    }
    assert_none(&format!("{MAP}: a rule has a test"), &found);
}

#[test]
fn named_files_and_tests_exist() {
    let rows = rows(&read(Path::new(MAP)).expect("the map of rules"));
    let known_ids = rule_ids();
    let mut found = Vec::new();
    for (id, row) in &rows {
        if !known_ids.contains(id) {
            found.push(format!("{id} is not a rule"));
        }
        let files = code_spans(&row.files).into_iter();
        let missing = files.filter(|file| !root().join(resolve_path(file)).exists());
        found.extend(missing.map(|file| format!("{id}: no file {file}")));
        let tests = code_spans(&row.tests).into_iter();
        let missing = tests.filter(|test| !test_exists(test));
        found.extend(missing.map(|test| format!("{id}: no test {test}")));
    }
    assert_none(&format!("{MAP}: files and tests exist"), &found);
}

/// A scenario whose name begins with `r-` proves a rule, so a row of the map must name it.
#[test]
fn every_scenario_of_a_rule_is_on_the_map() {
    let map = read(Path::new(MAP)).expect("the map of rules");
    let folder = std::fs::read_dir(root().join(SCENARIOS)).expect("the folder of scenarios");
    let names = folder.filter_map(|file| {
        let name = file.ok()?.file_name().into_string().ok()?;
        name.strip_suffix(".json").map(str::to_owned)
    });
    let unmapped = names
        .filter(|name| name.starts_with("r-") && !map.contains(&format!("`{name}`")))
        .map(|name| format!("{name} proves no rule"));
    assert_none(MAP, &unmapped.collect::<Vec<_>>());
}

#[test]
fn tests_and_scenarios_are_found() {
    assert!(test_exists("x21") && !test_exists("x99"));
    let own_reference = "../tests/house/tests/rule_map.rs::test_exists";
    assert!(test_exists(own_reference) && !test_exists(&format!("{own_reference}_not")));
    assert_eq!(code_spans("`a`<br>`b::c`"), ["a", "b::c"]);
    assert_eq!(rows("| a | b | c | d |\n| Rule | b | c | d |").len(), 1);
}
