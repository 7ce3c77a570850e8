//! The error of a failed database connection, with a hint. The driver reports the failure. This
//! module adds which part of the address is wrong and how to correct it.

use std::fmt::Write as _;
use std::str::FromStr;

use rustls::CertificateError;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

/// SQLSTATE for a missing database.
pub(crate) const NO_SUCH_DATABASE: &str = "3D000";
/// SQLSTATE for a client that the server does not let in.
const INVALID_AUTHORIZATION: &str = "28000";

/// Returns the SQLSTATE of an error.
pub(crate) fn sql_state(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Error of a failed connection to the database.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConnectError {
    message: String,
    #[source]
    source: sqlx::Error,
}

impl ConnectError {
    /// Creates the error. The password is removed from the address.
    pub(crate) fn new(url: &str, source: sqlx::Error) -> Self {
        let message = match PgConnectOptions::from_str(url) {
            Ok(options) => describe(&options, &source),
            Err(_) => "the address of the database cannot be used".to_owned(),
        };
        Self { message, source }
    }

    /// Returns the error of the driver.
    pub fn driver_error(&self) -> &sqlx::Error {
        &self.source
    }
}

fn describe(options: &PgConnectOptions, error: &sqlx::Error) -> String {
    let address = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let mut text = format!("cannot connect to the database at {address}");
    if let Some(reason) = explain(options, error) {
        // Writing to a string never fails.
        let _ = write!(text, ": {reason}");
    }
    text
}

fn explain(options: &PgConnectOptions, error: &sqlx::Error) -> Option<String> {
    let host = options.get_host();
    let file = root_certificate(options);
    // The option is a path, or the certificates themselves in PEM, which begin with dashes.
    if let Some(file) = file.as_deref().filter(|file| !file.is_empty())
        && !file.starts_with("-----")
        && let Err(error) = std::fs::metadata(file)
    {
        return Some(format!("`sslrootcert` names {file}: {error}"));
    }
    match error {
        sqlx::Error::Io(error) => {
            let tls = error.get_ref()?.downcast_ref()?;
            Some(explain_tls_error(tls, host, file.as_deref()))
        }
        sqlx::Error::Tls(error) if error.to_string().contains("does not support TLS") => Some(
            "it speaks no TLS, and the address asks for it (`sslmode`): the server needs `ssl = \
             on` with a certificate and a key"
                .to_owned(),
        ),
        // The server reports a missing `pg_hba.conf` line for connections without TLS.
        sqlx::Error::Database(error)
            if error.code().as_deref() == Some(INVALID_AUTHORIZATION)
                && error.message().contains("no encryption") =>
        {
            Some(
                "it accepts only TLS: add `?sslmode=verify-full&sslrootcert=FILE` to the \
                 address, with the file of the authority that signed its certificate"
                    .to_owned(),
            )
        }
        _ => None,
    }
}

/// Returns the file with trusted authorities in these options.
fn root_certificate(options: &PgConnectOptions) -> Option<String> {
    let url = options.to_url_lossy();
    let mut pairs = url.query_pairs();
    let (_, file) = pairs.find(|(name, _)| name == "sslrootcert")?;
    // The driver writes a path as `file: /path`.
    let plain = file.strip_prefix("file: ").map(ToOwned::to_owned);
    Some(plain.unwrap_or_else(|| file.into_owned()))
}

fn explain_tls_error(error: &rustls::Error, host: &str, file: Option<&str>) -> String {
    let rustls::Error::InvalidCertificate(reason) = error else {
        return format!("TLS with it fails: {error}");
    };
    match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => match file {
            Some(file) => format!(
                "its certificate is not signed by an authority in {file}, which `sslrootcert` of \
                 the address names"
            ),
            None => "its certificate is not signed by a public authority, and the address names \
                     no other: add `sslrootcert=FILE`"
                .to_owned(),
        },
        CertificateError::NotValidForName => explain_wrong_name(host, &[]),
        CertificateError::NotValidForNameContext { presented, .. } => {
            explain_wrong_name(host, presented)
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has ended: renew it, and let the server read it again \
             (`select pg_reload_conf()`)"
                .to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: check the clocks of both machines".to_owned()
        }
        other => format!("its certificate is not accepted: {other}"),
    }
}

/// Describes a certificate that is valid for other hosts. `names` are its names in the notation of
/// `rustls`: `DnsName("db")`, `IpAddress(::1)`.
fn explain_wrong_name(host: &str, names: &[String]) -> String {
    let plain = |name: &String| {
        let inner = name.split_once('(');
        let inner = inner.and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"').to_owned()
    };
    let valid_names = if names.is_empty() {
        "another name".to_owned()
    } else {
        names.iter().map(plain).collect::<Vec<_>>().join(", ")
    };
    format!(
        "its certificate is for {valid_names}, and not for {host}: reach it by a name that stands \
         in its certificate"
    )
}
