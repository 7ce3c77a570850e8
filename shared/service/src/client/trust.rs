//! Certificate authorities that a client trusts.
//!
//! A fleet has its own authority. Its certificate is in the keys directory, or in the file of
//! `HAYWARD_CA_FILE`. A file with two authorities trusts both, so that one can be replaced in a
//! running fleet (F46). Without an authority, the trust store of the system is used.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use reqwest::{Certificate, ClientBuilder};

use super::{CONNECT_TIMEOUT, IDLE_TIMEOUT};
use crate::runtime::file_watch::Watched;

/// Environment variable with the path of a file of authorities. It has precedence over the keys
/// directory.
pub const CA_FILE: &str = "HAYWARD_CA_FILE";
/// Path of the authority in a keys directory.
pub const CA_IN_KEYS: &str = "tls/ca.pem";

/// Certificates of authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The certificates are in a file, which is read again when it changes.
    File(PathBuf),
    /// The certificates are in PEM. This is for a process that may not read the file.
    Pem(Arc<str>),
}

impl Authority {
    /// Reads the authority from the environment. Returns `None` if the variable is not set.
    pub fn from_env() -> Option<Self> {
        let path = std::env::var_os(CA_FILE)?;
        (!path.is_empty()).then(|| Self::File(path.into()))
    }

    /// Returns the certificates in PEM.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn pem(&self) -> anyhow::Result<Arc<str>> {
        match self {
            Self::Pem(pem) => Ok(Arc::clone(pem)),
            Self::File(file) => std::fs::read_to_string(file)
                .map(Into::into)
                .with_context(|| format!("cannot read {}", file.display())),
        }
    }
}

/// Returns the authority of the keys directory for the path of a token, `<keys>/tokens/<file>`.
/// Returns `None` for other paths, and if the directory has no authority.
pub(super) fn authority_for_token(token: &Path) -> Option<PathBuf> {
    let tokens = token.parent()?;
    let authority = tokens.parent()?.join(CA_IN_KEYS);
    let is_in_keys_dir = tokens.file_name().is_some_and(|name| name == "tokens");
    (is_in_keys_dir && authority.exists()).then_some(authority)
}

/// An HTTP client that is rebuilt when its authorities change.
pub(super) enum HttpClient {
    Fixed(reqwest::Client),
    Watched(Box<Watched<reqwest::Client>>),
}

impl HttpClient {
    /// Creates a client for addresses without TLS.
    pub(super) fn without_tls() -> anyhow::Result<Self> {
        // The trust store of the system has hundreds of files and is not needed here.
        build(reqwest::Client::builder().tls_certs_only([])).map(Self::Fixed)
    }

    pub(super) fn with_authority(authority: Option<Authority>) -> anyhow::Result<Self> {
        let authority = match authority {
            None => return build(reqwest::Client::builder()).map(Self::Fixed),
            Some(Authority::Pem(pem)) => {
                return client_from_pem(pem.as_bytes(), "the authority").map(Self::Fixed);
            }
            Some(Authority::File(file)) => file,
        };
        Ok(Self::Watched(Box::new(Watched::open(
            authority,
            client_from_file,
        )?)))
    }

    pub(super) fn client(&self) -> reqwest::Client {
        match self {
            Self::Fixed(client) => client.clone(),
            Self::Watched(watched) => reqwest::Client::clone(&watched.get()),
        }
    }
}

fn client_from_file(authority: &Path) -> anyhow::Result<reqwest::Client> {
    let source = authority.display().to_string();
    let pem = std::fs::read(authority).with_context(|| format!("cannot read {source}"))?;
    client_from_pem(&pem, &source)
}

fn client_from_pem(pem: &[u8], source: &str) -> anyhow::Result<reqwest::Client> {
    let certificates =
        Certificate::from_pem_bundle(pem).with_context(|| format!("{source} is not PEM"))?;
    ensure!(
        !certificates.is_empty(),
        "there is no certificate in {source}"
    );
    build(reqwest::Client::builder().tls_certs_only(certificates))
}

fn build(builder: ClientBuilder) -> anyhow::Result<reqwest::Client> {
    builder
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .dns_resolver(super::resolver::RoundRobin::default())
        .user_agent(concat!("hayward/", env!("CARGO_PKG_VERSION")))
        .build()
        .context("cannot make an http client")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_found_in_the_keys_directory() {
        let keys = tempfile::tempdir().unwrap();
        let token = keys.path().join("tokens/ann.token");
        assert_eq!(authority_for_token(&token), None);
        std::fs::create_dir(keys.path().join("tls")).unwrap();
        let authority = keys.path().join(CA_IN_KEYS);
        std::fs::write(&authority, "").unwrap();
        assert_eq!(authority_for_token(&token), Some(authority));
        assert_eq!(
            authority_for_token(&keys.path().join("elsewhere/ann.token")),
            None
        );
        assert_eq!(authority_for_token(Path::new("ann.token")), None);
    }
}
