//! What the agent keeps of one container: a folder, made before the engine hears of it.
//!
//! Whatever was asked of the engine is noted here first, so that an agent that comes later knows
//! what may have been done: without [`Folder::start_asked`], the program was never started.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use hayward_vocabulary::{AllocationId, Exit, Timestamp};
use serde::{Deserialize, Serialize};

use crate::files;

const ORDER: &str = "order.json";
const ASKED: &str = "start-asked";
const STARTED: &str = "started.json";
const STOP: &str = "stop-asked";
const EXIT: &str = "exit.json";
const PLACE: &str = "output.place";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub id: AllocationId,
    pub incarnation: u64,
    pub epoch: u64,
    pub stop_grace_ms: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    pub pid: u32,
    pub at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// It must not be there yet.
    pub fn make(&self, order: &Order) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(&self.0)?;
        files::replace_json(&self.0.join(ORDER), order)
    }

    pub fn order(&self) -> Option<Order> {
        files::read_json(&self.0.join(ORDER))
    }

    /// On disk before the engine is asked to start it.
    pub fn note_start_asked(&self) -> io::Result<()> {
        files::replace(&self.0.join(ASKED), b"")
    }

    pub fn start_asked(&self) -> bool {
        self.0.join(ASKED).exists()
    }

    pub fn note_started(&self, started: &Started) {
        // A later agent asks the engine again.
        let _ = files::replace_json(&self.0.join(STARTED), started);
    }

    pub fn started(&self) -> Option<Started> {
        files::read_json(&self.0.join(STARTED))
    }

    pub fn note_stop_asked(&self) {
        // Unnoted, its end would count as the program's own; it is still stopped.
        if let Err(error) = files::replace(&self.0.join(STOP), b"") {
            tracing::warn!(folder = %self.0.display(), %error, "a stop cannot be noted");
        }
    }

    pub fn stop_asked(&self) -> bool {
        self.0.join(STOP).exists()
    }

    pub fn note_exit(&self, exit: &Exit) -> io::Result<()> {
        files::replace_json(&self.0.join(EXIT), exit)
    }

    pub fn exit(&self) -> Option<Exit> {
        files::read_json(&self.0.join(EXIT))
    }

    /// Where its output is.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    pub fn place(&self) -> PathBuf {
        self.0.join(PLACE)
    }

    pub fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.0.display(), %error, "it cannot be removed");
        }
    }
}

/// All folders below this directory, by their names.
pub fn all(dir: &Path) -> io::Result<Vec<(AllocationId, Folder)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(id) = name.and_then(|name| AllocationId::new(name).ok()) {
            found.push((id, Folder(path)));
        }
    }
    Ok(found)
}
