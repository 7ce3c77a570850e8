//! Where a client's token comes from.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use parking_lot::Mutex;

/// Where a client's token comes from. A file is read again when it changed, so that tokens can be
/// renewed under a running process.
#[derive(Clone)]
pub struct TokenSource(Kind);

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
    pub fn none() -> Self {
        Self(Kind::None)
    }

    pub fn fixed(token: impl AsRef<str>) -> Self {
        Self(Kind::Fixed(token.as_ref().trim().into()))
    }

    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Kind::File(Arc::new(TokenFile {
            path: path.into(),
            last: Mutex::new(None),
        })))
    }

    /// # Errors
    /// When the file cannot be read and never could; a token read before is kept.
    pub fn current(&self) -> anyhow::Result<Option<Arc<str>>> {
        match &self.0 {
            Kind::None => Ok(None),
            Kind::Fixed(token) => Ok(Some(Arc::clone(token))),
            Kind::File(file) => file.current().map(Some),
        }
    }
}

impl TokenFile {
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
