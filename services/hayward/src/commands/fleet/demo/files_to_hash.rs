//! Selects the files that the demonstration hashes, and divides them between the users.

use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Mode bit: other accounts may read a file.
const OTHERS_READ: u32 = 0o4;
/// Mode bit: other accounts may enter a folder.
const OTHERS_ENTER: u32 = 0o1;

/// One user's part of the files.
pub struct UserFiles {
    pub user: &'static str,
    pub class: &'static str,
    pub files: Vec<PathBuf>,
}

impl UserFiles {
    pub fn new(user: &'static str, class: &'static str, files: Vec<PathBuf>) -> Self {
        Self { user, class, files }
    }
}

/// Returns the regular files below `dir`, sorted, without following links. The default is the
/// repository of the current directory, without its history and build output.
pub fn list_files(dir: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let (root, skip): (PathBuf, &[&str]) = match dir {
        Some(dir) => (dir.to_owned(), &[]),
        None => (find_repository()?, &[".git", "target"]),
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

/// Returns files that every account can read. Files that other accounts cannot read are copied into
/// `folder`. This is needed for root only: an agent of root runs work under an unprivileged
/// account.
pub fn make_readable(files: Vec<PathBuf>, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let is_root = std::fs::metadata(folder)?.uid() == 0;
    let mut cache = HashMap::new();
    let mut readable_files = Vec::with_capacity(files.len());
    for (index, file) in files.into_iter().enumerate() {
        let is_readable = !is_root
            || others_have_right(&file, OTHERS_READ)?
                && others_can_enter(file.parent(), &mut cache)?;
        if is_readable {
            readable_files.push(file);
            continue;
        }
        let copy = folder.join(index.to_string());
        std::fs::copy(&file, &copy).with_context(|| format!("cannot copy {}", file.display()))?;
        std::fs::set_permissions(&copy, Permissions::from_mode(0o644))?;
        readable_files.push(copy);
    }
    Ok(readable_files)
}

/// Returns true if other accounts can enter this folder and all its parents.
fn others_can_enter(
    folder: Option<&Path>,
    cache: &mut HashMap<PathBuf, bool>,
) -> anyhow::Result<bool> {
    let Some(folder) = folder else {
        return Ok(true);
    };
    if let Some(can_enter) = cache.get(folder) {
        return Ok(*can_enter);
    }
    let can_enter =
        others_have_right(folder, OTHERS_ENTER)? && others_can_enter(folder.parent(), cache)?;
    cache.insert(folder.to_owned(), can_enter);
    Ok(can_enter)
}

fn others_have_right(path: &Path, mode_bit: u32) -> anyhow::Result<bool> {
    let metadata =
        std::fs::metadata(path).with_context(|| format!("cannot see {}", path.display()))?;
    Ok(metadata.mode() & mode_bit != 0)
}

/// Returns the nearest parent directory that is a repository, or the current directory if there is
/// none.
fn find_repository() -> anyhow::Result<PathBuf> {
    let current = std::env::current_dir().context("there is no current directory")?;
    let root = current
        .ancestors()
        .find(|folder| folder.join(".git").exists());
    Ok(root.map_or_else(|| current.clone(), Path::to_owned))
}

/// Divides the files between the users Ada and Ben. Ada gets two thirds, because her class has
/// twice the weight. Both jobs end at about the same time.
pub fn divide(files: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    // Ben gets every third file.
    let files_of = |is_ben: bool| {
        let part = files
            .iter()
            .enumerate()
            .filter(|(index, _)| (index % 3 == 2) == is_ben);
        part.map(|(_, file)| file.clone()).collect()
    };
    (files_of(false), files_of(true))
}

/// Returns the pause of each task in milliseconds, so that twelve processes take about fifteen
/// seconds for all files. Returns 0 for many files, whose pauses would be too short to see.
pub fn default_pause_ms(files: usize) -> u64 {
    const TOTAL_MS: u64 = 15_000;
    const PROCESSES: u64 = 12;
    const MIN_PAUSE_MS: u64 = 20;
    const MAX_PAUSE_MS: u64 = 2_000;
    let pause_ms = TOTAL_MS * PROCESSES / (files as u64).max(1);
    if pause_ms < MIN_PAUSE_MS {
        0
    } else {
        pause_ms.min(MAX_PAUSE_MS)
    }
}
