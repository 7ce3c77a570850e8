//! Small files that are there whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Puts this content in place of whatever is there, on disk when it returns.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_open(path, content).map(drop)
}

/// The same, open for more at its end: whatever fails, the handle is never on another file than the
/// one that is there.
pub fn replace_open(path: &Path, content: &[u8]) -> io::Result<File> {
    let fresh = path.with_extension("fresh");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(content)?;
    file.sync_data()?;
    std::fs::rename(&fresh, path)?;
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(file)
}

pub fn replace_json<T: Serialize>(path: &Path, content: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(content)?)
}

/// Writes a file nobody may have written before; whoever comes second gets `AlreadyExists`.
/// Not forced to disk: it speaks to processes of this boot.
pub fn create_json<T: Serialize>(path: &Path, content: &T) -> io::Result<()> {
    let content = serde_json::to_vec(content)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&content)
}

/// None when it is not there or not whole.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// As [`replace`], but the machine may lose it.
pub fn note(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, content)?;
    std::fs::rename(&fresh, path)
}

/// FNV-1a: it tells a torn line from a whole one, it does not stop a forger.
pub fn checksum(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
