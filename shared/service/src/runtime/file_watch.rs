//! Values from files that are read again when the files change. The files are checked by their
//! metadata when the value is used, at most once a second.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;

use crate::locks::Mutex;

/// Minimum time between two checks of a file. A revocation must take effect within 5 s (S8).
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Modification time, length and inode. `None` if the file does not exist.
type FileVersion = Option<(SystemTime, u64, u64)>;

fn version_of(path: &Path) -> anyhow::Result<FileVersion> {
    match std::fs::metadata(path) {
        Ok(file) => Ok(Some((file.modified()?, file.len(), file.ino()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
    }
}

type ReadFn<T> = Box<dyn Fn() -> anyhow::Result<T> + Send + Sync>;

/// A value read from files, and read again when one of them changes. If the files become
/// unreadable, the last value stays, because a disk fault must not drop keys or revocations.
pub(crate) struct Watched<T> {
    paths: Vec<PathBuf>,
    read: ReadFn<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    versions: Vec<FileVersion>,
    checked_at: Instant,
    /// Reason why the files are unreadable now. Each reason is logged once.
    fault: Option<String>,
}

impl<T: 'static> Watched<T> {
    /// Opens a file and reads the value.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn open(
        path: PathBuf,
        read: fn(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        let paths = vec![path.clone()];
        Self::open_all(paths, move || read(&path))
    }

    /// Opens files that are read together, such as a certificate and its key.
    ///
    /// # Errors
    /// If one of the files cannot be read.
    pub(crate) fn open_all(
        paths: Vec<PathBuf>,
        read: impl Fn() -> anyhow::Result<T> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        // The versions are read first, so that a change in between is detected at the next check.
        let versions = versions_of(&paths)?;
        let value = read()?;
        Ok(Self::new(paths, Box::new(read), value, versions))
    }

    /// Creates the value without reading the file. It is used until the file changes.
    pub(crate) fn with_value(
        path: PathBuf,
        read: fn(&Path) -> anyhow::Result<T>,
        value: T,
    ) -> Self {
        let paths = vec![path.clone()];
        let versions = versions_of(&paths).unwrap_or_else(|_| vec![None]);
        Self::new(paths, Box::new(move || read(&path)), value, versions)
    }

    fn new(paths: Vec<PathBuf>, read: ReadFn<T>, value: T, versions: Vec<FileVersion>) -> Self {
        let state = State {
            value: Arc::new(value),
            versions,
            checked_at: Instant::now(),
            fault: None,
        };
        Self {
            paths,
            read,
            state: Mutex::new(state),
        }
    }

    /// Returns the value, which is at most a second old.
    pub(crate) fn get(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if state.checked_at.elapsed() >= CHECK_INTERVAL {
            self.check(&mut state);
        }
        Arc::clone(&state.value)
    }

    /// Returns the current value. The files are checked at once.
    pub(crate) fn latest(&self) -> Arc<T> {
        let mut state = self.state.lock();
        self.check(&mut state);
        Arc::clone(&state.value)
    }

    fn check(&self, state: &mut State<T>) {
        state.checked_at = Instant::now();
        match self.read_if_changed(&state.versions) {
            Ok(None) => {}
            Ok(Some((versions, value))) => {
                (state.versions, state.value) = (versions, Arc::new(value));
                tracing::info!(file = %self.paths[0].display(), "a file has changed and is read \
                    again");
            }
            Err(error) => {
                let fault = format!("{error:#}");
                if state.fault.as_ref() != Some(&fault) {
                    tracing::error!(
                        error = fault, file = %self.paths[0].display(),
                        "a file cannot be read again; its last content stays in force"
                    );
                    state.fault = Some(fault);
                }
                return;
            }
        }
        state.fault = None;
    }

    fn read_if_changed(
        &self,
        previous: &[FileVersion],
    ) -> anyhow::Result<Option<(Vec<FileVersion>, T)>> {
        let versions = versions_of(&self.paths)?;
        if versions == previous {
            return Ok(None);
        }
        Ok(Some((versions, (self.read)()?)))
    }

    #[cfg(test)]
    pub(crate) fn check_now(&self) {
        self.check(&mut self.state.lock());
    }
}

fn versions_of(paths: &[PathBuf]) -> anyhow::Result<Vec<FileVersion>> {
    paths.iter().map(|path| version_of(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_number(path: &Path) -> anyhow::Result<u32> {
        Ok(std::fs::read_to_string(path)?.trim().parse()?)
    }

    #[test]
    fn a_changed_file_is_read_again_and_the_last_value_stays_for_an_invalid_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("number");
        assert!(Watched::open(path.clone(), read_number).is_err());
        std::fs::write(&path, "1").unwrap();
        let watched = Watched::open(path.clone(), read_number).unwrap();
        std::fs::write(&path, "20").unwrap();
        assert_eq!(*watched.latest(), 20);
        std::fs::write(&path, "three").unwrap();
        assert_eq!(*watched.latest(), 20);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(*watched.latest(), 20);
        std::fs::write(&path, "4").unwrap();
        assert_eq!(*watched.latest(), 4);
    }

    #[test]
    fn an_initial_value_is_used_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("number");
        let watched = Watched::with_value(path.clone(), read_number, 7);
        assert_eq!(*watched.latest(), 7);
        std::fs::write(&path, "8").unwrap();
        assert_eq!(*watched.latest(), 8);
        let watched = Watched::with_value(path.clone(), read_number, 9);
        assert_eq!(*watched.latest(), 9);
    }
}
