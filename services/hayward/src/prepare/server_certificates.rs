//! Certificates of the fleet's authority for other programs, such as the database or a collector.
//!
//! The private key stays the same, because such a program has its own account and its administrator
//! installs the key once. Only the public certificate is renewed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};
use hayward_service::Keys;
use hayward_service::auth::{read_secret, write_atomically};
use rcgen::KeyPair;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, Executor as _};

use super::SERVICES;
use super::certificate_authority::{self, Issued};
use crate::output::note;

/// `NAME`, or `NAME=DIR` for a copy of the certificate in the directory of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Host name of the server.
    name: String,
    /// Directory for a copy of the certificate.
    copy_dir: Option<PathBuf>,
}

impl FromStr for Server {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, copy_dir) = match text.split_once('=') {
            Some((name, copy_dir)) => (name, Some(PathBuf::from(copy_dir))),
            None => (text, None),
        };
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        let starts_alphanumeric = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if !starts_alphanumeric || !name.bytes().all(is_allowed) {
            bail!("{name:?} is no host name");
        }
        let is_own_service = SERVICES.iter().any(|(service, _)| *service == name);
        if is_own_service || name == "ca" {
            bail!("{name} is a certificate of the fleet itself");
        }
        Ok(Self {
            name: name.to_owned(),
            copy_dir,
        })
    }
}

/// Writes `tls/<name>.pem`, and `tls/<name>.key` when it is missing.
///
/// # Errors
/// When a file cannot be read or written.
pub fn renew_certificates(keys: &Keys, servers: &[Server]) -> anyhow::Result<()> {
    for server in servers {
        let key = read_or_create_key(keys, server)?;
        let names = certificate_authority::subject_names(&server.name, &[]);
        let Issued { certificate, .. } =
            certificate_authority::issue(keys, &server.name, names, &key)?;
        let file = keys.dir().join(format!("tls/{}.pem", server.name));
        write_atomically(&file, &certificate, 0o644)?;
        if let Some(copy_dir) = &server.copy_dir {
            write_copy(copy_dir, &format!("{}.pem", server.name), &certificate)?;
        }
    }
    Ok(())
}

fn read_or_create_key(keys: &Keys, server: &Server) -> anyhow::Result<KeyPair> {
    let dir = keys.dir().join("tls");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let file = dir.join(format!("{}.key", server.name));
    if file.exists() {
        return KeyPair::from_pem(&read_secret(&file)?)
            .with_context(|| format!("{} is no private key", file.display()));
    }
    let key = KeyPair::generate()?;
    write_atomically(&file, &key.serialize_pem(), 0o600)?;
    Ok(key)
}

/// Writes a certificate that every account can read, regardless of the umask.
fn write_copy(copy_dir: &Path, name: &str, certificate: &str) -> anyhow::Result<()> {
    let (file, temporary) = (copy_dir.join(name), copy_dir.join(format!("{name}.fresh")));
    write_atomically(&temporary, certificate, 0o644)?;
    let result = fs::set_permissions(&temporary, fs::Permissions::from_mode(0o644))
        .and_then(|()| fs::rename(&temporary, &file));
    result.with_context(|| format!("cannot write {}", file.display()))
}

/// Makes Postgres reload its certificate if one of these certificates belongs to the database.
///
/// # Errors
/// When the database cannot be reached.
pub async fn reload_certificate(admin_url: &str, servers: &[Server]) -> anyhow::Result<()> {
    let host = PgConnectOptions::from_str(admin_url)?.get_host().to_owned();
    if !servers.iter().any(|server| server.name == host) {
        return Ok(());
    }
    let mut connection = hayward_postgres::connect_one(admin_url).await?;
    if let Err(error) = connection.execute("select pg_reload_conf()").await {
        note(&format!(
            "the database did not reload its certificate ({error}): reload it before the previous \
             certificate expires"
        ));
    }
    connection.close().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_argument_is_a_host_name_with_an_optional_directory() {
        let server: Server = "postgres=/x/y".parse().unwrap();
        assert_eq!(server.name, "postgres");
        assert_eq!(server.copy_dir.as_deref(), Some(Path::new("/x/y")));
        for bad in [
            "",
            "../x",
            "a/b",
            ".hidden",
            "rm-scheduler",
            "ca",
            "ünlesbar",
            "a b",
        ] {
            assert!(bad.parse::<Server>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_key_stays_and_the_certificate_is_renewed_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::create(dir.path().join("keys")).unwrap();
        let copy_dir = dir.path().join("copies");
        fs::create_dir(&copy_dir).unwrap();
        let text = format!("postgres={}", copy_dir.display());
        let servers = [text.parse().unwrap(), "otel-collector".parse().unwrap()];
        let read = |name: &str| fs::read_to_string(keys.dir().join("tls").join(name)).unwrap();
        renew_certificates(&keys, &servers).unwrap();
        let (key, first) = (read("postgres.key"), read("postgres.pem"));
        assert_ne!(key, read("otel-collector.key"));
        renew_certificates(&keys, &servers).unwrap();
        assert_eq!(read("postgres.key"), key);
        assert_ne!(read("postgres.pem"), first);
        let copy = copy_dir.join("postgres.pem");
        assert_eq!(fs::read_to_string(&copy).unwrap(), read("postgres.pem"));
        assert_eq!(
            fs::metadata(copy).unwrap().permissions().mode() & 0o777,
            0o644
        );
        assert_eq!(
            fs::read_dir(copy_dir).unwrap().count(),
            1,
            "no key is put there"
        );
    }
}
