//! Checks that every dependency is used: a crate that a manifest names is named in its files too
//! (S26).

use std::path::Path;

use hayward_tests_house::{Kind, Package, assert_none, files, packages, read};

/// Returns the name of a crate as code writes it.
fn word(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns whether the text has the word by itself, and not as a part of another.
fn names(text: &str, word: &str) -> bool {
    let inner = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !inner(before.chars().next_back()) && !inner(after.chars().next())
    })
}

/// Returns the crate that a file belongs to, which is the deepest folder around it.
fn owner<'a>(all: &'a [Package], file: &Path) -> Option<&'a Package> {
    let around = all
        .iter()
        .filter(|package| file.starts_with(&package.folder));
    around.max_by_key(|package| package.folder.len())
}

#[test]
fn every_dependency_is_used() {
    let all: Vec<Package> = packages().into_values().collect();
    let mut unused = Vec::new();
    let sources: Vec<_> = files()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
        .filter_map(|file| {
            let text = read(&file)?;
            let owner = owner(&all, &file)?.name.clone();
            Some((file, owner, text))
        })
        .collect();
    for package in &all {
        // A crate of tests has test code only.
        let is_tests = package.folder.starts_with("tests/");
        for dependency in &package.dependencies {
            let anywhere = is_tests || dependency.kind != Kind::Normal;
            let src = Path::new(&package.folder).join("src");
            let word = word(&dependency.name);
            let used = sources.iter().any(|(file, owner, text)| {
                *owner == package.name && (anywhere || file.starts_with(&src)) && names(text, &word)
            });
            if !used {
                unused.push(format!("{}: {}", package.name, dependency.name));
            }
        }
    }
    assert_none("a dependency that is not used", &unused);
}

/// Returns the dependencies that the workspace declares, by the name that members use.
fn declared() -> Vec<String> {
    let manifest = read(Path::new("Cargo.toml")).expect("the manifest of the workspace");
    let table = manifest
        .split_once("\n[workspace.dependencies]\n")
        .map(|(_, rest)| rest.split("\n[").next().unwrap_or(rest))
        .expect("the dependencies of the workspace");
    let lines = table
        .lines()
        .map(|line| line.split('#').next().unwrap_or(line));
    lines
        .filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned()))
        .collect()
}

#[test]
fn every_declared_dependency_is_used_by_a_member() {
    let all: Vec<Package> = packages().into_values().collect();
    let used = |name: &String| {
        let mut wanted = all.iter().flat_map(|package| &package.dependencies);
        wanted.any(|dependency| dependency.name == *name)
    };
    let declared = declared();
    assert!(declared.len() > 60, "{declared:?}");
    let unused: Vec<String> = declared.into_iter().filter(|it| !used(it)).collect();
    assert_none("a declared dependency that no member has", &unused);
}

#[test]
fn a_part_of_a_word_is_not_the_word() {
    assert!(names("use serde::Serialize;", "serde"));
    assert!(names("#[serde(default)]", "serde"));
    assert!(!names("use serde_json::Value; my_serde::x", "serde"));
}
