//! The list of tokens that must not work any more: a file with one `jti` a line.
//!
//! It is read again at most each second, and only when it changed, so a revocation works within
//! the five seconds of S8 without a lookup per request. A list that can no longer be read keeps
//! its last content: forgetting revocations because a disk hiccups would be the wrong way to fail.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use parking_lot::Mutex;

const REREAD_AFTER: Duration = Duration::from_secs(1);

type Stamp = Option<(SystemTime, u64)>;

struct State {
    ids: HashSet<String>,
    stamp: Stamp,
    looked: Instant,
}

pub(super) struct Revoked {
    path: Option<PathBuf>,
    state: Mutex<State>,
}

impl Revoked {
    pub(super) fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let (ids, stamp) = match &path {
            Some(path) => {
                // The stamp first: a change between the two is then seen at the next look.
                let both = stamp_of(path).and_then(|stamp| Ok((read(path)?, stamp)));
                both.with_context(|| format!("cannot read {}", path.display()))?
            }
            None => (HashSet::new(), None),
        };
        Ok(Self {
            path,
            state: Mutex::new(State {
                ids,
                stamp,
                looked: Instant::now(),
            }),
        })
    }

    pub(super) fn contains(&self, jti: &str) -> bool {
        let mut state = self.state.lock();
        if let Some(path) = &self.path
            && state.looked.elapsed() >= REREAD_AFTER
        {
            state.looked = Instant::now();
            if let Err(error) = state.refresh(path) {
                tracing::error!(%error, path = %path.display(), "cannot read revocations again");
            }
        }
        state.ids.contains(jti)
    }

    #[cfg(test)]
    pub(super) fn look_again(&self) {
        let mut state = self.state.lock();
        if let Some(path) = &self.path {
            state.refresh(path).unwrap();
        }
    }
}

impl State {
    fn refresh(&mut self, path: &Path) -> std::io::Result<()> {
        let stamp = stamp_of(path)?;
        if stamp != self.stamp {
            self.ids = read(path)?;
            self.stamp = stamp;
        }
        Ok(())
    }
}

fn stamp_of(path: &Path) -> std::io::Result<Stamp> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some((metadata.modified()?, metadata.len()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> std::io::Result<HashSet<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let lines = text.lines().map(str::trim);
            Ok(lines
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(HashSet::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_appears_later_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        let revoked = Revoked::open(Some(path.clone())).unwrap();
        assert!(!revoked.contains("one"));
        std::fs::write(&path, "one\n\n two \n").unwrap();
        revoked.look_again();
        assert!(revoked.contains("one") && revoked.contains("two") && !revoked.contains(""));
    }
}
