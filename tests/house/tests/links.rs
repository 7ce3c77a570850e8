//! Checks that links and names in the documents exist: every relative link with its anchor, every
//! path, every `Type::method`, and every identifier in backquotes.

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
fn normal(path: &Path) -> PathBuf {
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
    let mut all = BTreeSet::new();
    for file in files() {
        all.extend(file.ancestors().map(Path::to_path_buf));
    }
    all
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
        normal(&page.parent().unwrap_or(Path::new("")).join(path))
    };
    if !paths.contains(&file) {
        return Some(format!("there is no {}", file.display()));
    }
    let text = texts.get(&file).map_or("", String::as_str);
    let known = anchor.is_empty() || markdown::anchors(text).iter().any(|it| it == anchor);
    (!known).then(|| format!("{} has no heading for #{anchor}", file.display()))
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
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !span.chars().all(plain) || span.starts_with(['/', '-', '.']) {
        return false;
    }
    let is_placeholder =
        |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase());
    if span.split('/').any(is_placeholder) {
        return false;
    }
    let below = span
        .split_once('/')
        .is_some_and(|(first, _)| folders.contains(first));
    below || SOURCE_ENDINGS.iter().any(|end| span.ends_with(end))
}

/// Returns whether a path exists. It begins at the root or at the folder of its page, or is the end
/// of a longer path.
fn is_there(span: &str, page: &Path, paths: &BTreeSet<PathBuf>) -> bool {
    let wanted = Path::new(span.trim_end_matches('/'));
    let near = page.parent().unwrap_or(Path::new("")).join(wanted);
    paths.contains(wanted)
        || paths.contains(&normal(&near))
        || paths.iter().any(|path| path.ends_with(wanted))
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
            if is_path(&span, &folders) && !is_there(&span, &page, &paths) && !is_foreign(&span) {
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
struct Source {
    files: Vec<(String, HashSet<String>)>,
}

impl Source {
    fn read() -> Self {
        let is_source = |path: &PathBuf| {
            let end = path.extension().unwrap_or_default();
            end != "md" && path != Path::new("tests/house/tests/links.rs")
        };
        let texts = files().into_iter().filter(is_source);
        let files = texts.filter_map(|path| {
            let text = read(&path)?;
            let mut all: HashSet<String> = words(&text).map(str::to_owned).collect();
            // The name of a module is a word too.
            all.extend(path.file_stem().map(|it| it.to_string_lossy().into_owned()));
            Some((text, all))
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
        let has = |word: &str| self.files.iter().any(|(_, all)| all.contains(word));
        has(word) || (!setting.is_empty() && has(&setting))
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
        self.files.iter().any(|(text, all)| {
            let here = all.contains(owner) && all.contains(member);
            here && (is_variant || !is_type || declared.iter().any(|it| text.contains(it)))
        })
    }
}

/// Splits `Type::method` or `module::function`, without arguments.
fn member(span: &str) -> Option<(&str, &str)> {
    let bare = span.split('(').next()?;
    let (before, member) = bare.rsplit_once("::")?;
    let owner = before.rsplit("::").next()?;
    let is_name = |text: &str| words(text).eq(std::iter::once(text));
    (is_name(owner) && is_name(member)).then_some((owner, member))
}

/// Returns whether a word is in `snake_case` or `CamelCase`, which only programs use.
fn is_identifier(span: &str) -> bool {
    let is_word = span.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let inside = span.trim_matches('_');
    let camel = inside.starts_with(|c: char| c.is_ascii_uppercase())
        && inside.chars().any(|c| c.is_ascii_lowercase())
        && inside.chars().skip(1).any(|c| c.is_ascii_uppercase());
    let snake = inside.contains('_') && inside.starts_with(|c: char| c.is_ascii_alphabetic());
    is_word && (camel || snake)
}

#[test]
fn every_name_in_backquotes_is_in_the_source() {
    let source = Source::read();
    let mut found = Vec::new();
    let is_written =
        |(page, _): &(PathBuf, String)| GENERATED.iter().all(|it| page != Path::new(it));
    for (page, text) in pages_with_text().into_iter().filter(is_written) {
        for (line, span) in markdown::code_spans(&text) {
            let known = if let Some((owner, member)) = member(&span) {
                source.has_member(owner, member)
            } else {
                let name = span.trim_end_matches("()");
                !is_identifier(name) || source.has_word(name)
            };
            if !known && !is_foreign(&span) {
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
    assert_eq!(member("Handle::ask"), Some(("Handle", "ask")));
    assert_eq!(member("a::B::c()"), Some(("B", "c")));
    assert_eq!(member("cargo test -- a::b c"), None);
    assert!(is_identifier("max_failed") && is_identifier("WorkShare"));
    assert!(!is_identifier("ETag-x") && !is_identifier("If") && !is_identifier("HAYWARD"));
    let folders = BTreeSet::from(["services".to_owned()]);
    assert!(is_path("services/x", &folders) && is_path("src/a.rs", &folders));
    assert!(!is_path("GET /v1/jobs", &folders) && !is_path("services/<name>/a.rs", &folders));
}
