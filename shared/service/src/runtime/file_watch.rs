//! Files that may change under a running process: whether one is still the one that was read.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;

use crate::sync::Mutex;

/// A file is looked at again at most this often: a revocation works within the 5 s of S8.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// What changes when a file is written again or another takes its place; none when there is none.
type Stamp = Option<(SystemTime, u64, u64)>;

fn stamp_of(path: &Path) -> anyhow::Result<Stamp> {
    match std::fs::metadata(path) {
        Ok(file) => Ok(Some((file.modified()?, file.len(), file.ino()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
    }
}

type Read<T> = Box<dyn Fn() -> anyhow::Result<T> + Send + Sync>;

/// What files say together, read again when one of them changed. Files that can no longer be read
/// keep what they said: forgetting keys or revocations because a disk hiccups would be the wrong
/// way to fail.
pub(crate) struct Watched<T> {
    paths: Vec<PathBuf>,
    read: Read<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    says: Arc<T>,
    stamps: Vec<Stamp>,
    looked: Instant,
    /// Why they cannot be read now: logged once, and again when the reason is another.
    fault: Option<String>,
}

impl<T: 'static> Watched<T> {
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn open(
        path: PathBuf,
        read: fn(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        let paths = vec![path.clone()];
        Self::together(paths, move || read(&path))
    }

    /// Files that only mean something together, as a certificate and its key do.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(crate) fn together(
        paths: Vec<PathBuf>,
        read: impl Fn() -> anyhow::Result<T> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        // The stamps first: a change between the two is then seen at the next look.
        let stamps = stamps_of(&paths)?;
        let says = read()?;
        Ok(Self::new(paths, Box::new(read), (says, stamps)))
    }

    /// Says this until the file changes, whether it can be read now or not.
    pub(crate) fn saying(path: PathBuf, read: fn(&Path) -> anyhow::Result<T>, says: T) -> Self {
        let paths = vec![path.clone()];
        let stamps = stamps_of(&paths).unwrap_or_else(|_| vec![None]);
        Self::new(paths, Box::new(move || read(&path)), (says, stamps))
    }

    fn new(paths: Vec<PathBuf>, read: Read<T>, (says, stamps): (T, Vec<Stamp>)) -> Self {
        let state = State {
            says: Arc::new(says),
            stamps,
            looked: Instant::now(),
            fault: None,
        };
        Self {
            paths,
            read,
            state: Mutex::new(state),
        }
    }

    /// As of at most a second ago.
    pub(crate) fn now(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= LOOK_AFTER {
            self.look(&mut state);
        }
        Arc::clone(&state.says)
    }

    /// As of this moment.
    pub(crate) fn latest(&self) -> Arc<T> {
        let mut state = self.state.lock();
        self.look(&mut state);
        Arc::clone(&state.says)
    }

    fn look(&self, state: &mut State<T>) {
        state.looked = Instant::now();
        match self.changed(&state.stamps) {
            Ok(None) => {}
            Ok(Some((stamps, says))) => {
                (state.stamps, state.says) = (stamps, Arc::new(says));
                tracing::info!(file = %self.paths[0].display(), "it changed, and is read again");
            }
            Err(error) => {
                let fault = format!("{error:#}");
                if state.fault.as_ref() != Some(&fault) {
                    tracing::error!(
                        error = fault, file = %self.paths[0].display(),
                        "a file cannot be read again; what it said before holds"
                    );
                    state.fault = Some(fault);
                }
                return;
            }
        }
        state.fault = None;
    }

    fn changed(&self, before: &[Stamp]) -> anyhow::Result<Option<(Vec<Stamp>, T)>> {
        let stamps = stamps_of(&self.paths)?;
        if stamps == before {
            return Ok(None);
        }
        Ok(Some((stamps, (self.read)()?)))
    }

    #[cfg(test)]
    pub(crate) fn look_again(&self) {
        self.look(&mut self.state.lock());
    }
}

fn stamps_of(paths: &[PathBuf]) -> anyhow::Result<Vec<Stamp>> {
    paths.iter().map(|path| stamp_of(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(path: &Path) -> anyhow::Result<u32> {
        Ok(std::fs::read_to_string(path)?.trim().parse()?)
    }

    #[test]
    fn a_file_is_read_again_when_it_changes_and_one_that_means_nothing_keeps_what_it_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("number");
        assert!(Watched::open(path.clone(), number).is_err());
        std::fs::write(&path, "1").unwrap();
        let watched = Watched::open(path.clone(), number).unwrap();
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
    fn what_replaces_a_file_holds_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("number");
        let watched = Watched::saying(path.clone(), number, 7);
        assert_eq!(*watched.latest(), 7);
        std::fs::write(&path, "8").unwrap();
        assert_eq!(*watched.latest(), 8);
        let watched = Watched::saying(path.clone(), number, 9);
        assert_eq!(*watched.latest(), 9);
    }
}
