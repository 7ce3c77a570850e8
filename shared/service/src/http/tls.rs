//! TLS wherever strangers could listen (D11, S3): one certificate, replaced under running traffic.
//!
//! The two files are looked at again when a connection begins, at most once a second. What is new
//! and good is shown to it; those that are open go on with what they began with. What is
//! new and broken, as the half of a pair that is just being written, changes nothing and is said
//! once (F46). The caller is known by its token; the certificate only says who we are.

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

/// From when to when a certificate is good, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub from_ms: i64,
    pub to_ms: i64,
}

impl Validity {
    /// What is left of it and how long it is in all, in seconds; below zero it is over.
    pub(super) fn seconds(self, now_ms: i64) -> (f64, f64) {
        let seconds = |ms: i64| i32::try_from(ms / 1_000).map_or(f64::from(i32::MAX), f64::from);
        (
            seconds(self.to_ms - now_ms),
            seconds(self.to_ms - self.from_ms),
        )
    }
}

/// A certificate, its key, and how both are read again. Clones share them.
#[derive(Clone)]
pub(super) struct Tls {
    resolver: Arc<CertificateResolver>,
    pub(super) acceptor: TlsAcceptor,
}

/// What new connections are shown.
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
    /// # Errors
    /// When a file cannot be read, or the two do not belong together.
    pub(super) fn open(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        crate::client::crypto::install_crypto();
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let files = vec![certificate.clone(), key.clone()];
        let pair = Watched::open_all(files, move || read(&certificate, &key).map(Arc::new))?;
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

    /// Of what new connections are shown. None where a certificate is of a kind that we cannot
    /// read, which is shown all the same.
    pub(super) fn validity(&self) -> Option<Validity> {
        validity::parse(self.resolver.0.get().cert.first()?)
    }
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<CertifiedKey> {
    let place = certificate.display();
    let pem = fs::read(certificate).with_context(|| format!("cannot read {place}"))?;
    let chain = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("{place} is not PEM"))?;
    ensure!(!chain.is_empty(), "there is no certificate in {place}");
    let place = key.display();
    let pem = crate::auth::read_secret(key)?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .with_context(|| format!("there is no private key in {place}"))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider)
        .with_context(|| format!("the key in {place} is not the certificate's"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn write(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        use std::os::unix::fs::PermissionsExt as _;
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let (certificate, key) = (dir.join("a.pem"), dir.join("a.key"));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        (certificate, key)
    }

    fn served(tls: &Tls) -> Vec<u8> {
        tls.resolver.0.latest().cert[0].to_vec()
    }

    #[test]
    fn f46_a_new_pair_is_taken_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = write(dir.path(), "one");
        let tls = Tls::open(&certificate, &key).unwrap();
        let first = served(&tls);
        fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nmoth").unwrap();
        assert_eq!(served(&tls), first);
        // The certificate of another key, as between the two writes of a renewal.
        let other = rcgen::generate_simple_self_signed(["two".to_owned()]).unwrap();
        fs::write(&certificate, other.cert.pem()).unwrap();
        assert_eq!(served(&tls), first);
        fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        assert_eq!(served(&tls), other.cert.der().to_vec());
        assert!(tls.validity().is_some());
        fs::remove_file(&certificate).unwrap();
        assert_eq!(served(&tls), other.cert.der().to_vec());
    }

    #[test]
    fn s23_a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = write(dir.path(), "one");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let told = Tls::open(&certificate, &key).err().unwrap().to_string();
        assert!(told.contains("can be read by others"), "{told}");
    }
}
