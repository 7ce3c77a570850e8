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
use super::authority::{self, Issued};
use crate::output::note;

/// `NAME`, or `NAME=DIR` for a copy of the certificate in the directory of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Host name of the server.
    name: String,
    place: Option<PathBuf>,
}

impl FromStr for Server {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, place) = match text.split_once('=') {
            Some((name, place)) => (name, Some(PathBuf::from(place))),
            None => (text, None),
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        let begins = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if !begins || !name.bytes().all(fits) {
            bail!("{name:?} is no host name");
        }
        let ours = SERVICES.iter().any(|(service, _)| *service == name);
        if ours || name == "ca" {
            bail!("there is a {name} of the fleet's own");
        }
        Ok(Self {
            name: name.to_owned(),
            place,
        })
    }
}

/// Writes `tls/<name>.pem`, and `tls/<name>.key` when it is missing.
///
/// # Errors
/// When a file cannot be read or written.
pub fn certificates(keys: &Keys, servers: &[Server]) -> anyhow::Result<()> {
    for server in servers {
        let key = key_of(keys, server)?;
        let names = authority::names_of(&server.name, &[]);
        let Issued { certificate, .. } = authority::issue(keys, &server.name, names, &key)?;
        let file = keys.dir().join(format!("tls/{}.pem", server.name));
        write_atomically(&file, &certificate, 0o644)?;
        if let Some(place) = &server.place {
            put(place, &format!("{}.pem", server.name), &certificate)?;
        }
    }
    Ok(())
}

fn key_of(keys: &Keys, server: &Server) -> anyhow::Result<KeyPair> {
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
fn put(place: &Path, name: &str, certificate: &str) -> anyhow::Result<()> {
    let (file, fresh) = (place.join(name), place.join(format!("{name}.fresh")));
    write_atomically(&fresh, certificate, 0o644)?;
    let put = fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644))
        .and_then(|()| fs::rename(&fresh, &file));
    put.with_context(|| format!("cannot write {}", file.display()))
}

/// Makes Postgres reload its certificate if one of these certificates belongs to the database.
///
/// # Errors
/// When the database cannot be reached.
pub async fn read_again(admin_url: &str, servers: &[Server]) -> anyhow::Result<()> {
    let host = PgConnectOptions::from_str(admin_url)?.get_host().to_owned();
    if !servers.iter().any(|server| server.name == host) {
        return Ok(());
    }
    let mut connection = hayward_postgres::connect_one(admin_url).await?;
    if let Err(error) = connection.execute("select pg_reload_conf()").await {
        note(&format!(
            "the database was not told to read its certificate again ({error}): do it before the \
             one of before ends"
        ));
    }
    connection.close().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_its_own_host_name() {
        let good: Server = "postgres=/x/y".parse().unwrap();
        assert_eq!(good.name, "postgres");
        assert_eq!(good.place.as_deref(), Some(Path::new("/x/y")));
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
        let place = dir.path().join("place");
        fs::create_dir(&place).unwrap();
        let text = format!("postgres={}", place.display());
        let servers = [text.parse().unwrap(), "otel-collector".parse().unwrap()];
        let read = |name: &str| fs::read_to_string(keys.dir().join("tls").join(name)).unwrap();
        certificates(&keys, &servers).unwrap();
        let (key, first) = (read("postgres.key"), read("postgres.pem"));
        assert_ne!(key, read("otel-collector.key"));
        certificates(&keys, &servers).unwrap();
        assert_eq!(read("postgres.key"), key);
        assert_ne!(read("postgres.pem"), first);
        let copy = place.join("postgres.pem");
        assert_eq!(fs::read_to_string(&copy).unwrap(), read("postgres.pem"));
        assert_eq!(
            fs::metadata(copy).unwrap().permissions().mode() & 0o777,
            0o644
        );
        assert_eq!(
            fs::read_dir(place).unwrap().count(),
            1,
            "no key is put there"
        );
    }
}
