//! The files to hash, and their division between the users.

use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// One user's part of the files.
pub struct Share {
    pub user: &'static str,
    pub class: &'static str,
    pub files: Vec<PathBuf>,
}

impl Share {
    pub fn new(user: &'static str, class: &'static str, files: Vec<PathBuf>) -> Self {
        Self { user, class, files }
    }
}

/// Returns the regular files below `dir`, sorted, without following links. The default is the
/// repository of the current directory, without its history and build output.
pub fn below(dir: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let (root, skip): (PathBuf, &[&str]) = match dir {
        Some(dir) => (dir.to_owned(), &[]),
        None => (repository()?, &[".git", "target"]),
    };
    let root = root
        .canonicalize()
        .with_context(|| format!("cannot open {}", root.display()))?;
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let skipped = folder == root && skip.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && !skipped {
                folders.push(path);
            } else if kind.is_file() && !skipped {
                anyhow::ensure!(path.to_str().is_some(), "{} is not UTF-8", path.display());
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns files that every account can read, because an agent of root runs work under an account
/// without rights. Files that other accounts cannot read are copied into `folder`.
pub fn readable(files: Vec<PathBuf>, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let by_root = std::fs::metadata(folder)?.uid() == 0;
    let mut known = HashMap::new();
    let mut all = Vec::with_capacity(files.len());
    for (at, file) in files.into_iter().enumerate() {
        let open = !by_root || others_may(&file, 0o4)? && passable(file.parent(), &mut known)?;
        if open {
            all.push(file);
            continue;
        }
        let copy = folder.join(at.to_string());
        std::fs::copy(&file, &copy).with_context(|| format!("cannot copy {}", file.display()))?;
        std::fs::set_permissions(&copy, Permissions::from_mode(0o644))?;
        all.push(copy);
    }
    Ok(all)
}

fn passable(folder: Option<&Path>, known: &mut HashMap<PathBuf, bool>) -> anyhow::Result<bool> {
    let Some(folder) = folder else {
        return Ok(true);
    };
    if let Some(known) = known.get(folder) {
        return Ok(*known);
    }
    let open = others_may(folder, 0o1)? && passable(folder.parent(), known)?;
    known.insert(folder.to_owned(), open);
    Ok(open)
}

fn others_may(path: &Path, right: u32) -> anyhow::Result<bool> {
    let about =
        std::fs::metadata(path).with_context(|| format!("cannot see {}", path.display()))?;
    Ok(about.mode() & right != 0)
}

/// Returns the nearest parent directory that is a repository, or the current directory if there is
/// none.
fn repository() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("there is no current directory")?;
    let top = here.ancestors().find(|folder| folder.join(".git").exists());
    Ok(top.map_or_else(|| here.clone(), Path::to_owned))
}

/// Divides the files between Ada and the other user. Ada gets two thirds, because her class has
/// twice the weight. Both jobs end at about the same time.
pub fn shares(files: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let part_of = |ben: bool| {
        let part = files
            .iter()
            .enumerate()
            .filter(|(at, _)| (at % 3 == 2) == ben);
        part.map(|(_, file)| file.clone()).collect()
    };
    (part_of(false), part_of(true))
}

/// Returns the pause for each task in milliseconds. With it, a dozen processes take about fifteen
/// seconds.
pub fn pace(files: usize) -> u64 {
    const TOTAL_MS: u64 = 15_000;
    const PROCESSES: u64 = 12;
    let pace = TOTAL_MS * PROCESSES / (files as u64).max(1);
    if pace < 20 { 0 } else { pace.min(2_000) }
}
