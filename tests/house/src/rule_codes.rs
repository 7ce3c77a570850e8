//! Codes of rules: where `docs/spec` defines them, and where a text cites them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::{files, read};

/// Folder whose tables define codes, in the first cell of a row.
const FOLDER: &str = "docs/spec";

/// The form of a code: letters, an optional dash, one or two numbers.
static CODE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b[A-Z]{1,2}-?\d+(?:\.\d+)?\b").expect("a regular expression"));

/// Returns the codes that rows define, with the pages of these rows.
#[must_use]
pub fn defined_codes() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let pages = files().into_iter().filter(|path| path.starts_with(FOLDER));
    for page in pages {
        let text = read(&page).unwrap_or_default();
        for line in text.lines() {
            let cell = line
                .strip_prefix("| ")
                .and_then(|rest| rest.split(" |").next());
            let code = cell.filter(|cell| is_code(cell));
            if let Some(code) = code {
                let pages = found.entry(code.to_owned()).or_default();
                pages.push(page.display().to_string());
            }
        }
    }
    found
}

fn is_code(text: &str) -> bool {
    CODE.find(text).is_some_and(|found| found.as_str() == text)
}

/// Returns the letters and the dash before the number.
fn prefix(code: &str) -> &str {
    code.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// Returns whether a word begins with two letters and a dash. Such a word counts as a code even if
/// no code has its prefix.
fn has_dash_after_two_letters(word: &str) -> bool {
    word.find('-') == Some(2)
}

/// The codes that are defined, and their prefixes. A word such as `HS256` has the form of a code,
/// but a prefix that no code has.
pub struct Codes {
    defined: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl Codes {
    /// Reads the codes that `docs/spec` defines.
    #[must_use]
    pub fn from_pages() -> Self {
        Self::new(defined_codes().into_keys())
    }

    fn new(defined: impl IntoIterator<Item = String>) -> Self {
        let defined: BTreeSet<String> = defined.into_iter().collect();
        let prefixes = defined.iter().map(|code| prefix(code).to_owned()).collect();
        Self { defined, prefixes }
    }

    /// Returns the codes in a text, in its order. A word with an unknown prefix is a code if it has
    /// two letters and a dash.
    #[must_use]
    pub fn find_in<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let words = CODE.find_iter(text).map(|found| found.as_str());
        let codes = words.filter(|word| {
            has_dash_after_two_letters(word) || self.prefixes.contains(prefix(word))
        });
        codes.collect()
    }

    #[must_use]
    pub fn resolves(&self, code: &str) -> bool {
        self.defined.contains(code)
    }
}

/// Returns whether the name of a function begins with a code, like `r_9_5_users_evenly`,
/// `x1_to_x6`.
#[must_use]
pub fn begins_with_code(name: &str) -> bool {
    static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(?:r|c|w|i|x|f|s|a|b|t|g|d|p|e|su|tc)_?\d+(?:_|$)")
            .expect("a regular expression")
    });
    PATTERN.is_match(name)
}

/// Returns whether a path is a page of the specification.
#[must_use]
pub fn is_page(path: &Path) -> bool {
    path.starts_with(FOLDER)
}

#[test]
fn codes_are_distinguished_from_other_words() {
    let codes = Codes::new(["I13", "R-9.5", "W-4"].map(str::to_owned));
    let text = "HS256 of J1 in UTF-8: (I13), R-9.5; W-4…W-6 and TC-29 or H100, P-256";
    let found = codes.find_in(text);
    assert_eq!(found, ["I13", "R-9.5", "W-4", "W-6", "TC-29"]);
    assert!(codes.resolves("I13") && !codes.resolves("W-6"));
}

#[test]
fn names_that_begin_with_codes_are_found() {
    for name in [
        "r_9_5_users",
        "x1_to_x6",
        "i13_gangs",
        "w_13_squatters",
        "f47",
    ] {
        assert!(begins_with_code(name), "{name}");
    }
    for name in ["a_gang_is_whole", "s_curve", "tasks_1_to_3", "i_am_here"] {
        assert!(!begins_with_code(name), "{name}");
    }
}
