//! Sizes and manners that neither the compiler nor clippy watches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hayward_tests_house::{assert_none, files, packages, read};

/// Lines of a source file, its inline tests not counted.
const FILE_LINES: usize = 500;
const LINE_CHARACTERS: usize = 100;
/// Lines of the text that opens a crate.
const OPENING_LINES: usize = 30;
/// The one place of each test world that may look again after a while.
const WAITING_ROOMS: [&str; 2] = ["tests/fleet/src/wait.rs", "shared/testkit/src/wait.rs"];

fn ends_with(path: &Path, endings: &[&str]) -> bool {
    path.extension()
        .is_some_and(|end| endings.iter().any(|wanted| end == *wanted))
}

fn sources() -> impl Iterator<Item = (PathBuf, String)> {
    let rust = files().into_iter().filter(|path| ends_with(path, &["rs"]));
    rust.filter_map(|path| read(&path).map(|text| (path, text)))
}

fn is_test(path: &Path) -> bool {
    let in_tests = path.components().any(|part| part.as_os_str() == "tests");
    in_tests || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// The files of modules that are declared for tests alone: `#[cfg(test)] mod examples;`.
fn modules_for_tests() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for (path, text) in sources() {
        let folder = match path.file_name().and_then(|name| name.to_str()) {
            Some("lib.rs" | "main.rs") => path.with_file_name(""),
            _ => path.with_extension(""),
        };
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let name = pair[1]
                .strip_prefix("mod ")
                .and_then(|rest| rest.strip_suffix(';'));
            if let (Some(name), "#[cfg(test)]") = (name, pair[0]) {
                found.insert(folder.join(name).with_extension("rs"));
            }
        }
    }
    found
}

/// The lines without `#[cfg(test)] mod … { … }` blocks, which rustfmt closes in column one.
fn lines_without_tests(text: &str) -> usize {
    let mut lines = text.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let opens = lines
            .peek()
            .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if line == "#[cfg(test)]" && opens {
            lines.by_ref().find(|line| *line == "}");
        } else {
            count += 1;
        }
    }
    count
}

#[test]
fn files_are_short() {
    let exempt = modules_for_tests();
    let counted = sources().filter(|(path, _)| !is_test(path) && !exempt.contains(path));
    let long = counted.filter_map(|(path, text)| {
        let lines = lines_without_tests(&text);
        (lines > FILE_LINES).then(|| format!("{}: {lines} lines", path.display()))
    });
    assert_none(
        "a file has at most 500 lines without its tests",
        &long.collect::<Vec<_>>(),
    );
}

#[test]
fn lines_are_short() {
    let mut found = Vec::new();
    let written = files()
        .into_iter()
        .filter(|path| ends_with(path, &["rs", "sql", "sh"]));
    for path in written {
        let Some(text) = read(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_CHARACTERS {
                found.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert_none("a line has at most 100 characters", &found);
}

#[test]
fn modules_are_named_by_their_files() {
    let all = files().into_iter();
    let found = all.filter(|path| path.file_name().is_some_and(|name| name == "mod.rs"));
    let found: Vec<String> = found.map(|path| path.display().to_string()).collect();
    assert_none(
        "a folder of modules stands beside a file of its name",
        &found,
    );
}

/// Says where any of the needles stands in Rust code, comments left out.
fn code_that_says(needles: &[&str], applies: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources().filter(|(path, _)| applies(path)) {
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if !code.starts_with("//") && needles.iter().any(|needle| code.contains(needle)) {
                found.push(format!("{}:{}: {code}", path.display(), number + 1));
            }
        }
    }
    found
}

// The needles are put together so that this file does not find itself.
#[test]
fn nothing_is_left_for_later() {
    let needles = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[", "ignore"),
    ];
    assert_none(
        "work is done or not begun",
        &code_that_says(&needles, |_| true),
    );
}

#[test]
fn tests_wait_for_states_not_for_time() {
    let found = code_that_says(&[concat!("sleep", "(")], |path| {
        let world = path.starts_with("tests/fleet") || path.starts_with("shared/testkit");
        world && !WAITING_ROOMS.iter().any(|room| path == Path::new(room))
    });
    assert_none("tests wait for a state, through the wait module", &found);
}

#[test]
fn crates_open_with_what_they_are() {
    let mut found = Vec::new();
    for package in packages().values() {
        for root in &package.roots {
            let text = read(root).unwrap_or_default();
            let opening: Vec<&str> = text
                .lines()
                .take_while(|line| line.starts_with("//!"))
                .collect();
            let empty = opening.is_empty() || opening == ["//! placeholder"];
            if empty || opening.len() > OPENING_LINES {
                found.push(format!("{}: {} lines", root.display(), opening.len()));
            }
        }
    }
    assert_none("a crate opens with 1 to 30 lines on what it is", &found);
}

#[test]
fn crates_say_what_they_are_for() {
    let all = packages();
    let silent = all
        .values()
        .filter(|package| package.description.split(' ').count() < 3);
    let found: Vec<String> = silent.map(|package| package.name.clone()).collect();
    assert_none("a crate has a description of a sentence", &found);
}

#[test]
fn services_have_their_page() {
    let all = packages();
    let found = all
        .values()
        .filter(|package| package.is_service())
        .filter_map(|package| {
            let page = Path::new(&package.folder).join("README.md");
            read(&page)
                .is_none_or(|text| text.trim().is_empty())
                .then(|| page.display().to_string())
        });
    assert_none(
        "a service has a README of one page",
        &found.collect::<Vec<_>>(),
    );
}

#[test]
fn no_path_of_one_person_s_machine() {
    let roots = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
    ];
    let mut found = Vec::new();
    let text_files = files()
        .into_iter()
        .filter(|path| path != Path::new("Cargo.lock"));
    for (path, text) in text_files.filter_map(|path| read(&path).map(|text| (path, text))) {
        for (number, line) in text.lines().enumerate() {
            if roots.iter().any(|root| begins_a_path(line, root)) {
                found.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert_none("absolute paths of a developer's machine stay out", &found);
}

/// Whether the needle stands where a path begins, and not inside a longer one.
fn begins_a_path(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"._-/}$~".contains(c))
    })
}

#[test]
fn the_rules_see_what_they_should() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
    assert_eq!(lines_without_tests(text), 2);
    assert!(begins_a_path(
        concat!("see /ro", "ot/x"),
        concat!("/ro", "ot/")
    ));
    assert!(!begins_a_path(
        concat!("/v1/ro", "ot/x"),
        concat!("/ro", "ot/")
    ));
}
