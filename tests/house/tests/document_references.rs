//! Checks that everything exists that the documents refer to: the target of every relative link
//! with its anchor, and every path, `Type::method` and identifier in backquotes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use hayward_tests_house::{assert_none, files, markdown, pages, read};

/// Endings of files that a page may name without their folder.
const SOURCE_ENDINGS: [&str; 3] = [".rs", ".sh", ".py"];

/// Names in backquotes that are not in the source, each with the reason.
const FOREIGN: [(&str, &str); 3] = [
    (
        "a_split_gang_is_rolled_back_when_its_node_is_lost",
        "an example of a test name",
    ),
    ("SSLRequest", "a message of the protocol of Postgres"),
    (
        "probe_ssl_earliest_cert_expiry",
        "a metric of blackbox_exporter",
    ),
];

/// Pages that the program generates. Their names are derived and need not be in the source.
const GENERATED: [&str; 2] = ["docs/metrics.md", "docs/settings.md"];

fn pages_with_text() -> Vec<(PathBuf, String)> {
    let with_text = |page: PathBuf| read(&page).map(|text| (page, text));
    pages().into_iter().filter_map(with_text).collect()
}

/// Returns a path relative to the root, without `.` and `..`.
fn normalize(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// Returns all files and all folders.
fn paths() -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    for file in files() {
        paths.extend(file.ancestors().map(Path::to_path_buf));
    }
    paths
}

fn broken_link(
    page: &Path,
    target: &str,
    paths: &BTreeSet<PathBuf>,
    texts: &HashMap<PathBuf, String>,
) -> Option<String> {
    if target.starts_with("http://") || target.starts_with("https://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() {
        page.to_path_buf()
    } else {
        normalize(&page.parent().unwrap_or(Path::new("")).join(path))
    };
    if !paths.contains(&file) {
        return Some(format!("there is no {}", file.display()));
    }
    let text = texts.get(&file).map_or("", String::as_str);
    let is_known = anchor.is_empty() || markdown::anchors(text).iter().any(|it| it == anchor);
    (!is_known).then(|| format!("{} has no heading for #{anchor}", file.display()))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let paths = paths();
    let pages = pages_with_text();
    let texts: HashMap<PathBuf, String> = pages.iter().cloned().collect();
    let mut found = Vec::new();
    for (page, text) in &pages {
        for (line, target) in markdown::links(text) {
            if let Some(fault) = broken_link(page, &target, &paths, &texts) {
                found.push(format!("{}:{line}: {target}: {fault}", page.display()));
            }
        }
    }
    assert_none("a link leads to a file and a heading", &found);
}

/// Returns whether the text names a path of the repository: a source file, or anything below a
/// folder of the root. Patterns such as `services/<name>` and `services/NAME` are not paths.
fn is_path(span: &str, folders: &BTreeSet<String>) -> bool {
    let is_path_character = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !span.chars().all(is_path_character) || span.starts_with(['/', '-', '.']) {
        return false;
    }
    let is_placeholder =
        |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase());
    if span.split('/').any(is_placeholder) {
        return false;
    }
    let is_below_folder = span
        .split_once('/')
        .is_some_and(|(first, _)| folders.contains(first));
    is_below_folder || SOURCE_ENDINGS.iter().any(|end| span.ends_with(end))
}

/// Returns whether a path exists. It begins at the root or at the folder of its page, or is the end
/// of a longer path.
fn path_exists(span: &str, page: &Path, paths: &BTreeSet<PathBuf>) -> bool {
    let relative_to_root = Path::new(span.trim_end_matches('/'));
    let relative_to_page = page
        .parent()
        .unwrap_or(Path::new(""))
        .join(relative_to_root);
    paths.contains(relative_to_root)
        || paths.contains(&normalize(&relative_to_page))
        || paths.iter().any(|path| path.ends_with(relative_to_root))
}

#[test]
fn every_path_in_backquotes_exists() {
    let paths = paths();
    let mut folders = BTreeSet::new();
    for path in paths.iter().filter(|path| path.components().count() > 1) {
        if let Some(first) = path.components().next() {
            folders.insert(first.as_os_str().to_string_lossy().into_owned());
        }
    }
    let mut found = Vec::new();
    for (page, text) in pages_with_text() {
        for (line, span) in markdown::code_spans(&text) {
            if is_path(&span, &folders) && !path_exists(&span, &page, &paths) && !is_foreign(&span)
            {
                found.push(format!("{}:{line}: {span}", page.display()));
            }
        }
    }
    assert_none("a path in backquotes exists", &found);
}

fn is_foreign(name: &str) -> bool {
    FOREIGN.iter().any(|(foreign, _)| *foreign == name)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// All files that are not pages, with their words.
struct SourceWords {
    files: Vec<(String, HashSet<String>)>,
}

impl SourceWords {
    fn read() -> Self {
        let is_source = |path: &PathBuf| {
            let extension = path.extension().unwrap_or_default();
            extension != "md" && path != Path::new("tests/house/tests/document_references.rs")
        };
        let texts = files().into_iter().filter(is_source);
        let files = texts.filter_map(|path| {
            let text = read(&path)?;
            let mut file_words: HashSet<String> = words(&text).map(str::to_owned).collect();
            // The name of a module is a word too.
            file_words.extend(path.file_stem().map(|it| it.to_string_lossy().into_owned()));
            Some((text, file_words))
        });
        Self {
            files: files.collect(),
        }
    }

    /// Returns whether the source has a word. The variable `HAYWARD_LEASE_MS` counts as the setting
    /// `lease_ms`.
    fn has_word(&self, word: &str) -> bool {
        let setting = word
            .strip_prefix("HAYWARD_")
            .unwrap_or_default()
            .to_lowercase();
        let has_exactly = |word: &str| {
            self.files
                .iter()
                .any(|(_, file_words)| file_words.contains(word))
        };
        has_exactly(word) || (!setting.is_empty() && has_exactly(&setting))
    }

    /// Returns whether a file names the owner and has the member: a function, field, variant or
    /// constant.
    fn has_member(&self, owner: &str, member: &str) -> bool {
        let is_type = owner.starts_with(|c: char| c.is_ascii_uppercase());
        let declared = [
            format!("fn {member}"),
            format!("{member}:"),
            format!("const {member}"),
        ];
        let is_variant = member.starts_with(|c: char| c.is_ascii_uppercase());
        self.files.iter().any(|(text, file_words)| {
            let in_file = file_words.contains(owner) && file_words.contains(member);
            in_file && (is_variant || !is_type || declared.iter().any(|it| text.contains(it)))
        })
    }
}

/// Splits `Type::method` or `module::function`, without arguments.
fn split_member(span: &str) -> Option<(&str, &str)> {
    let without_arguments = span.split('(').next()?;
    let (path, member) = without_arguments.rsplit_once("::")?;
    let owner = path.rsplit("::").next()?;
    let is_name = |text: &str| words(text).eq(std::iter::once(text));
    (is_name(owner) && is_name(member)).then_some((owner, member))
}

/// Returns whether a word is in `snake_case` or `CamelCase`, which only programs use.
fn is_identifier(span: &str) -> bool {
    let is_word = span.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let trimmed = span.trim_matches('_');
    let is_camel_case = trimmed.starts_with(|c: char| c.is_ascii_uppercase())
        && trimmed.chars().any(|c| c.is_ascii_lowercase())
        && trimmed.chars().skip(1).any(|c| c.is_ascii_uppercase());
    let is_snake_case =
        trimmed.contains('_') && trimmed.starts_with(|c: char| c.is_ascii_alphabetic());
    is_word && (is_camel_case || is_snake_case)
}

#[test]
fn every_name_in_backquotes_is_in_the_source() {
    let source = SourceWords::read();
    let mut found = Vec::new();
    let is_written =
        |(page, _): &(PathBuf, String)| GENERATED.iter().all(|it| page != Path::new(it));
    for (page, text) in pages_with_text().into_iter().filter(is_written) {
        for (line, span) in markdown::code_spans(&text) {
            let is_known = if let Some((owner, member)) = split_member(&span) {
                source.has_member(owner, member)
            } else {
                let name = span.trim_end_matches("()");
                !is_identifier(name) || source.has_word(name)
            };
            if !is_known && !is_foreign(&span) {
                found.push(format!("{}:{line}: {span}", page.display()));
            }
        }
    }
    assert_none("a name in backquotes is in the source", &found);
}

#[test]
fn every_exception_is_needed_and_has_a_reason() {
    let texts: Vec<String> = pages_with_text()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let is_needed = |name: &str| texts.iter().any(|text| text.contains(&format!("`{name}`")));
    let faults = FOREIGN
        .iter()
        .filter(|(name, reason)| reason.is_empty() || !is_needed(name))
        .map(|(name, _)| (*name).to_owned());
    assert_none(
        "an exception is needed and has a reason",
        &faults.collect::<Vec<_>>(),
    );
}

#[test]
fn names_and_paths_are_recognised() {
    assert_eq!(split_member("Handle::ask"), Some(("Handle", "ask")));
    assert_eq!(split_member("a::B::c()"), Some(("B", "c")));
    assert_eq!(split_member("cargo test -- a::b c"), None);
    assert!(is_identifier("max_failed") && is_identifier("WorkShare"));
    assert!(!is_identifier("ETag-x") && !is_identifier("If") && !is_identifier("HAYWARD"));
    let folders = BTreeSet::from(["services".to_owned()]);
    assert!(is_path("services/x", &folders) && is_path("src/a.rs", &folders));
    assert!(!is_path("GET /v1/jobs", &folders) && !is_path("services/<name>/a.rs", &folders));
}
