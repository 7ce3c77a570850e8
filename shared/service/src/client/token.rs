//! Where a client's token comes from.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use parking_lot::Mutex;

use super::Authority;

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
    last: Mutex<Option<(SystemTime, Arc<str>)>>,
}

impl TokenSource {
    fn of(kind: Kind) -> Self {
        Self {
            kind,
            authority: None,
        }
    }

    /// Whose signature under a certificate is believed by who shows this token, unless the
    /// environment names another; see [`super::CA_FILE`]. A token that lies in a keys directory
    /// comes with the authority that lies there.
    #[must_use]
    pub fn believing(mut self, authority: Option<Authority>) -> Self {
        self.authority = authority;
        self
    }

    /// Whom to believe, if anybody is named.
    pub fn authority(&self) -> Option<Authority> {
        let beside = || match &self.kind {
            Kind::File(file) => super::trust::beside(&file.path).map(Authority::File),
            Kind::None | Kind::Fixed(_) => None,
        };
        Authority::by_environment()
            .or_else(|| self.authority.clone())
            .or_else(beside)
    }

    pub fn none() -> Self {
        Self::of(Kind::None)
    }

    pub fn fixed(token: impl AsRef<str>) -> Self {
        Self::of(Kind::Fixed(token.as_ref().trim().into()))
    }

    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::of(Kind::File(Arc::new(TokenFile {
            path: path.into(),
            last: Mutex::new(None),
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
        let modified = std::fs::metadata(&self.path).and_then(|file| file.modified());
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        *self.last.lock() = Some((modified, token.into()));
    }

    fn current(&self) -> anyhow::Result<Arc<str>> {
        let mut last = self.last.lock();
        let modified = std::fs::metadata(&self.path).and_then(|file| file.modified());
        let read = match (&modified, &*last) {
            (Ok(modified), Some((seen, token))) if modified == seen => {
                return Ok(Arc::clone(token));
            }
            _ => modified.and_then(|at| Ok((at, std::fs::read_to_string(&self.path)?))),
        };
        match (read, &*last) {
            (Ok((modified, text)), _) => {
                let token: Arc<str> = text.trim().into();
                *last = Some((modified, Arc::clone(&token)));
                Ok(token)
            }
            (Err(_), Some((_, token))) => Ok(Arc::clone(token)),
            (Err(error), None) => Err(error)
                .with_context(|| format!("cannot read the token in {}", self.path.display())),
        }
    }
}
