//! Checks that every dependency is used: a crate that a manifest names is named in its files too
//! (S26).

use std::path::Path;

use hayward_tests_house::{DependencyKind, Package, assert_none, files, packages, read};

/// Returns the name of a crate as code writes it.
fn crate_identifier(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns whether the text has the word by itself, and not as a part of another.
fn contains_word(text: &str, word: &str) -> bool {
    let is_word_character = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(index, _)| {
        let (before, after) = (&text[..index], &text[index + word.len()..]);
        !is_word_character(before.chars().next_back()) && !is_word_character(after.chars().next())
    })
}

/// Returns the crate that a file belongs to, which is the deepest folder around it.
fn package_of<'a>(packages: &'a [Package], file: &Path) -> Option<&'a Package> {
    let enclosing = packages
        .iter()
        .filter(|package| file.starts_with(&package.folder));
    enclosing.max_by_key(|package| package.folder.len())
}

#[test]
fn every_dependency_is_used() {
    let all_packages: Vec<Package> = packages().into_values().collect();
    let mut unused = Vec::new();
    let sources: Vec<_> = files()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
        .filter_map(|file| {
            let text = read(&file)?;
            let package_name = package_of(&all_packages, &file)?.name.clone();
            Some((file, package_name, text))
        })
        .collect();
    for package in &all_packages {
        // A crate of tests has test code only.
        let is_tests = package.folder.starts_with("tests/");
        for dependency in &package.dependencies {
            let in_all_files = is_tests || dependency.kind != DependencyKind::Normal;
            let src = Path::new(&package.folder).join("src");
            let identifier = crate_identifier(&dependency.name);
            let used = sources.iter().any(|(file, package_name, text)| {
                *package_name == package.name
                    && (in_all_files || file.starts_with(&src))
                    && contains_word(text, &identifier)
            });
            if !used {
                unused.push(format!("{}: {}", package.name, dependency.name));
            }
        }
    }
    assert_none("a dependency that is not used", &unused);
}

/// Returns the dependencies that the workspace declares, by the name that members use.
fn declared_dependencies() -> Vec<String> {
    let manifest = read(Path::new("Cargo.toml")).expect("the manifest of the workspace");
    let section = manifest
        .split_once("\n[workspace.dependencies]\n")
        .map(|(_, rest)| rest.split("\n[").next().unwrap_or(rest))
        .expect("the dependencies of the workspace");
    let lines = section
        .lines()
        .map(|line| line.split('#').next().unwrap_or(line));
    lines
        .filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned()))
        .collect()
}

#[test]
fn every_declared_dependency_is_used_by_a_member() {
    let all_packages: Vec<Package> = packages().into_values().collect();
    let is_used = |name: &String| {
        let mut dependencies = all_packages
            .iter()
            .flat_map(|package| &package.dependencies);
        dependencies.any(|dependency| dependency.name == *name)
    };
    let declared = declared_dependencies();
    assert!(declared.len() > 60, "{declared:?}");
    let unused: Vec<String> = declared.into_iter().filter(|it| !is_used(it)).collect();
    assert_none("a declared dependency that no member has", &unused);
}

#[test]
fn a_part_of_a_word_is_not_the_word() {
    assert!(contains_word("use serde::Serialize;", "serde"));
    assert!(contains_word("#[serde(default)]", "serde"));
    assert!(!contains_word(
        "use serde_json::Value; my_serde::x",
        "serde"
    ));
}
