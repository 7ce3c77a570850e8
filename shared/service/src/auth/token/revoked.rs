//! Revoked tokens: a file with one `jti` per line.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::runtime::file_watch::Watched;

pub(super) struct Revoked(Option<Watched<HashSet<String>>>);

impl Revoked {
    pub(super) fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let list = path.map(|path| Watched::open(path, read)).transpose()?;
        Ok(Self(list))
    }

    pub(super) fn contains(&self, jti: &str) -> bool {
        self.0.as_ref().is_some_and(|list| list.get().contains(jti))
    }

    #[cfg(test)]
    pub(super) fn check_now(&self) {
        self.0.as_ref().unwrap().check_now();
    }
}

fn read(path: &Path) -> anyhow::Result<HashSet<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let lines = text.lines().map(str::trim);
            Ok(lines
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(HashSet::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_created_later_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        let revoked = Revoked::open(Some(path.clone())).unwrap();
        assert!(!revoked.contains("one"));
        std::fs::write(&path, "one\n\n two \n").unwrap();
        revoked.check_now();
        assert!(revoked.contains("one") && revoked.contains("two") && !revoked.contains(""));
    }
}
