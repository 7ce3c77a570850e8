//! The keys directory: one issuer, and one token per file.
//!
//! Files: `issuer.pem` (private), `issuer.pub.pem`, `revoked`, `tenants`, `tokens/<name>.token`.
//! Secret files are readable by their owner only. Creating keys never overwrites existing files.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::spki::der::zeroize::Zeroizing;
use ed25519_dalek::pkcs8::{EncodePrivateKey as _, EncodePublicKey as _};
use hayward_vocabulary::UserName;

use super::{Groups, Issuer, Scope, Verifier, tenants};
use crate::runtime::clock::{Clock, random_bytes};

const PRIVATE_KEY_FILE: &str = "issuer.pem";
const PUBLIC_KEYS_FILE: &str = "issuer.pub.pem";

const PEM_END: &str = "-----END PUBLIC KEY-----";

/// A new key pair of the issuer. Tokens are signed with it only after [`Keys::install`].
pub struct NewIssuerKey {
    private: Zeroizing<String>,
    public: String,
}

impl NewIssuerKey {
    fn generate() -> anyhow::Result<Self> {
        let key = SigningKey::from_bytes(&random_bytes());
        let private = key.to_pkcs8_pem(LineEnding::LF).ok();
        let public = key.verifying_key().to_public_key_pem(LineEnding::LF).ok();
        Ok(Self {
            private: private.context("cannot encode a key")?,
            public: public.context("cannot encode a key")?,
        })
    }
}

/// A keys directory.
#[derive(Debug, Clone)]
pub struct Keys {
    dir: PathBuf,
}

impl Keys {
    /// Creates the directory and the issuer if they are missing.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn create(dir: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let keys = Self { dir: dir.into() };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let tokens = keys.dir.join("tokens");
        builder
            .create(&tokens)
            .with_context(|| format!("cannot make {}", tokens.display()))?;
        if !keys.dir.join(PRIVATE_KEY_FILE).exists() {
            let issuer = NewIssuerKey::generate()?;
            // The public key is written first, because an issuer is useless without it.
            keys.write_public_keys(&issuer, "")?;
            keys.install(&issuer)?;
        }
        Ok(keys)
    }

    /// Adds a public key and preserves the newest existing one. Tokens of both keys are accepted.
    /// Tokens of older keys are refused.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn publish_new_key(&self) -> anyhow::Result<NewIssuerKey> {
        let file = self.dir.join(PUBLIC_KEYS_FILE);
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let newest = text.split_inclusive(PEM_END).next().unwrap_or_default();
        let issuer = NewIssuerKey::generate()?;
        self.write_public_keys(&issuer, newest.trim_start())?;
        Ok(issuer)
    }

    fn write_public_keys(&self, issuer: &NewIssuerKey, older_keys: &str) -> anyhow::Result<()> {
        let text = format!("{}\n{older_keys}", issuer.public.trim_end());
        write_atomically(&self.dir.join(PUBLIC_KEYS_FILE), &text, 0o644)
    }

    /// Signs with this key from now on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn install(&self, issuer: &NewIssuerKey) -> anyhow::Result<()> {
        write_atomically(&self.dir.join(PRIVATE_KEY_FILE), &issuer.private, 0o600)
    }

    /// Opens an existing directory. A service needs only the public key and its own token.
    ///
    /// # Errors
    /// When there is no issuer.
    pub fn open(dir: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let keys = Self { dir: dir.into() };
        let public = keys.dir.join(PUBLIC_KEYS_FILE);
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

    /// Opens the issuer, which signs tokens.
    ///
    /// # Errors
    /// When the private key is missing, unreadable, or readable by others.
    pub fn issuer(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Issuer> {
        Issuer::new(self.dir.join(PRIVATE_KEY_FILE), clock)
    }

    /// Opens the verifier of tokens.
    ///
    /// # Errors
    /// When the public key or the revocation list cannot be read.
    pub fn verifier(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Verifier> {
        let verifier = Verifier::new(
            self.dir.join(PUBLIC_KEYS_FILE),
            Some(self.revoked_path()),
            clock,
        )?;
        verifier.with_tenants(self.tenants_path())
    }

    /// Revokes the token with this id.
    ///
    /// # Errors
    /// When the list cannot be read or written.
    pub fn revoke(&self, id: &str) -> anyhow::Result<()> {
        let path = self.revoked_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let mut lines: Vec<_> = text.lines().collect();
        if !lines.iter().any(|line| line.trim() == id) {
            lines.push(id);
        }
        write_atomically(&path, &format!("{}\n", lines.join("\n")), 0o644)
    }

    /// Returns the path of the file of tenants, with a tenant and a user per line. Services read it
    /// again within two seconds.
    pub fn tenants_path(&self) -> PathBuf {
        self.dir.join("tenants")
    }

    /// Moves a user into this tenant, or out of all tenants.
    ///
    /// # Errors
    /// When the file cannot be read or written, or the name of the user is invalid.
    pub fn set_tenant(&self, user: &str, tenant: Option<&UserName>) -> anyhow::Result<()> {
        let user = UserName::new(user)?;
        let path = self.tenants_path();
        let mut tenant_by_user = tenants::read(&path)?;
        match tenant {
            Some(tenant) => tenant_by_user.insert(user.to_string(), tenant.clone()),
            None => tenant_by_user.remove(user.as_str()),
        };
        write_atomically(&path, &tenants::render(&tenant_by_user), 0o600)
    }

    /// Returns the path of the revocation list, with one `jti` per line. Services read it again
    /// within two seconds.
    pub fn revoked_path(&self) -> PathBuf {
        self.dir.join("revoked")
    }

    /// Returns the names of the existing tokens, sorted.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn token_names(&self) -> anyhow::Result<Vec<String>> {
        let dir = self.dir.join("tokens");
        let files = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        let token_name = |file: fs::DirEntry| {
            let name = file.file_name().into_string().ok()?;
            name.strip_suffix(".token").map(str::to_owned)
        };
        let mut names: Vec<_> = files
            .filter_map(Result::ok)
            .filter_map(token_name)
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    pub fn token_path(&self, name: &str) -> PathBuf {
        self.dir.join("tokens").join(format!("{name}.token"))
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When the file is missing, unreadable, or readable by others.
    pub fn token(&self, name: &str) -> anyhow::Result<String> {
        Ok(read_secret(&self.token_path(name))?.trim().to_owned())
    }

    /// Creates a token for `subject` in `tokens/<name>.token`. An older token there is replaced.
    ///
    /// # Errors
    /// If the name would leave the directory, or the token cannot be signed or written.
    pub fn write_token(&self, name: &str, spec: &TokenSpec<'_>) -> anyhow::Result<String> {
        hayward_vocabulary::UserName::new(name).context("a token file needs a plain name")?;
        let token = self.issuer(Arc::clone(&spec.clock))?.mint_with_groups(
            spec.subject,
            spec.scopes,
            &spec.groups,
            spec.life_ms,
        )?;
        write_atomically(&self.token_path(name), &token, 0o600)?;
        Ok(token)
    }
}

/// Content of a token file.
pub struct TokenSpec<'a> {
    pub subject: &'a str,
    pub scopes: &'a [Scope],
    pub groups: Groups,
    /// Lifetime in milliseconds.
    pub life_ms: u64,
    pub clock: Arc<dyn Clock>,
}

/// Writes a file atomically: renames a new file over the old one.
///
/// # Errors
/// If the file cannot be written.
pub fn write_atomically(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let temporary = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a file that only its owner can read.
///
/// # Errors
/// If the file is missing, unreadable, or readable by others.
pub fn read_secret(path: &Path) -> anyhow::Result<String> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    // The lowest six bits are the permissions of the group and of all other users.
    ensure!(
        metadata.permissions().mode().trailing_zeros() >= 6,
        "{} can be read by others; `chmod 600` it",
        path.display()
    );
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
