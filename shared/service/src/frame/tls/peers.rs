//! When the certificates end of those whom a service asks: its database, its collector (T8).
//!
//! Their drivers judge a certificate when they connect, and tell nothing of it. So each is looked
//! at from outside: as Postgres has it until TLS is agreed on, or as a client of the collector
//! would begin. Nothing is said over that connection, so nobody has to be believed on it: a
//! certificate that has ended, or a stranger's, is read like any other. Whom to believe is for the
//! drivers to judge (S25). What was seen last stands until something else is: whoever does not
//! answer shows no other certificate either.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Url;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Life, validity};
use crate::clock::{Clock as _, SystemClock};
use crate::frame::database::Place;
use crate::metrics::catalogue::{PEER, PEER_CERTIFICATE_LEFT, PEER_CERTIFICATE_LIFE, SERVICE};
use crate::metrics::{Reading, board};
use crate::settings::FrameSettings;

/// How often each is looked at. A certificate lives for weeks, and one that was renewed should not
/// be called old for long.
const LOOK: Duration = Duration::from_mins(1);
/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// What asks Postgres for TLS: the length of the message, and the number that means it.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Those of one service.
#[derive(Debug, Default)]
pub(in crate::frame) struct Peers(Vec<Peer>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Peer {
    /// As the attribute has it.
    whose: &'static str,
    host: String,
    port: u16,
    /// It is asked for TLS first, and may say no.
    asked: bool,
}

impl Peers {
    pub(in crate::frame) fn of(settings: &FrameSettings) -> Self {
        let database = settings.database_url.as_deref().and_then(database);
        let collector = settings.otlp_endpoint.as_deref().and_then(collector);
        Self(database.into_iter().chain(collector).collect())
    }

    /// Looks at them for ever.
    pub(in crate::frame) async fn keep(&self, name: &'static str) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let seen = tell(name);
        let mut tick = tokio::time::interval(LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            for peer in &self.0 {
                match look(peer).await {
                    Ok(Some(life)) => drop(seen.lock().insert(peer.whose, life)),
                    Ok(None) => drop(seen.lock().remove(peer.whose)),
                    Err(error) => tracing::debug!(
                        %error, peer = peer.whose, "its certificate cannot be looked at now"
                    ),
                }
            }
        }
    }
}

fn database(url: &str) -> Option<Peer> {
    let place = Place::of(url).filter(|place| !place.is_socket())?;
    if place.sslmode.as_deref() == Some("disable") {
        return None;
    }
    Some(Peer {
        whose: "database",
        host: place.host,
        port: place.port,
        asked: true,
    })
}

fn collector(url: &str) -> Option<Peer> {
    let url = Url::parse(url).ok().filter(|url| url.scheme() == "https")?;
    Some(Peer {
        whose: "collector",
        host: url.host_str()?.to_owned(),
        port: url.port_or_known_default()?,
        asked: false,
    })
}

type Seen = Arc<Mutex<BTreeMap<&'static str, Life>>>;

/// By the clock of whoever asks, for certificates age by themselves.
fn tell(name: &'static str) -> Seen {
    let seen = Seen::default();
    let shown = Arc::clone(&seen);
    board::ask(name, "peers", move || {
        let now_ms = SystemClock.now().unix_ms();
        readings(name, &shown.lock(), now_ms)
    });
    seen
}

fn readings(name: &'static str, seen: &BTreeMap<&'static str, Life>, now_ms: i64) -> Vec<Reading> {
    let told = seen.iter().flat_map(|(peer, life)| {
        let whose = || vec![SERVICE.is(name), PEER.is(*peer)];
        let (left, all) = life.seconds(now_ms);
        [
            PEER_CERTIFICATE_LEFT.reads(left, whose()),
            PEER_CERTIFICATE_LIFE.reads(all, whose()),
        ]
    });
    told.collect()
}

/// None of one that speaks without TLS.
///
/// # Errors
/// When it does not answer, or not as TLS has it.
async fn look(peer: &Peer) -> io::Result<Option<Life>> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    tokio::time::timeout(PATIENCE, shown_by(peer))
        .await
        .map_err(late)?
}

async fn shown_by(peer: &Peer) -> io::Result<Option<Life>> {
    let host = peer.host.trim_start_matches('[').trim_end_matches(']');
    let mut stream = TcpStream::connect((host, peer.port)).await?;
    if peer.asked {
        stream.write_all(&SSL_REQUEST).await?;
        if stream.read_u8().await? != b'S' {
            return Ok(None);
        }
    }
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut stream = connector()?.connect(name, stream).await?;
    let certificates = stream.get_ref().1.peer_certificates();
    let life = certificates
        .and_then(<[_]>::first)
        .and_then(|first| validity::of(first));
    // Taking leave in order: to a database that is hung up on, each look would be worth a line.
    stream.shutdown().await?;
    Ok(life)
}

fn connector() -> io::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let schemes = provider
        .signature_verification_algorithms
        .supported_schemes();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Reads(schemes)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Believes everybody, for nothing is told to them.
#[derive(Debug)]
struct Reads(Vec<SignatureScheme>);

impl ServerCertVerifier for Reads {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Of a year long past, signed by nobody.
    fn acceptor() -> TlsAcceptor {
        let mut params = rcgen::CertificateParams::new(["db".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 31);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
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

    /// Answers one who comes with `first`, or at once with TLS; and gives back what was said over
    /// that, which ends in order or not at all.
    async fn served(first: Option<u8>) -> (u16, tokio::task::JoinHandle<io::Result<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let said = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            if let Some(first) = first {
                let mut asked = [0; 8];
                stream.read_exact(&mut asked).await?;
                assert_eq!(asked, SSL_REQUEST);
                stream.write_u8(first).await?;
            }
            let mut said = Vec::new();
            if first.is_none_or(|first| first == b'S') {
                let mut stream = acceptor().accept(stream).await?;
                stream.read_to_end(&mut said).await?;
            }
            Ok(said)
        });
        (port, said)
    }

    fn database_at(port: u16) -> Peer {
        database(&format!(
            "postgres://a@127.0.0.1:{port}/b?sslmode=verify-full"
        ))
        .unwrap()
    }

    #[tokio::test]
    async fn t8_a_certificate_that_has_ended_is_read_and_nothing_is_said() {
        let (port, said) = served(Some(b'S')).await;
        let life = look(&database_at(port)).await.unwrap().unwrap();
        assert_eq!(life.to_ms - life.from_ms, 30 * 24 * 3600 * 1000);
        // An end without taking leave would be an error here.
        assert_eq!(said.await.unwrap().unwrap(), Vec::<u8>::new());

        let (port, said) = served(None).await;
        let peer = collector(&format!("https://127.0.0.1:{port}")).unwrap();
        assert_eq!(look(&peer).await.unwrap(), Some(life));
        assert_eq!(said.await.unwrap().unwrap(), Vec::<u8>::new());
    }

    #[tokio::test]
    async fn one_that_speaks_no_tls_has_none_and_one_that_is_gone_is_an_error() {
        let (port, said) = served(Some(b'N')).await;
        assert_eq!(look(&database_at(port)).await.unwrap(), None);
        said.await.unwrap().unwrap();
        look(&database_at(port)).await.unwrap_err();
    }

    #[test]
    fn who_is_looked_at() {
        let of = |database: &str, collector: &str| {
            let settings = FrameSettings {
                database_url: Some(database.to_owned()),
                otlp_endpoint: Some(collector.to_owned()),
                ..FrameSettings::default()
            };
            let peers = Peers::of(&settings).0.into_iter();
            peers
                .map(|peer| format!("{} {}:{}", peer.whose, peer.host, peer.port))
                .collect::<Vec<_>>()
        };
        let tls = "postgres://a@db/b?sslmode=verify-full";
        assert_eq!(
            of(tls, "https://otel:4318"),
            ["database db:5432", "collector otel:4318"]
        );
        let socket = "postgres://a@localhost/b?host=/run/pg";
        assert!(of(socket, "http://127.0.0.1:4318").is_empty());
        assert!(of("postgres://a@db/b?sslmode=disable", "").is_empty());
    }

    #[test]
    fn t8_what_is_left_is_told_of_each() {
        let life = Life {
            from_ms: 10_000,
            to_ms: 100_000,
        };
        let seen = BTreeMap::from([("database", life)]);
        let told = readings("test", &seen, 105_000);
        let values: Vec<f64> = told.iter().map(|reading| reading.value).collect();
        assert_eq!(values, [-5.0, 90.0]);
        assert!(told[0].attributes.contains(&PEER.is("database")));
    }
}
