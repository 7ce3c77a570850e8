//! Files that may change under a running process: whether one is still the one that was read.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use parking_lot::Mutex;

/// A file is looked at again at most this often: a revocation works within the 5 s of S8.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// What changes when a file is written again or another takes its place; none when there is none.
pub(crate) type Stamp = Option<(SystemTime, u64, u64)>;

pub(crate) fn stamp_of(path: &Path) -> std::io::Result<Stamp> {
    match std::fs::metadata(path) {
        Ok(file) => Ok(Some((file.modified()?, file.len(), file.ino()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a file says, read again when it changed. One that can no longer be read keeps what it said:
/// forgetting keys or revocations because a disk hiccups would be the wrong way to fail.
pub(crate) struct Watched<T> {
    path: PathBuf,
    read: fn(&Path) -> anyhow::Result<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    says: Arc<T>,
    stamp: Stamp,
    looked: Instant,
}

impl<T> Watched<T> {
    pub(crate) fn open(
        path: PathBuf,
        read: fn(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        // The stamp first: a change between the two is then seen at the next look.
        let stamp =
            stamp_of(&path).with_context(|| format!("cannot look at {}", path.display()))?;
        let state = State {
            says: Arc::new(read(&path)?),
            stamp,
            looked: Instant::now(),
        };
        Ok(Self {
            path,
            read,
            state: Mutex::new(state),
        })
    }

    pub(crate) fn now(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= LOOK_AFTER {
            self.look(&mut state);
        }
        Arc::clone(&state.says)
    }

    fn look(&self, state: &mut State<T>) {
        state.looked = Instant::now();
        let fresh = || -> anyhow::Result<Option<(Stamp, T)>> {
            let stamp = stamp_of(&self.path)?;
            if stamp == state.stamp {
                return Ok(None);
            }
            Ok(Some((stamp, (self.read)(&self.path)?)))
        };
        match fresh() {
            Ok(None) => {}
            Ok(Some((stamp, says))) => (state.stamp, state.says) = (stamp, Arc::new(says)),
            Err(error) => tracing::error!(
                error = format!("{error:#}"), path = %self.path.display(),
                "a file cannot be read again; what it said before holds"
            ),
        }
    }

    #[cfg(test)]
    pub(crate) fn look_again(&self) {
        self.look(&mut self.state.lock());
    }
}
