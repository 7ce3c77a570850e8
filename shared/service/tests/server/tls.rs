//! TLS, and certificates that change while connections are open (F46).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hayward_service::client::Authority;
use hayward_service::http::server;
use hayward_service::{Client, Limits, Server, ServerSettings, Shutdown, TokenSource};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::{Fixture, TIMEOUT, fixture_with, read_to_end, send_text};

/// A certificate authority, and the certificate of the server that it signs again and again.
struct TestAuthority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Self {
            issuer: create_authority(dir.path(), ""),
            dir,
        };
        ca.renew();
        ca
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Signs a new certificate and returns it.
    fn renew(&self) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.file("key"), key.serialize_pem()).unwrap();
        fs::set_permissions(self.file("key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(self.file("pem"), certificate.pem()).unwrap();
        certificate.der().clone()
    }

    /// Adds a second authority, which is trusted together with the first.
    fn add_authority(&mut self) {
        let trusted_before = fs::read_to_string(self.file("ca.pem")).unwrap();
        self.issuer = create_authority(self.dir.path(), &trusted_before);
    }

    fn settings(&self) -> ServerSettings {
        ServerSettings {
            tls_certificate: Some(self.file("pem")),
            tls_key: Some(self.file("key")),
            ..ServerSettings::default()
        }
    }

    async fn fixture(&self, limits: Limits) -> Fixture {
        fixture_with(&self.settings(), limits).await
    }

    fn client(&self, fixture: &Fixture) -> Client {
        let authority = Authority::File(self.file("ca.pem"));
        let token = TokenSource::fixed(fixture.token()).with_authority(Some(authority));
        Client::new([https_url(fixture)], token).unwrap()
    }
}

fn create_authority(dir: &Path, trusted_before: &str) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let name = format!("authority {}", trusted_before.len());
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).unwrap();
    fs::write(dir.join("ca.pem"), certificate.pem() + trusted_before).unwrap();
    Issuer::new(params, key)
}

fn https_url(fixture: &Fixture) -> String {
    format!("https://{}", fixture.address)
}

/// Returns the certificate that a new connection receives.
async fn served_certificate(ca: &TestAuthority, fixture: &Fixture) -> CertificateDer<'static> {
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(ca.file("ca.pem")).unwrap() {
        roots.add(root.unwrap()).unwrap();
    }
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain[0].clone().into_owned()
}

async fn wait_for_certificate(
    ca: &TestAuthority,
    fixture: &Fixture,
    expected: &CertificateDer<'static>,
) {
    let began = Instant::now();
    while served_certificate(ca, fixture).await != *expected {
        assert!(
            began.elapsed() < TIMEOUT,
            "the new certificate is never shown"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A plain request gets no response (S3).
#[tokio::test]
async fn only_a_client_that_trusts_the_authority_connects() {
    let ca = TestAuthority::new();
    let fixture = ca.fixture(Limits::default()).await;
    let client = ca.client(&fixture);
    let status: serde_json::Value = client.get("/v1/status").await.unwrap();
    assert_eq!(status["insecure_modes"], serde_json::json!([]));
    // Plain text is not a handshake.
    let mut stream = fixture.connect().await;
    send_text(
        &mut stream,
        &format!("{}\r\n", fixture.head("GET /v1/echo")),
    )
    .await;
    assert!(!read_to_end(&mut stream).await.contains("HTTP/1.1"));
    // A client that trusts another authority does not connect.
    let other = TestAuthority::new();
    let other = other.client(&fixture);
    let refused = other.get::<serde_json::Value>("/v1/status").await;
    assert!(refused.unwrap_err().retryable());
    // A client without a configured authority does not connect either.
    let without_authority = TokenSource::fixed(fixture.token());
    let without_authority = Client::new([https_url(&fixture)], without_authority).unwrap();
    assert!(
        without_authority
            .get::<serde_json::Value>("/v1/status")
            .await
            .is_err()
    );
}

/// Incomplete handshakes are closed (S27).
#[tokio::test]
async fn a_handshake_has_a_deadline_and_delays_no_other_client() {
    let ca = TestAuthority::new();
    let head_timeout = Duration::from_millis(500);
    let limits = Limits {
        head_timeout,
        ..Limits::default()
    };
    let fixture = ca.fixture(limits).await;
    let mut silent = Vec::new();
    for _ in 0..32 {
        let mut stream = fixture.connect().await;
        // This is only the beginning of a handshake.
        stream.write_all(&[22, 3, 1]).await.unwrap();
        silent.push(stream);
    }
    let client = ca.client(&fixture);
    assert!(client.get::<serde_json::Value>("/v1/status").await.is_ok());
    for mut stream in silent {
        let mut received = Vec::new();
        let read = stream.read_to_end(&mut received);
        let _ = tokio::time::timeout(TIMEOUT, read).await.expect("cut");
    }
}

/// No request fails during the change (F46).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_and_authority_change_under_load() {
    let mut ca = TestAuthority::new();
    let fixture = ca
        .fixture(Limits {
            requests_per_second: 0,
            ..Limits::default()
        })
        .await;
    let (stop, successes) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut load = Vec::new();
    for number in 0..4 {
        let (stop, successes) = (Arc::clone(&stop), Arc::clone(&successes));
        let mut client = ca.client(&fixture);
        let (url, token, ca_file) = (https_url(&fixture), fixture.token(), ca.file("ca.pem"));
        load.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                // Half of the clients keep their connection. The others open one for each request.
                if number % 2 == 0 {
                    let token = TokenSource::fixed(&token);
                    let token = token.with_authority(Some(Authority::File(ca_file.clone())));
                    client = Client::new([&url], token).unwrap();
                }
                let status: serde_json::Value = client.get("/v1/status").await.unwrap();
                assert_eq!(status["name"], "test");
                successes.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    let first = served_certificate(&ca, &fixture).await;
    let second = ca.renew();
    wait_for_certificate(&ca, &fixture, &second).await;
    assert_ne!(first, second);
    // The file is incomplete, as during a copy.
    fs::write(ca.file("pem"), "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(
        served_certificate(&ca, &fixture).await,
        second,
        "the broken one is not shown"
    );
    let third = ca.renew();
    wait_for_certificate(&ca, &fixture, &third).await;
    // A new authority is trusted first. It signs later.
    ca.add_authority();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let fourth = ca.renew();
    wait_for_certificate(&ca, &fixture, &fourth).await;
    let before = successes.load(Ordering::Relaxed);
    while successes.load(Ordering::Relaxed) < before + 20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(load.iter().all(|it| !it.is_finished()), "a request failed");
    }
    stop.store(true, Ordering::Relaxed);
    for client in load {
        client.await.unwrap();
    }
}

#[test]
fn a_certificate_without_key_is_an_invalid_setting() {
    let settings = ServerSettings {
        tls_certificate: Some("/nowhere".into()),
        ..ServerSettings::default()
    };
    let server = Server::new("test", None);
    assert!(server.configure(&settings).is_err());
}

/// Only loopback is served without TLS (S3).
#[tokio::test]
async fn a_reachable_listener_without_tls_is_refused() {
    let settings = ServerSettings {
        listen: "0.0.0.0:0".parse().unwrap(),
        ..ServerSettings::default()
    };
    assert!(server::bind(&settings).is_err());
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let server_task =
        Server::new("test", None).serve(axum::Router::new(), listener, Shutdown::new());
    assert!(server_task.await.is_err());
}
