//! Reads and writes small files. A write is atomic: a reader finds the old or the new content.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Replaces a file atomically. The content is on disk on return.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_open(path, content).map(drop)
}

/// Replaces a file like [`replace`]. Returns the new file, opened for appending.
pub fn replace_open(path: &Path, content: &[u8]) -> io::Result<File> {
    let temporary = path.with_extension("fresh");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(content)?;
    file.sync_data()?;
    std::fs::rename(&temporary, path)?;
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(file)
}

pub fn replace_json<T: Serialize>(path: &Path, content: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(content)?)
}

/// Creates a file. Fails with `AlreadyExists` if it exists. The file is not synced to the disk, so
/// it may be lost in a reboot.
pub fn create_json<T: Serialize>(path: &Path, content: &T) -> io::Result<()> {
    let content = serde_json::to_vec(content)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&content)
}

/// Reads a file. Returns `None` if it is missing or damaged.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Replaces a file like [`replace`], but a crash of the node may lose the new content.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("fresh");
    std::fs::write(&temporary, content)?;
    std::fs::rename(&temporary, path)
}
