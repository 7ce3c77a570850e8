//! Telemetry over TLS. The certificate of a collector is verified only with the authority in the
//! file. The file is read again when it changes (S3).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hayward_service::{ServerSettings, telemetry};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Counts of the collector: handshakes that the client refused, and received batches.
#[derive(Default)]
struct Received {
    refused: AtomicUsize,
    batches: AtomicUsize,
}

struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    received: Arc<Received>,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            match self.acceptor.accept(stream).await {
                Ok(stream) => return (stream, address),
                Err(_) => self.received.refused.fetch_add(1, Ordering::SeqCst),
            };
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Writes the certificate of a new authority to the file. Returns an acceptor with a certificate
/// for localhost that the authority signed.
fn create_authority(file: &Path) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    std::fs::write(file, params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&own, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(own.serialize_der()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// This is a single test, because a process has one subscriber.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_is_verified_with_the_current_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (trusted_file, issuer_file) = (dir.path().join("trusted.pem"), dir.path().join("own.pem"));
    drop(create_authority(&trusted_file));
    let received = Arc::new(Received::default());
    let tls = TlsListener {
        listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        acceptor: create_authority(&issuer_file),
        received: Arc::clone(&received),
    };
    let port = tls.listener.local_addr().unwrap().port();
    let counter = Arc::clone(&received);
    let receive = move || {
        counter.batches.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    let router = axum::Router::new().route("/v1/{kind}", axum::routing::post(receive));
    tokio::spawn(async move { axum::serve(tls, router).await });

    let without_tls = ServerSettings {
        otlp_endpoint: Some("http://collector.example:4318".to_owned()),
        ..ServerSettings::default()
    };
    let error = telemetry::init("test", &without_tls)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("otlp_authority"), "{error}");

    let settings = ServerSettings {
        otlp_endpoint: Some(format!("https://localhost:{port}")),
        otlp_authority: Some(trusted_file.clone()),
        otlp_interval_ms: 50,
        ..ServerSettings::default()
    };
    let telemetry = telemetry::init("test", &settings).unwrap();
    tracing::info_span!("round").in_scope(|| tracing::info!("a plan"));
    let refused = || received.refused.load(Ordering::SeqCst) > 0;
    wait_until("the collector of another authority is refused", refused).await;
    assert_eq!(received.batches.load(Ordering::SeqCst), 0);

    std::fs::copy(&issuer_file, &trusted_file).unwrap();
    let arrived = || {
        tracing::info_span!("round").in_scope(|| tracing::info!("another plan"));
        received.batches.load(Ordering::SeqCst) > 0
    };
    wait_until("the new authority is trusted", arrived).await;
    tokio::task::spawn_blocking(|| telemetry.shutdown())
        .await
        .unwrap();
}
