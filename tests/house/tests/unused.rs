//! Nothing is depended on in vain (S26): what a manifest names, its own files name too.

use std::path::Path;

use hayward_tests_house::{Kind, Package, assert_none, files, packages, read};

/// A crate as code writes it.
fn word(name: &str) -> String {
    name.replace('-', "_")
}

/// Whether the word stands there by itself, and not as a part of another.
fn names(text: &str, word: &str) -> bool {
    let inner = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !inner(before.chars().next_back()) && !inner(after.chars().next())
    })
}

/// The crate that a file belongs to: the deepest folder around it.
fn owner<'a>(all: &'a [Package], file: &Path) -> Option<&'a Package> {
    let around = all
        .iter()
        .filter(|package| file.starts_with(&package.folder));
    around.max_by_key(|package| package.folder.len())
}

#[test]
fn s26_every_dependency_is_used() {
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
        // A crate of tests has nothing else.
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
    assert_none("a dependency that nothing uses", &unused);
}

#[test]
fn a_word_is_no_part_of_another() {
    assert!(names("use serde::Serialize;", "serde"));
    assert!(names("#[serde(default)]", "serde"));
    assert!(!names("use serde_json::Value; my_serde::x", "serde"));
}
