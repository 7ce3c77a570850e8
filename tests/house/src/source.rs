//! Rust sources as the checks read them: by crate, with comments, identifiers and literals.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::{TokenStream, TokenTree};

use crate::{Package, files, packages, read};

/// One Rust file of the repository.
#[derive(Debug)]
pub struct Source {
    /// Path relative to the root of the repository.
    pub path: PathBuf,
    /// Name of the crate that the file belongs to, or its first folder outside of any crate.
    pub package: String,
    pub text: String,
}

/// Consecutive comment lines of one kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Comment {
    /// Number of the first line, from 1.
    pub line: usize,
    /// Text without slashes.
    pub text: String,
}

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(read_all);

/// Returns every Rust file of the repository, in the order of paths.
pub fn sources() -> &'static [Source] {
    &SOURCES
}

fn read_all() -> Vec<Source> {
    let all_packages: Vec<Package> = packages().into_values().collect();
    let rust = files().into_iter().filter(|path| has_extension(path, "rs"));
    let with_text = rust.filter_map(|path| read(&path).map(|text| (path, text)));
    let sources = with_text.map(|(path, text)| Source {
        package: package_name(&all_packages, &path),
        path,
        text,
    });
    sources.collect()
}

fn package_name(packages: &[Package], path: &Path) -> String {
    let enclosing = packages
        .iter()
        .filter(|package| path.starts_with(&package.folder));
    let deepest = enclosing.max_by_key(|package| package.folder.len());
    deepest.map_or_else(
        || {
            path.iter()
                .next()
                .map_or_else(String::new, |part| part.to_string_lossy().into())
        },
        |package| package.name.clone(),
    )
}

pub fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|actual| actual == extension)
}

impl Source {
    /// Returns whether the file is a test by its place: below a folder `tests`, or named
    /// `tests.rs`.
    pub fn is_test(&self) -> bool {
        let in_tests = self.path.iter().any(|part| part == "tests");
        in_tests || self.path.file_name().is_some_and(|name| name == "tests.rs")
    }

    pub fn comments(&self) -> Vec<Comment> {
        comments(&self.text)
    }

    /// # Panics
    /// If the file is not valid Rust.
    pub fn syntax(&self) -> syn::File {
        syn::parse_file(&self.text).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()))
    }

    /// Calls `visit` with each token of the file, except for doc comments.
    ///
    /// # Panics
    /// If the tokens of the file are not balanced.
    pub fn for_each_token(&self, visit: &mut impl FnMut(&TokenTree)) {
        let stream: TokenStream = self
            .text
            .parse()
            .unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        for_each_token(stream, visit);
    }

    /// Returns `path:line`, for a finding.
    pub fn location(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }
}

fn for_each_token(stream: TokenStream, visit: &mut impl FnMut(&TokenTree)) {
    // A doc comment arrives as `#[doc = "…"]`. This is the number of its tokens before the text
    // that were seen: 1 after `doc`, 2 after `=`.
    let mut doc_tokens = 0;
    for token in stream {
        if let TokenTree::Group(group) = &token {
            for_each_token(group.stream(), visit);
        }
        let is_doc_text = doc_tokens == 2 && matches!(token, TokenTree::Literal(_));
        doc_tokens = match &token {
            TokenTree::Ident(word) if word == "doc" => 1,
            TokenTree::Punct(_) if doc_tokens == 1 => 2,
            _ => 0,
        };
        if !is_doc_text {
            visit(&token);
        }
    }
}

fn comments(text: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut current_mark = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let marks = ["//!", "///", "//"];
        let mark = marks.into_iter().find(|mark| line.starts_with(mark));
        let Some(mark) = mark else {
            current_mark = None;
            continue;
        };
        let content = line[mark.len()..].trim();
        match found.last_mut() {
            Some(last) if current_mark == Some(mark) => {
                last.text.push('\n');
                last.text.push_str(content);
            }
            _ => found.push(Comment {
                line: index + 1,
                text: content.to_owned(),
            }),
        }
        current_mark = Some(mark);
    }
    found
}

/// Returns the files of modules that are declared only for tests, as in `#[cfg(test)] mod
/// examples;`.
pub fn test_modules() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for source in sources() {
        let folder = match source.path.file_name().and_then(|name| name.to_str()) {
            Some("lib.rs" | "main.rs") => source.path.with_file_name(""),
            _ => source.path.with_extension(""),
        };
        let lines: Vec<&str> = source.text.lines().collect();
        for (attribute, declaration) in lines.iter().zip(lines.iter().skip(1)) {
            let name = declaration
                .strip_prefix("mod ")
                .and_then(|rest| rest.strip_suffix(';'));
            if let (Some(name), &"#[cfg(test)]") = (name, attribute) {
                found.insert(folder.join(name).with_extension("rs"));
            }
        }
    }
    found
}

#[test]
fn comment_lines_of_one_kind_are_one_comment() {
    let text = "//! a\n//! b\n\n/// c\n// d\nlet x = 1; // e\n";
    let found: Vec<(usize, String)> = comments(text)
        .into_iter()
        .map(|comment| (comment.line, comment.text))
        .collect();
    let expected = [(1, "a\nb"), (4, "c"), (5, "d")];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
}
