//! The folder of the agent for one container of the engine, created before the engine is called.
//!
//! A start or stop is recorded in the folder before the engine is called, so that a later agent
//! knows what the engine may have done. Without [`ContainerFolder::start_requested`] the program
//! was never started.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use hayward_vocabulary::{AllocationId, Exit, Timestamp};
use serde::{Deserialize, Serialize};

use crate::atomic_files;

const LAUNCH_RECORD: &str = "order.json";
const START_REQUESTED: &str = "start-asked";
const STARTED: &str = "started.json";
const STOP_REQUESTED: &str = "stop-asked";
const EXIT: &str = "exit.json";
const POSITION: &str = "output.place";

/// The part of the order that a later agent needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchRecord {
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
pub struct ContainerFolder(PathBuf);

impl ContainerFolder {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Creates the folder, which must not exist.
    pub fn create(&self, record: &LaunchRecord) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(&self.0)?;
        atomic_files::replace_json(&self.0.join(LAUNCH_RECORD), record)
    }

    pub fn read_launch_record(&self) -> Option<LaunchRecord> {
        atomic_files::read_json(&self.0.join(LAUNCH_RECORD))
    }

    /// Records that the start will be requested. The record is on disk on return.
    pub fn record_start_request(&self) -> io::Result<()> {
        atomic_files::replace(&self.0.join(START_REQUESTED), b"")
    }

    pub fn start_requested(&self) -> bool {
        self.0.join(START_REQUESTED).exists()
    }

    pub fn record_start(&self, started: &Started) {
        // A failure is ignored, because a later agent can ask the engine again.
        let _ = atomic_files::replace_json(&self.0.join(STARTED), started);
    }

    pub fn read_start(&self) -> Option<Started> {
        atomic_files::read_json(&self.0.join(STARTED))
    }

    pub fn record_stop_request(&self) {
        // Without the record, a later agent would attribute the end to the program.
        if let Err(error) = atomic_files::replace(&self.0.join(STOP_REQUESTED), b"") {
            tracing::warn!(folder = %self.0.display(), %error, "cannot record the stop");
        }
    }

    pub fn stop_requested(&self) -> bool {
        self.0.join(STOP_REQUESTED).exists()
    }

    pub fn write_exit(&self, exit: &Exit) -> io::Result<()> {
        atomic_files::replace_json(&self.0.join(EXIT), exit)
    }

    pub fn read_exit(&self) -> Option<Exit> {
        atomic_files::read_json(&self.0.join(EXIT))
    }

    /// Returns the path of the folder, which also contains the output.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the file with the position up to which the output was copied.
    pub fn position_file(&self) -> PathBuf {
        self.0.join(POSITION)
    }

    pub fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.0.display(), %error, "cannot remove the folder");
        }
    }
}

/// Returns all folders below this directory, by allocation.
pub fn list_folders(dir: &Path) -> io::Result<Vec<(AllocationId, ContainerFolder)>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(id) = name.and_then(|name| AllocationId::new(name).ok()) {
            folders.push((id, ContainerFolder(path)));
        }
    }
    Ok(folders)
}
