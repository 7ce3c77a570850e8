//! The certificate authority of the fleet, and the certificates that it signs.
//!
//! `tls/ca.pem` is public and identifies the services. `tls/ca.key` stays on the machine that
//! prepares the fleet. `tls/<service>.pem` and `.key` belong to one service. The authority is made
//! once. Certificates are renewed each time, and running services reload them. (D11)

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use hayward_service::auth::{read_secret, write_atomically};
use hayward_service::client::CA_IN_KEYS;
use hayward_service::{Clock as _, Keys, SystemClock};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use sha2::{Digest as _, Sha256};

use super::SERVICES;

/// Days of validity of the authority.
const AUTHORITY_DAYS: i64 = 3650;
/// Days of validity of a certificate. `prepare --keep` renews certificates before they expire.
pub const CERTIFICATE_DAYS: i64 = 30;
const DAY: std::time::Duration = std::time::Duration::from_hours(24);
/// Days before the current time from which a certificate is already valid, because clocks of nodes
/// differ.
const SKEW_DAYS: u32 = 1;

/// Private key of the authority, in the keys directory.
const KEY_FILE: &str = "tls/ca.key";

/// Makes the authority when it is missing, and a new certificate for each service. The certificates
/// are valid for this machine, the name of the service, and `names`: hosts or addresses.
///
/// # Errors
/// When a name is not allowed in a certificate, or a file cannot be read or written.
pub fn renew_certificates(keys: &Keys, names: &[String]) -> anyhow::Result<()> {
    for (service, _) in SERVICES {
        let issued = issue(
            keys,
            service,
            subject_names(service, names),
            &KeyPair::generate()?,
        )?;
        let file = |kind: &str| keys.dir().join(format!("tls/{service}.{kind}"));
        // Between the two writes, key and certificate do not match. A service that reads them then
        // waits for the second write.
        write_atomically(&file("key"), &issued.key, 0o600)?;
        write_atomically(&file("pem"), &issued.certificate, 0o644)?;
    }
    Ok(())
}

/// A key and its certificate, as PEM.
pub(super) struct Issued {
    pub key: String,
    pub certificate: String,
}

/// Returns the subject names of a program: its name, this machine, and others.
pub(super) fn subject_names(name: &str, others: &[String]) -> Vec<String> {
    let own_names = [name, "localhost", "127.0.0.1", "::1"].map(str::to_owned);
    own_names
        .into_iter()
        .chain(others.iter().cloned())
        .collect()
}

/// Makes the authority when it is missing, and signs a certificate.
pub(super) fn issue(
    keys: &Keys,
    name: &str,
    alternative_names: Vec<String>,
    key: &KeyPair,
) -> anyhow::Result<Issued> {
    let issuer = open_or_create_authority(keys)?;
    let mut params =
        CertificateParams::new(alternative_names).context("a name in a certificate")?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    set_validity(&mut params, CERTIFICATE_DAYS);
    let certificate = params.signed_by(key, &issuer)?.pem();
    Ok(Issued {
        key: key.serialize_pem(),
        certificate,
    })
}

/// Makes a new authority. The previous one stays trusted. The new authority signs when
/// [`renew_certificates`] is next called. Running services need a moment to read it first.
///
/// # Errors
/// When a file cannot be written.
pub fn replace_authority(keys: &Keys) -> anyhow::Result<()> {
    let bundle = keys.dir().join(CA_IN_KEYS);
    let bundle_text = fs::read_to_string(&bundle).unwrap_or_default();
    // The newest certificate is first. Older ones are no longer trusted after this call.
    let newest = bundle_text
        .split_inclusive(CERTIFICATE_END)
        .next()
        .unwrap_or_default();
    create_authority(keys, newest.trim_start()).map(drop)
}

/// Last line of a certificate in PEM.
const CERTIFICATE_END: &str = "-----END CERTIFICATE-----";

fn open_or_create_authority(keys: &Keys) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let file = keys.dir().join(KEY_FILE);
    if !file.exists() {
        return create_authority(keys, "");
    }
    let key = KeyPair::from_pem(&read_secret(&file)?)
        .with_context(|| format!("{} is no private key", file.display()))?;
    Ok(Issuer::new(authority_params(&key), key))
}

fn create_authority(
    keys: &Keys,
    old_certificate: &str,
) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let dir = keys.dir().join("tls");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let key = KeyPair::generate()?;
    let params = authority_params(&key);
    let certificate = params.self_signed(&key)?.pem();
    let bundle = format!("{}\n{old_certificate}", certificate.trim_end());
    // The public part is written first, so that every service can verify the new authority.
    write_atomically(&keys.dir().join(CA_IN_KEYS), &bundle, 0o644)?;
    write_atomically(&keys.dir().join(KEY_FILE), &key.serialize_pem(), 0o600)?;
    Ok(Issuer::new(params, key))
}

/// Describes an authority. Its name derives from its key, so that two authorities have different
/// names and one keeps its name.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let digest = Sha256::digest(key.der_bytes());
    let key_hash = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = format!("Hayward fleet {key_hash:08x}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, AUTHORITY_DAYS);
    params
}

fn set_validity(params: &mut CertificateParams, days: i64) {
    let now_ms = u64::try_from(SystemClock.now().unix_ms()).unwrap_or(0);
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_millis(now_ms);
    let days = u32::try_from(days).unwrap_or(1);
    params.not_before = (now - DAY * SKEW_DAYS).into();
    params.not_after = (now + DAY * days).into();
}

/// Returns true if the certificates have lived a third of their life, or are missing.
pub fn is_renewal_due(dir: &Path) -> bool {
    SERVICES.iter().any(|(service, _)| {
        let file = dir.join(format!("tls/{service}.pem"));
        let written = fs::metadata(file).and_then(|file| file.modified());
        let age = written.ok().and_then(|at| at.elapsed().ok());
        age.is_none_or(|age| age > DAY * u32::try_from(CERTIFICATE_DAYS / 3).unwrap_or(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_stays_trusted_when_another_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::create(dir.path()).unwrap();
        let bundle = || fs::read_to_string(dir.path().join(CA_IN_KEYS)).unwrap();
        assert!(is_renewal_due(dir.path()));
        renew_certificates(&keys, &["fleet.example".to_owned(), "192.0.2.7".to_owned()]).unwrap();
        assert!(!is_renewal_due(dir.path()));
        let first = bundle();
        let certificate = fs::read_to_string(dir.path().join("tls/blocklist.pem")).unwrap();
        renew_certificates(&keys, &[]).unwrap();
        assert_eq!(bundle(), first);
        assert_ne!(
            fs::read_to_string(dir.path().join("tls/blocklist.pem")).unwrap(),
            certificate
        );
        replace_authority(&keys).unwrap();
        assert!(bundle().ends_with(first.trim_end()) && bundle().len() > first.len());
        // The third authority replaces the first.
        replace_authority(&keys).unwrap();
        assert_eq!(bundle().matches(CERTIFICATE_END).count(), 2);
        assert!(!bundle().contains(first.trim_end()));
        let result = renew_certificates(&keys, &["ünlesbar".to_owned()]);
        assert!(result.is_err());
    }
}
