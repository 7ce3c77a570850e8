//! Checks of the repository itself: names, comments, sizes, dependencies, documents.
//!
//! The checks are the tests of this crate. This library has what they share: the workspace as cargo
//! describes it, its files, its Rust sources, its pages, and the list of tolerated findings
//! ([`debt`]). The checks run only `cargo metadata`, need no server, and give the same result on
//! every machine. The crate depends on no other crate of the repository, so it can also check code
//! that does not compile.

pub mod api_compatibility;
pub mod debt;
pub mod markdown;
pub mod metrics_catalogue;
pub mod module_graph;
pub mod promql;
pub mod rule_codes;
pub mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// Returns the root folder of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir
        .ancestors()
        .nth(2)
        .expect("tests/house is two levels below the root")
        .to_path_buf()
}

/// One crate of the workspace.
#[derive(Debug)]
pub struct Package {
    pub name: String,
    /// Folder of the crate, relative to the root, such as `services/node-status/api`.
    pub folder: String,
    pub description: String,
    pub dependencies: Vec<Dependency>,
    /// The root file of each library and binary, relative to the repository.
    pub roots: Vec<PathBuf>,
}

/// A dependency of a crate, as its manifest names it.
#[derive(Debug)]
pub struct Dependency {
    pub name: String,
    pub kind: DependencyKind,
    /// Whether it is a crate of this repository.
    pub is_local: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DependencyKind {
    Normal,
    Build,
    Dev,
}

impl Package {
    /// Returns whether this is a program or service itself in `services/<name>`, and not its `api`
    /// or `domain`.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.folder
            .strip_prefix("services/")
            .is_some_and(|rest| !rest.contains('/'))
    }

    #[must_use]
    pub fn is_domain(&self) -> bool {
        self.folder.starts_with("services/") && self.folder.ends_with("/domain")
    }

    #[must_use]
    pub fn is_api(&self) -> bool {
        self.folder.starts_with("services/") && self.folder.ends_with("/api")
    }

    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.folder.starts_with("shared/")
    }
}

/// Returns every crate of the workspace by name, from `cargo metadata`.
#[must_use]
pub fn packages() -> BTreeMap<String, Package> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = array_field(&metadata, "packages").iter().map(parse_package);
    packages
        .map(|package| (package.name.clone(), package))
        .collect()
}

fn parse_package(data: &Value) -> Package {
    let manifest = PathBuf::from(string_field(data, "manifest_path"));
    let folder = manifest.parent().expect("a manifest is in a folder");
    let roots = array_field(data, "targets").iter().filter(|target| {
        let kinds = array_field(target, "kind");
        kinds.iter().any(|kind| kind == "lib" || kind == "bin")
    });
    Package {
        name: string_field(data, "name").to_owned(),
        folder: relative_to_root(folder).display().to_string(),
        description: data["description"].as_str().unwrap_or_default().to_owned(),
        // A crate may depend on itself to enable a feature for its tests.
        dependencies: array_field(data, "dependencies")
            .iter()
            .map(parse_dependency)
            .filter(|dependency| dependency.name != string_field(data, "name"))
            .collect(),
        roots: roots
            .map(|target| relative_to_root(Path::new(string_field(target, "src_path"))))
            .collect(),
    }
}

fn parse_dependency(data: &Value) -> Dependency {
    let kind = match data["kind"].as_str() {
        None => DependencyKind::Normal,
        Some("build") => DependencyKind::Build,
        Some(_) => DependencyKind::Dev,
    };
    Dependency {
        name: string_field(data, "name").to_owned(),
        kind,
        is_local: data["path"].is_string(),
    }
}

fn array_field<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn string_field<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("cargo gives no {key}"))
}

fn relative_to_root(path: &Path) -> PathBuf {
    path.strip_prefix(root())
        .expect("a crate of the workspace is below the root")
        .to_path_buf()
}

/// Returns every written file of the repository in order, relative to the root. Build output,
/// version control, and remains of interrupted golden tests are left out.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect_files(&root(), &mut found);
    found.sort();
    found
}

fn collect_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_symlink()
            || [".git", "target", ".sqlx"]
                .iter()
                .any(|skipped| name == *skipped)
        {
            continue;
        }
        if path.is_dir() {
            collect_files(&path, found);
        } else if path
            .extension()
            .is_none_or(|extension| extension != "pending-snap")
        {
            found.push(relative_to_root(&path));
        }
    }
}

/// Returns every Markdown page, except those in `docs/spec`, which repeat specifications word for
/// word.
///
/// # Panics
/// If a page that people read first is not among them.
#[must_use]
pub fn pages() -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "md")
            && !path.starts_with("docs/spec")
    };
    let pages: Vec<PathBuf> = files().into_iter().filter(is_page).collect();
    for expected in ["README.md", "docs/tour.md", "docs/api-tour.md"] {
        let exists = pages.iter().any(|page| page == Path::new(expected));
        assert!(exists, "{expected} is missing");
    }
    pages
}

/// Returns the text of a file of the repository. Returns `None` if it does not exist or is not
/// UTF-8.
#[must_use]
pub fn read(relative: &Path) -> Option<String> {
    String::from_utf8(fs::read(root().join(relative)).ok()?).ok()
}

/// Compares a text with a checked-in file. With `BLESS=1` (`just bless`), writes the file instead.
///
/// # Panics
/// If they differ, with the lines that do.
pub fn compare_with_golden(relative: &str, actual: &str) {
    let path = root().join(relative);
    if env::var_os("BLESS").is_some() {
        fs::write(&path, actual).unwrap_or_else(|e| panic!("{relative}: {e}"));
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    if expected != actual {
        let removed = expected
            .lines()
            .filter(|line| !actual.lines().any(|other| other == *line));
        let added = actual
            .lines()
            .filter(|line| !expected.lines().any(|other| other == *line));
        let difference: Vec<String> = removed
            .map(|line| format!("- {line}"))
            .chain(added.map(|line| format!("+ {line}")))
            .collect();
        panic!(
            "{relative} differs; if the change is meant, run `just bless` and read the diff\n{}",
            difference.join("\n")
        );
    }
}

/// Fails with all findings at once.
///
/// # Panics
/// If there are any findings.
pub fn assert_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}\n  {}", findings.join("\n  "));
}
