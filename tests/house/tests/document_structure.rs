//! Checks the structure of the documents: the README is short, each decision fits a screen and has
//! its four parts, and the indices name every page.

use std::path::{Path, PathBuf};

use hayward_tests_house::{assert_none, files, markdown, pages, read};

/// Maximum number of lines of the README.
const README_LINES: usize = 350;
/// Maximum number of lines of a decision.
const DECISION_LINES: usize = 60;
const DECISIONS: &str = "docs/decisions";
/// The parts of a decision, in order.
const PARTS: [&str; 4] = ["Chosen", "Instead of", "Costs", "Would change it"];

fn read_text(path: &Path) -> String {
    read(path).unwrap_or_default()
}

fn decisions() -> Vec<PathBuf> {
    let paths = files().into_iter();
    paths
        .filter(|path| path.starts_with(DECISIONS) && !path.ends_with("README.md"))
        .collect()
}

#[test]
fn the_readme_is_short() {
    let lines = read_text(Path::new("README.md")).lines().count();
    assert!(
        lines <= README_LINES,
        "README.md has {lines} lines; at most {README_LINES}: move details to a page in docs"
    );
}

fn fault_of_decision(path: &Path) -> Option<String> {
    let text = read_text(path);
    let lines = text.lines().count();
    if lines > DECISION_LINES {
        return Some(format!(
            "has {lines} lines; at most {DECISION_LINES}: split it"
        ));
    }
    let mut remaining = text.as_str();
    for part in PARTS {
        let Some((_, after)) = remaining.split_once(&format!("\n**{part}.**")) else {
            return Some(format!("lacks **{part}.**, or has it in another place"));
        };
        remaining = after;
    }
    None
}

#[test]
fn every_decision_is_short_and_has_its_four_parts() {
    let faults = decisions().into_iter().filter_map(|path| {
        let fault = fault_of_decision(&path)?;
        Some(format!("{}: {fault}", path.display()))
    });
    assert_none(
        "a decision is short and has its four parts",
        &faults.collect::<Vec<_>>(),
    );
}

#[test]
fn the_index_of_decisions_has_every_title() {
    let index = read_text(&Path::new(DECISIONS).join("README.md"));
    let faults = decisions().into_iter().filter_map(|path| {
        let title = read_text(&path)
            .lines()
            .next()?
            .trim_start_matches("# ")
            .to_owned();
        let (number, title) = title.split_once(' ')?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        let row = format!("| [{number}]({name}) | {title} |");
        (!index.contains(&row)).then_some(row)
    });
    assert_none(
        "the index of decisions has a row for each decision",
        &faults.collect::<Vec<_>>(),
    );
}

#[test]
fn the_index_of_documents_leads_to_every_page() {
    let index = read_text(Path::new("docs/README.md"));
    let targets: Vec<String> = markdown::links(&index)
        .into_iter()
        .map(|(_, target)| target.split('#').next().unwrap_or_default().to_owned())
        .collect();
    // Decisions, runbooks and the specification have an index of their own.
    let has_own_index = |relative: &Path| {
        ["decisions", "runbooks", "spec"]
            .iter()
            .any(|folder| relative.starts_with(folder) && !relative.ends_with("README.md"))
    };
    let faults = pages().into_iter().filter_map(|page| {
        let relative = page.strip_prefix("docs").ok()?;
        let name = relative.display().to_string();
        let is_indexed = targets.contains(&name) || name == "README.md" || has_own_index(relative);
        (!is_indexed).then_some(name)
    });
    assert_none(
        "docs/README.md leads to every page",
        &faults.collect::<Vec<_>>(),
    );
}
