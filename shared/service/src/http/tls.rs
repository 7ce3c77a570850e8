//! TLS for listeners that other nodes can reach. The certificate can be replaced while connections
//! are open.
//!
//! The files of the certificate and its key are checked when a connection begins, at most once a
//! second. New connections use a valid new pair. Open connections continue with their old pair. An
//! invalid pair, for example an incompletely written one, changes nothing and is logged once (F46).
//! Callers are identified by their token. The certificate only identifies this server.

mod validity;

use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

use anyhow::{Context as _, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use crate::runtime::file_watch::Watched;

/// Validity of a certificate, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub from_ms: i64,
    pub to_ms: i64,
}

impl Validity {
    /// Returns the remaining and the total validity in seconds. The remaining validity is negative
    /// after expiry.
    pub(super) fn remaining_and_total_s(self, now_ms: i64) -> (f64, f64) {
        let seconds = |ms: i64| i32::try_from(ms / 1_000).map_or(f64::from(i32::MAX), f64::from);
        (
            seconds(self.to_ms - now_ms),
            seconds(self.to_ms - self.from_ms),
        )
    }
}

/// A certificate, its key, and the state for reading both again. Clones share them.
#[derive(Clone)]
pub(super) struct Tls {
    resolver: Arc<CertificateResolver>,
    pub(super) acceptor: TlsAcceptor,
}

/// The certificate for new connections.
struct CertificateResolver(Watched<Arc<CertifiedKey>>);

impl fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateResolver")
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.get()))
    }
}

impl Tls {
    /// Opens a certificate and its key.
    ///
    /// # Errors
    /// If a file cannot be read, or the two do not belong together.
    pub(super) fn open(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        crate::runtime::tls_provider::install_crypto();
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let files = vec![certificate.clone(), key.clone()];
        let pair = Watched::open_all(files, move || {
            read_certified_key(&certificate, &key).map(Arc::new)
        })?;
        let watched = Arc::new(CertificateResolver(pair));
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&watched) as _;
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            resolver: watched,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// Returns the validity of the current certificate. Returns `None` if it cannot be parsed. Such
    /// a certificate is used nevertheless.
    pub(super) fn validity(&self) -> Option<Validity> {
        validity::parse(self.resolver.0.get().cert.first()?)
    }
}

fn read_certified_key(certificate: &Path, key: &Path) -> anyhow::Result<CertifiedKey> {
    let path = certificate.display();
    let pem = fs::read(certificate).with_context(|| format!("cannot read {path}"))?;
    let chain = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("{path} is not PEM"))?;
    ensure!(!chain.is_empty(), "there is no certificate in {path}");
    let path = key.display();
    let pem = crate::auth::read_secret(key)?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .with_context(|| format!("there is no private key in {path}"))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider)
        .with_context(|| format!("the key in {path} is not the certificate's"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn write_pair(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        use std::os::unix::fs::PermissionsExt as _;
        let generated = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let (certificate, key) = (dir.join("a.pem"), dir.join("a.key"));
        fs::write(&certificate, generated.cert.pem()).unwrap();
        fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        (certificate, key)
    }

    fn served_certificate(tls: &Tls) -> Vec<u8> {
        tls.resolver.0.latest().cert[0].to_vec()
    }

    /// New connections use the last valid pair (F46).
    #[test]
    fn a_new_pair_is_used_and_a_broken_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = write_pair(dir.path(), "one");
        let tls = Tls::open(&certificate, &key).unwrap();
        let first = served_certificate(&tls);
        fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nbroken").unwrap();
        assert_eq!(served_certificate(&tls), first);
        // The certificate belongs to another key, as between the two writes of a renewal.
        let other = rcgen::generate_simple_self_signed(["two".to_owned()]).unwrap();
        fs::write(&certificate, other.cert.pem()).unwrap();
        assert_eq!(served_certificate(&tls), first);
        fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        assert_eq!(served_certificate(&tls), other.cert.der().to_vec());
        assert!(tls.validity().is_some());
        fs::remove_file(&certificate).unwrap();
        assert_eq!(served_certificate(&tls), other.cert.der().to_vec());
    }

    /// Only the owner may read the key file (S23).
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = write_pair(dir.path(), "one");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Tls::open(&certificate, &key).err().unwrap().to_string();
        assert!(error.contains("can be read by others"), "{error}");
    }
}
