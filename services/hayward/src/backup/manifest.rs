//! The manifest of a backup: a JSON file with the digest of the dump and the saved histories.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::revision_histories::History;
use super::{DUMP_FILE, KEYS_FOLDER};

const FILE_NAME: &str = "manifest.json";
/// Format version of the manifest that this program writes and reads.
const FORMAT_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    #[serde(rename = "form")]
    pub format_version: u32,
    pub made_at: Timestamp,
    /// Version of the program that made the backup.
    #[serde(rename = "hayward")]
    pub hayward_version: String,
    /// Major version of the Postgres server.
    #[serde(rename = "postgres")]
    pub postgres_version: u32,
    /// Length of the dump in bytes.
    #[serde(rename = "bytes")]
    pub dump_bytes: u64,
    /// SHA-256 digest of the dump, in hexadecimal.
    pub sha256: String,
    /// True when the backup contains the keys directory.
    #[serde(rename = "keys")]
    pub has_keys: bool,
    /// Last revision of each service, by schema.
    pub histories: BTreeMap<String, History>,
}

impl Manifest {
    pub fn for_dump(
        dump: &Path,
        made_at: Timestamp,
        postgres_version: u32,
        has_keys: bool,
        histories: BTreeMap<String, History>,
    ) -> anyhow::Result<Self> {
        let (dump_bytes, sha256) = hash_file(dump)?;
        Ok(Self {
            format_version: FORMAT_VERSION,
            made_at,
            hayward_version: env!("CARGO_PKG_VERSION").to_owned(),
            postgres_version,
            dump_bytes,
            sha256,
            has_keys,
            histories,
        })
    }

    pub fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let path = dir.join(FILE_NAME);
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(FILE_NAME);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{} is no backup: cannot read its manifest", dir.display()))?;
        let manifest: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged", path.display()))?;
        if manifest.format_version != FORMAT_VERSION {
            bail!(
                "{} has a format that hayward {} does not know; it was made by {}",
                dir.display(),
                env!("CARGO_PKG_VERSION"),
                manifest.hayward_version
            );
        }
        Ok(manifest)
    }
}

/// Source of a restore: a backup, or a plain dump.
#[derive(Debug, Clone)]
pub struct RestoreSource {
    pub dump: PathBuf,
    /// Folder of the keys. `None` if the source has no keys.
    pub keys: Option<PathBuf>,
    /// Manifest of the backup. `None` for a plain dump.
    pub manifest: Option<Manifest>,
}

impl RestoreSource {
    /// Opens a backup folder and checks the digest of its dump. A file is a plain dump.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path.is_file() {
            return Ok(Self {
                dump: path.to_owned(),
                keys: None,
                manifest: None,
            });
        }
        let manifest = Manifest::read(path)?;
        let dump = path.join(DUMP_FILE);
        let (bytes, sha256) = hash_file(&dump)?;
        if (bytes, &sha256) != (manifest.dump_bytes, &manifest.sha256) {
            bail!(
                "{} is not the file that was written: it has {bytes} bytes and {} were, or its \
                 digest differs; take another backup",
                dump.display(),
                manifest.dump_bytes
            );
        }
        Ok(Self {
            dump,
            keys: manifest.has_keys.then(|| path.join(KEYS_FOLDER)),
            manifest: Some(manifest),
        })
    }
}

/// Returns the newest readable backup in a folder. Returns `None` if there is none.
pub fn find_newest(dir: &Path) -> Option<(PathBuf, Manifest)> {
    let entries = fs::read_dir(dir).ok()?.flatten();
    let backups = entries.filter_map(|entry| {
        let path = entry.path();
        let manifest = Manifest::read(&path).ok()?;
        Some((path, manifest))
    });
    backups.max_by_key(|(_, manifest)| manifest.made_at)
}

/// Returns the length in bytes and the SHA-256 digest of a file.
fn hash_file(file: &Path) -> anyhow::Result<(u64, String)> {
    let failed = || format!("cannot read {}", file.display());
    let mut reader = fs::File::open(file).with_context(failed)?;
    let (mut hasher, mut bytes) = (Sha256::new(), 0_u64);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = reader.read(&mut buffer).with_context(failed)?;
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
        bytes += length as u64;
    }
    let digest = hasher.finalize();
    let mut hex = String::new();
    for byte in &digest {
        // Writing to a string never fails.
        let _ = write!(hex, "{byte:02x}");
    }
    Ok((bytes, hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create_backup(dir: &Path, unix_ms: i64) -> PathBuf {
        let dir = dir.join(unix_ms.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(DUMP_FILE), "rows").unwrap();
        let made_at = Timestamp::from_unix_ms(unix_ms);
        let manifest =
            Manifest::for_dump(&dir.join(DUMP_FILE), made_at, 15, false, BTreeMap::new());
        manifest.unwrap().write(&dir).unwrap();
        dir
    }

    #[test]
    fn a_dump_with_another_digest_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = create_backup(dir.path(), 1);
        assert!(RestoreSource::open(&path).unwrap().manifest.is_some());
        // The written content was `rows`. The first content is shorter, the second has its length.
        for content in ["row", "sowr"] {
            fs::write(path.join(DUMP_FILE), content).unwrap();
            let message = RestoreSource::open(&path).unwrap_err().to_string();
            assert!(
                message.contains("not the file that was written"),
                "{message}"
            );
        }
        assert!(RestoreSource::open(dir.path()).is_err());
        // A plain dump has no manifest.
        assert!(
            RestoreSource::open(&path.join(DUMP_FILE))
                .unwrap()
                .manifest
                .is_none()
        );
    }

    #[test]
    fn the_newest_of_several_backups_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert!(find_newest(dir.path()).is_none());
        create_backup(dir.path(), 5);
        let newest_path = create_backup(dir.path(), 7);
        fs::create_dir(dir.path().join("9.partial")).unwrap();
        assert_eq!(find_newest(dir.path()).unwrap().0, newest_path);
    }
}
