//! Where a client's token comes from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;

use super::Authority;
use crate::runtime::file_watch::Watched;

/// Where a client's token comes from. A file is read again when it changed, so that tokens can be
/// renewed under a running process.
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
    /// None until it could be read, or was replaced.
    watched: Mutex<Option<Watched<Arc<str>>>>,
}

impl TokenSource {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            authority: None,
        }
    }

    /// Whose signature under a certificate is believed by who shows this token, unless the
    /// environment names another; see [`super::CA_FILE`]. A token that lies in a keys directory
    /// comes with the authority that lies there.
    #[must_use]
    pub fn trusting(mut self, authority: Option<Authority>) -> Self {
        self.authority = authority;
        self
    }

    /// Whom to believe, if anybody is named.
    pub fn authority(&self) -> Option<Authority> {
        let next_to_token = || match &self.kind {
            Kind::File(file) => super::trust::ca_next_to(&file.path).map(Authority::File),
            Kind::None | Kind::Fixed(_) => None,
        };
        Authority::from_env()
            .or_else(|| self.authority.clone())
            .or_else(next_to_token)
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

    /// Shows this token from now on, until its file changes.
    pub fn replace(&self, token: &str) {
        if let Kind::File(file) = &self.kind {
            file.replace(token);
        }
    }

    /// # Errors
    /// When the file cannot be read and never could; a token read before is kept.
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
