//! Backups: how they are made, read and restored.
//!
//! The client programs of Postgres do the work. Hayward adds the keys, a manifest and a check that
//! the dump is complete. A restore is atomic. After it, each service has a new revision history, so
//! that the other services discard cursors that refer to lost revisions. (R9)

pub mod admin_database;
pub mod manifest;
pub mod postgres_tool;
pub mod restore_dump;
pub mod revision_histories;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context as _;

/// File name of the dump in the folder of a backup.
pub const DUMP_FILE: &str = "database.dump";
/// Folder name of the keys in the folder of a backup.
pub const KEYS_FOLDER: &str = "keys";

/// Makes a folder that only its owner can open.
pub fn create_private_folder(dir: &Path) -> anyhow::Result<()> {
    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(dir);
    created.with_context(|| format!("cannot make {}", dir.display()))
}

/// Copies the keys in `from` and its subfolders into a new folder. The permissions stay.
pub fn copy_keys(from: &Path, to: &Path) -> anyhow::Result<()> {
    create_private_folder(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_keys(&from, &to)?;
            continue;
        }
        let content = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        fs::write(&to, content).with_context(|| format!("cannot write {}", to.display()))?;
        let mode = fs::metadata(&from)?.permissions().mode();
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
