//! The keys directory: one issuer, and one token per file.
//!
//! `issuer.pem` (private), `issuer.pub.pem`, `revoked`, `tokens/<name>.token`. Everything secret is
//! for its owner's eyes alone. Nothing that is there is ever overwritten by making keys again, so
//! preparing a fleet twice is harmless.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{EncodePrivateKey as _, EncodePublicKey as _};

use super::{Groups, Issuer, Scope, Verifier};
use crate::clock::{Clock, random_bytes};

const PRIVATE: &str = "issuer.pem";
const PUBLIC: &str = "issuer.pub.pem";

/// A keys directory.
#[derive(Debug, Clone)]
pub struct Keys {
    dir: PathBuf,
}

impl Keys {
    /// Makes what is missing of the directory and its issuer.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn create(dir: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let keys = Self { dir: dir.into() };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let tokens = keys.dir.join("tokens");
        builder
            .create(&tokens)
            .with_context(|| format!("cannot make {}", tokens.display()))?;
        if !keys.dir.join(PRIVATE).exists() {
            let key = SigningKey::from_bytes(&random_bytes());
            let private = key
                .to_pkcs8_pem(LineEnding::LF)
                .ok()
                .context("cannot encode a key")?;
            let public = key
                .verifying_key()
                .to_public_key_pem(LineEnding::LF)
                .ok()
                .context("cannot encode a key")?;
            // The public half first: an issuer whose public half is missing would be of no use.
            write(&keys.dir.join(PUBLIC), &public, 0o644)?;
            write(&keys.dir.join(PRIVATE), &private, 0o600)?;
        }
        Ok(keys)
    }

    /// A directory made before. A service needs only the public half and its own token.
    ///
    /// # Errors
    /// When there is no issuer.
    pub fn open(dir: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let keys = Self { dir: dir.into() };
        let public = keys.dir.join(PUBLIC);
        ensure!(
            public.exists(),
            "there is no {}; `hayward prepare` makes the keys of a fleet",
            public.display()
        );
        Ok(keys)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// # Errors
    /// When the private key is missing, unreadable, or readable by others.
    pub fn issuer(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Issuer> {
        Issuer::new(&read_secret(&self.dir.join(PRIVATE))?, clock)
    }

    /// # Errors
    /// When the public key or the revocation list cannot be read.
    pub fn verifier(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Verifier> {
        let path = self.dir.join(PUBLIC);
        let pem =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Verifier::new(&pem, Some(self.revoked_path()), clock)
    }

    /// One `jti` a line; services read it again within a second or two.
    pub fn revoked_path(&self) -> PathBuf {
        self.dir.join("revoked")
    }

    pub fn token_path(&self, name: &str) -> PathBuf {
        self.dir.join("tokens").join(format!("{name}.token"))
    }

    /// # Errors
    /// When the file is missing, unreadable, or readable by others.
    pub fn token(&self, name: &str) -> anyhow::Result<String> {
        Ok(read_secret(&self.token_path(name))?.trim().to_owned())
    }

    /// Mints a token for `subject` into `tokens/<name>.token`, in place of an older one.
    ///
    /// # Errors
    /// When the name would leave the directory, or something cannot be signed or written.
    pub fn write_token(&self, name: &str, order: &TokenOrder<'_>) -> anyhow::Result<String> {
        hayward_vocabulary::UserName::new(name).context("a token file needs a plain name")?;
        let token = self.issuer(Arc::clone(&order.clock))?.mint_in(
            order.subject,
            order.scopes,
            &order.groups,
            order.life_ms,
        )?;
        write(&self.token_path(name), &token, 0o600)?;
        Ok(token)
    }
}

/// What a token to be written shall say.
pub struct TokenOrder<'a> {
    pub subject: &'a str,
    pub scopes: &'a [Scope],
    pub groups: Groups,
    pub life_ms: u64,
    pub clock: Arc<dyn Clock>,
}

/// Written beside and renamed, so that a reader sees the old text or the new, never half of one.
fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let attempt = || -> std::io::Result<()> {
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    attempt().with_context(|| format!("cannot write {}", path.display()))
}

fn read_secret(path: &Path) -> anyhow::Result<String> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    // The six bits of group and others are the lowest.
    // The bits of group and others are the lowest six.
    ensure!(
        metadata.permissions().mode().trailing_zeros() >= 6,
        "{} can be read by others; `chmod 600` it",
        path.display()
    );
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
