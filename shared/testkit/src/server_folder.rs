//! Folders of test servers, in the target directory of the build.
//!
//! - `template-…` contains the data of a server that was initialised once. Later servers start
//!   from a copy of it.
//! - `<process>-<n>` contains one server. Its process keeps it locked, so that a later test run
//!   recognises an abandoned folder and removes it.
//!
//! All changes happen under one lock, because several test processes run at once.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use hayward_postgres::{Embedded, Settings, binaries};

use crate::wait::until;

/// A folder for one server. It is reserved until this value is dropped.
#[derive(Debug)]
pub(crate) struct ServerFolder {
    pub(crate) home: PathBuf,
    folder: PathBuf,
    /// Locked file that marks the folder as used.
    _alive: File,
}

impl ServerFolder {
    pub(crate) async fn create() -> io::Result<Self> {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

        let base = base_folder();
        fs::create_dir_all(&base)?;
        let _lock = lock(&base.join("lock")).await?;
        remove_abandoned(&base);
        let template = prepare_template(&base).await?;
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = base.join(format!("{}-{number}", process::id()));
        let home = folder.join("pg");
        fs::create_dir_all(&home)?;
        let alive = open(&folder.join("alive"))?;
        alive.try_lock().map_err(io::Error::from)?;
        copy(&template, &home.join("data"))?;
        Ok(Self {
            home,
            folder,
            _alive: alive,
        })
    }
}

impl Drop for ServerFolder {
    fn drop(&mut self) {
        // The server may still be writing. The next test server removes remaining files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the settings of a test server. Commits survive the processes of a test and need not
/// survive a crash of the system.
pub(crate) fn settings(home: &Path) -> Settings {
    Settings {
        durable: false,
        max_connections: 400,
        ..Settings::new(home)
    }
}

/// Returns the target directory of this build. Returns the temporary directory of the system if the
/// account of the server cannot reach the former.
fn base_folder() -> PathBuf {
    let target = env::current_exe().ok().and_then(|program| {
        program
            .ancestors()
            .find(|folder| folder.join("CACHEDIR.TAG").is_file())
            .map(|target| target.join("testkit"))
    });
    // The socket path in this folder must not be too long. Linux has process ids up to 4194304.
    let longest_home = |base: &Path| base.join("4194304-00/pg");
    target
        .filter(|base| settings(&longest_home(base)).check().is_ok())
        .unwrap_or_else(|| env::temp_dir().join("hayward-testkit"))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

/// Takes the lock. It polls instead of blocking, because the holder may be a task of this thread.
async fn lock(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    let result = until("the lock of the test folders", async || {
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => None,
            result => Some(result),
        }
    });
    result.await?;
    Ok(file)
}

fn remove_abandoned(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let folder = entry.path();
        // Only folders of servers contain this file, not the template.
        let Ok(alive) = File::open(folder.join("alive")) else {
            continue;
        };
        if alive.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// Returns the data of an initialised and stopped server. The first process that needs the data
/// creates it.
async fn prepare_template(base: &Path) -> io::Result<PathBuf> {
    let programs = binaries().map_err(io::Error::other)?;
    let version = programs.to_string_lossy().replace(['/', '.'], "-");
    let folder = base.join(format!("template{version}"));
    let (home, ready) = (folder.join("pg"), folder.join("ready"));
    if !ready.exists() {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Embedded::start(settings(&home))
            .await
            .map_err(io::Error::other)?
            .stop()
            .await;
        File::create(ready)?;
    }
    Ok(home.join("data"))
}

/// Copies a folder with `cp`, which preserves the owner and shares blocks if the file system can.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let output = Command::new("cp").arg("-a").arg(from).arg(to).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}
