//! Error messages of connections that fail because of TLS (S25). The test server speaks the
//! Postgres protocol only until TLS begins, with various certificates.
#![expect(
    clippy::unwrap_used,
    reason = "a test that fails here has found something"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayward_postgres::{connect, connect_one, prepare, role_url};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const PASSWORD: &str = "sesame";

/// An authority and the file with its certificate.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let names = &mut params.distinguished_name;
        names.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let file = dir.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            file,
        }
    }

    /// Creates a TLS acceptor with a certificate for `name`, which ends with the year `last_year`.
    fn acceptor_for(&self, name: &str, last_year: i32) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(last_year, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// The TLS behaviour of the test server.
#[derive(Clone)]
enum TlsMode {
    Tls(TlsAcceptor),
    NoTls,
    /// Accepts only TLS, as if `pg_hba.conf` had only `hostssl` lines.
    TlsOnly,
}

async fn start_server(mode: TlsMode) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(handle_connection(stream, mode.clone()));
        }
    });
    port
}

async fn handle_connection(mut stream: TcpStream, mode: TlsMode) -> std::io::Result<()> {
    // An SSLRequest has 8 bytes. The response is one byte: `S` for TLS, `N` for no TLS.
    let mut request = [0; 8];
    stream.read_exact(&mut request).await?;
    match mode {
        TlsMode::NoTls => stream.write_all(b"N").await?,
        TlsMode::Tls(acceptor) => {
            stream.write_all(b"S").await?;
            // The client aborts or continues. In both cases it gets no response.
            drop(acceptor.accept(stream).await?);
        }
        TlsMode::TlsOnly => {
            // An ErrorResponse: type, length, fields that each end with a zero byte, a zero byte.
            let fields: String = [
                "SFATAL",
                "C28000",
                "Mno pg_hba.conf entry for host \"1.2.3.4\", user \"a\", no encryption",
            ]
            .map(|field| format!("{field}\0"))
            .concat();
            let length = u32::try_from(fields.len() + 5).unwrap();
            let mut message = vec![b'E'];
            message.extend(length.to_be_bytes());
            message.extend(fields.bytes());
            message.push(0);
            stream.write_all(&message).await?;
        }
    }
    Ok(())
}

/// Returns the message of a failed connection. It is the same for every kind of connection and
/// does not contain the password.
async fn connect_message(url: &str) -> String {
    let pool_message = connect(url, 1).await.unwrap_err().to_string();
    let message = connect_one(url).await.unwrap_err().to_string();
    assert_eq!(pool_message, message);
    let result = prepare(url, &[], &std::collections::BTreeMap::new()).await;
    assert_eq!(result.unwrap_err().to_string(), message);
    assert!(!message.contains(PASSWORD), "{message}");
    message
}

/// The message also names the correction (S25).
#[tokio::test]
async fn the_message_names_the_fault_of_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (
        Authority::new(dir.path(), "own"),
        Authority::new(dir.path(), "other"),
    );
    let host = "localhost";
    let address = |port: u16, host: &str, file: &Path| {
        let file = file.display();
        format!("postgres://a:{PASSWORD}@{host}:{port}/b?sslmode=verify-full&sslrootcert={file}")
    };

    let port = start_server(TlsMode::Tls(own.acceptor_for(host, 2100))).await;
    let unknown_authority = connect_message(&address(port, host, &other.file)).await;
    let expected = format!("not signed by an authority in {}", other.file.display());
    assert!(unknown_authority.contains(&expected), "{unknown_authority}");
    assert!(
        unknown_authority.contains(&format!("{host}:{port}")),
        "{unknown_authority}"
    );
    let untrusted = format!("postgres://a@{host}:{port}/b?sslmode=verify-full");
    let untrusted = connect_message(&untrusted).await;
    assert!(untrusted.contains("add `sslrootcert=FILE`"), "{untrusted}");
    let missing = connect_message(&address(port, host, &dir.path().join("none.pem"))).await;
    assert!(missing.contains("`sslrootcert` names"), "{missing}");
    assert!(missing.contains("none.pem"), "{missing}");
    let wrong_name = connect_message(&address(port, "127.0.0.1", &own.file)).await;
    let expected = "certificate is for localhost, and not for 127.0.0.1";
    assert!(wrong_name.contains(expected), "{wrong_name}");

    let port = start_server(TlsMode::Tls(own.acceptor_for(host, 2001))).await;
    let ended = connect_message(&address(port, host, &own.file)).await;
    assert!(ended.contains("certificate has ended"), "{ended}");
    assert!(ended.contains("pg_reload_conf"), "{ended}");
}

/// A service verifies the server in the same way as its administrator (S25).
#[test]
fn the_address_of_a_role_has_the_trust_settings_of_the_admin() {
    let admin = "postgres://a:b@db:5432/hayward?sslmode=verify-full&sslrootcert=/keys/tls/ca.pem";
    let url = role_url(admin, "blocklist", Some("c")).unwrap();
    assert!(
        url.starts_with("postgres://blocklist:c@db:5432/hayward?"),
        "{url}"
    );
    assert!(url.contains("sslmode=verify-full"), "{url}");
    // The address parses to the same settings again.
    assert_eq!(role_url(&url, "blocklist", Some("c")).unwrap(), url);
    assert!(url.contains("sslrootcert=%2Fkeys%2Ftls%2Fca.pem"), "{url}");
}

/// Each message names the side without TLS (S25).
#[tokio::test]
async fn a_server_and_a_client_without_tls_get_different_messages() {
    let port = start_server(TlsMode::NoTls).await;
    let url = format!("postgres://a:{PASSWORD}@localhost:{port}/b?sslmode=verify-full");
    let without = connect_message(&url).await;
    assert!(without.contains("speaks no TLS"), "{without}");

    let port = start_server(TlsMode::TlsOnly).await;
    let url = format!("postgres://a:{PASSWORD}@localhost:{port}/b?sslmode=disable");
    let refused = connect_message(&url).await;
    let expected = "accepts only TLS: add `?sslmode=verify-full";
    assert!(refused.contains(expected), "{refused}");
}
