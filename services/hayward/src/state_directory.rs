//! The state directory of `hayward up`. The command line finds the fleet in it.
//!
//! Content: `fleet.json` (addresses and process), `keys/`, `pg/`, `agents/<node>/`, `lock`. The
//! lock allows one fleet at a time. The kernel releases it when the process ends.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::local_services::Addresses;

/// Addresses and process of the running fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetFile {
    #[serde(flatten)]
    pub addresses: Addresses,
    pub pid: u32,
}

/// Returns the default directory: `/var/lib/hayward` for root, otherwise the user's own state
/// directory.
pub fn default_dir() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/var/lib/hayward");
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into()));
    std::env::var_os("XDG_STATE_HOME")
        .map_or_else(|| home().join(".local/state"), PathBuf::from)
        .join("hayward")
}

/// A state directory that is locked by this process.
#[derive(Debug)]
pub struct State {
    dir: PathBuf,
    _lock: Flock<File>,
}

impl State {
    /// Opens and locks the state directory. Creates it if it is missing.
    ///
    /// # Errors
    /// When it cannot be made, or another fleet runs in it.
    pub fn open(dir: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let dir = dir.into();
        // The account of the private database must be able to enter. Other accounts cannot enter
        // the subdirectories.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(&dir)
            .with_context(|| format!("cannot make {}", dir.display()))?;
        let file = File::create(dir.join("lock"))
            .with_context(|| format!("cannot write in {}", dir.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { dir, _lock: lock }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                let pid =
                    read_fleet(&dir).map_or_else(|_| "?".to_owned(), |fleet| fleet.pid.to_string());
                bail!(
                    "a fleet is running in {} (process {pid}); use it, or stop it, or give another \
                     directory with --state",
                    dir.display()
                );
            }
            Err((_, error)) => Err(error).context("cannot lock the state directory"),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn keys(&self) -> PathBuf {
        self.dir.join("keys")
    }

    /// Writes `fleet.json`, in which commands find the fleet.
    pub fn write_fleet(&self, addresses: &Addresses) -> anyhow::Result<()> {
        let file = FleetFile {
            addresses: addresses.clone(),
            pid: std::process::id(),
        };
        let path = self.dir.join("fleet.json");
        fs::write(&path, serde_json::to_string_pretty(&file)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes `fleet.json`.
    pub fn remove_fleet(&self) {
        // A missing file is fine.
        drop(fs::remove_file(self.dir.join("fleet.json")));
    }
}

/// Reads `fleet.json`.
pub fn read_fleet(dir: &Path) -> anyhow::Result<FleetFile> {
    let path = dir.join("fleet.json");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
}
