//! Source of the token of a client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;

use super::Authority;
use crate::runtime::file_watch::Watched;

/// Source of the token of a client. A file is read again when it changes, so that tokens can be
/// renewed in a running process.
#[derive(Clone)]
pub struct TokenSource {
    kind: Kind,
    authority: Option<Authority>,
}

#[derive(Clone)]
enum Kind {
    None,
    Fixed(Arc<str>),
    File(Arc<TokenFile>),
}

struct TokenFile {
    path: PathBuf,
    /// Content of the file. `None` before the first read.
    watched: Mutex<Option<Watched<Arc<str>>>>,
}

impl TokenSource {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            authority: None,
        }
    }

    /// Sets the certificate authority to trust. [`super::CA_FILE`] in the environment has
    /// precedence. Without either, a token file in a keys directory uses the authority of that
    /// directory.
    #[must_use]
    pub fn with_authority(mut self, authority: Option<Authority>) -> Self {
        self.authority = authority;
        self
    }

    /// Returns the certificate authority to trust. Returns `None` if there is none.
    pub fn authority(&self) -> Option<Authority> {
        let from_keys_directory = || match &self.kind {
            Kind::File(file) => super::trust::authority_for_token(&file.path).map(Authority::File),
            Kind::None | Kind::Fixed(_) => None,
        };
        Authority::from_env()
            .or_else(|| self.authority.clone())
            .or_else(from_keys_directory)
    }

    pub fn none() -> Self {
        Self::new(Kind::None)
    }

    pub fn fixed(token: impl AsRef<str>) -> Self {
        Self::new(Kind::Fixed(token.as_ref().trim().into()))
    }

    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(Kind::File(Arc::new(TokenFile {
            path: path.into(),
            watched: Mutex::default(),
        })))
    }

    /// Uses this token until its file changes. This has no effect without a file.
    pub fn replace(&self, token: &str) {
        if let Kind::File(file) = &self.kind {
            file.replace(token);
        }
    }

    /// Returns the current token.
    ///
    /// # Errors
    /// If the file was never readable. Otherwise the last token is used.
    pub fn current(&self) -> anyhow::Result<Option<Arc<str>>> {
        match &self.kind {
            Kind::None => Ok(None),
            Kind::Fixed(token) => Ok(Some(Arc::clone(token))),
            Kind::File(file) => file.current().map(Some),
        }
    }
}

impl TokenFile {
    fn replace(&self, token: &str) {
        let mut watched = self.watched.lock();
        *watched = Some(Watched::with_value(self.path.clone(), read, token.into()));
    }

    fn current(&self) -> anyhow::Result<Arc<str>> {
        let mut watched = self.watched.lock();
        let watched = match &mut *watched {
            Some(watched) => watched,
            None => watched.insert(Watched::open(self.path.clone(), read)?),
        };
        Ok(Arc::clone(&watched.latest()))
    }
}

fn read(path: &Path) -> anyhow::Result<Arc<str>> {
    let token = std::fs::read_to_string(path);
    let token = token.with_context(|| format!("cannot read the token in {}", path.display()))?;
    Ok(token.trim().into())
}
