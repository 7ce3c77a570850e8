//! Checks that neither the compiler nor clippy makes: lengths of files, functions and lines,
//! descriptions of crates, placeholders, and waits in tests.

use std::path::Path;

use hayward_tests_house::debt::{Finding, assert_within_debt};
use hayward_tests_house::source::{has_extension, sources, test_modules};
use hayward_tests_house::{assert_none, files, packages, read};
use syn::visit::{self, Visit};

/// Maximum number of lines of a source file, without its inline tests.
const FILE_LINES: usize = 500;
/// Maximum number of lines of a function, from `fn` to its last brace.
const FUNCTION_LINES: usize = 60;
const LINE_CHARACTERS: usize = 100;
/// Maximum number of lines of the text that opens a crate.
const OPENING_LINES: usize = 30;
/// The module that may poll. Tests of all crates use it.
const POLLING_MODULE: &str = "shared/testkit/src/wait.rs";

/// Counts the lines without `#[cfg(test)] mod … { … }` blocks, which rustfmt closes in column one.
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
    let test_files = test_modules();
    let mut long = Vec::new();
    let mut long_tests = Vec::new();
    for source in sources() {
        let is_test = source.is_test() || test_files.contains(&source.path);
        let lines = if is_test {
            source.text.lines().count()
        } else {
            lines_without_tests(&source.text)
        };
        let text = format!("{}: {lines} lines", source.path.display());
        if lines > FILE_LINES && is_test {
            long_tests.push(Finding {
                package: source.package.clone(),
                text,
            });
        } else if lines > FILE_LINES {
            long.push(text);
        }
    }
    assert_none("a file has at most 500 lines without its tests", &long);
    assert_within_debt(
        "test-file-lines",
        "a test file has at most 500 lines",
        long_tests,
    );
}

/// Functions with more lines than allowed.
#[derive(Default)]
struct LongFunctions {
    found: Vec<(usize, String)>,
}

impl LongFunctions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        let lines = last - first + 1;
        if lines > FUNCTION_LINES {
            let text = format!("{} has {lines} lines", signature.ident);
            self.found.push((first, text));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn functions_are_short() {
    let mut found = Vec::new();
    for source in sources() {
        let mut functions = LongFunctions::default();
        functions.visit_file(&source.syntax());
        found.extend(functions.found.into_iter().map(|(line, text)| Finding {
            package: source.package.clone(),
            text: format!("{}: {text}", source.location(line)),
        }));
    }
    assert_within_debt("function-lines", "a function has at most 60 lines", found);
}

#[test]
fn lines_are_short() {
    let mut found = Vec::new();
    let source_files = files().into_iter().filter(|path| {
        ["rs", "sql", "sh"]
            .iter()
            .any(|extension| has_extension(path, extension))
    });
    for path in source_files {
        let Some(text) = read(&path) else { continue };
        for (index, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_CHARACTERS {
                found.push(format!("{}:{}", path.display(), index + 1));
            }
        }
    }
    assert_none("a line has at most 100 characters", &found);
}

#[test]
fn modules_are_named_by_their_files() {
    let paths = files().into_iter();
    let found = paths.filter(|path| path.file_name().is_some_and(|name| name == "mod.rs"));
    let found: Vec<String> = found.map(|path| path.display().to_string()).collect();
    assert_none("the module of a folder is a file of the same name", &found);
}

/// Returns the lines of Rust code that contain any of the needles. Comments are left out.
fn find_code(needles: &[&str], applies: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| applies(&source.path)) {
        let path = &source.path;
        for (index, line) in source.text.lines().enumerate() {
            let code = line.trim_start();
            if !code.starts_with("//") && needles.iter().any(|needle| code.contains(needle)) {
                found.push(format!("{}:{}: {code}", path.display(), index + 1));
            }
        }
    }
    found
}

// The needles are concatenated so that this file does not find itself.
#[test]
fn no_placeholders_and_no_ignored_tests() {
    let needles = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[", "ignore"),
    ];
    assert_none(
        "no placeholders and no ignored tests",
        &find_code(&needles, |_| true),
    );
}

#[test]
fn tests_wait_for_states_not_for_time() {
    let found = find_code(&[concat!("sleep", "(")], |path| {
        let in_fixture = path.starts_with("tests/fleet") || path.starts_with("shared/testkit");
        in_fixture && path != Path::new(POLLING_MODULE)
    });
    assert_none("tests wait for a state, with the wait module", &found);
}

#[test]
fn crates_open_with_a_description() {
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
    assert_none("a crate opens with 1 to 30 lines of description", &found);
}

#[test]
fn crates_have_a_description() {
    let all = packages();
    let undescribed = all
        .values()
        .filter(|package| package.description.split(' ').count() < 3);
    let found: Vec<String> = undescribed.map(|package| package.name.clone()).collect();
    assert_none("a crate has a description of a sentence", &found);
}

#[test]
fn services_have_a_readme() {
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
fn no_path_of_a_developer_s_machine() {
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
        for (index, line) in text.lines().enumerate() {
            if roots.iter().any(|root| begins_path(line, root)) {
                found.push(format!("{}:{}", path.display(), index + 1));
            }
        }
    }
    assert_none("absolute paths of a developer's machine stay out", &found);
}

/// Returns whether the line has the needle at the beginning of a path, and not inside a longer one.
fn begins_path(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(index, _)| {
        let previous = line[..index].chars().next_back();
        previous.is_none_or(|c| !c.is_alphanumeric() && !"._-/}$~".contains(c))
    })
}

#[test]
fn blocks_of_tests_and_beginnings_of_paths_are_found() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
    assert_eq!(lines_without_tests(text), 2);
    assert!(begins_path(
        concat!("see /ro", "ot/x"),
        concat!("/ro", "ot/")
    ));
    assert!(!begins_path(
        concat!("/v1/ro", "ot/x"),
        concat!("/ro", "ot/")
    ));
}
