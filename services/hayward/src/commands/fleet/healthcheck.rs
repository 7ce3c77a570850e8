//! `hayward healthcheck URL`: succeeds if the URL answers 200. Containers without another HTTP
//! client use this command as their health check. It needs no async runtime.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hayward_service::client::{CA_FILE, CA_IN_KEYS, install_crypto};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// URL to request, as in `https://127.0.0.1:7400/readyz`.
    #[arg(value_name = "URL")]
    pub url: String,
    /// Seconds to wait for the answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = timeout_parser())]
    pub timeout: u64,
    /// Certificate of the authority that signed the service's certificate. Default: that in the
    /// keys directory.
    #[arg(long, value_name = "FILE", env = CA_FILE)]
    pub ca: Option<PathBuf>,
    /// The keys directory.
    #[arg(long, value_name = "DIR", env = "HAYWARD_KEYS")]
    pub keys: Option<PathBuf>,
}

fn timeout_parser() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let endpoint = Endpoint::parse(&arguments.url)?;
    let timeout = Duration::from_secs(arguments.timeout);
    let host = &endpoint.host;
    let address = host
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .with_context(|| format!("there is no address {host}"))?;
    let stream = TcpStream::connect_timeout(&address, timeout)
        .with_context(|| format!("cannot reach {host}"))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let status = if endpoint.uses_tls {
        let in_keys = arguments.keys.as_ref().map(|keys| keys.join(CA_IN_KEYS));
        let authority = arguments.ca.clone().or(in_keys);
        let authority = authority
            .context("no certificate authority is trusted: name one with --ca or --keys")?;
        send_request(&endpoint, connect_tls(&endpoint, stream, &authority)?)?
    } else {
        send_request(&endpoint, stream)?
    };
    match status.as_str() {
        "200" => Ok(()),
        _ => bail!("{} answered {status}", arguments.url),
    }
}

/// Opens a TLS connection that trusts this certificate authority only.
fn connect_tls(
    endpoint: &Endpoint,
    stream: TcpStream,
    authority: &Path,
) -> anyhow::Result<StreamOwned<ClientConnection, TcpStream>> {
    install_crypto();
    let mut roots = RootCertStore::empty();
    let context = || format!("cannot read {}", authority.display());
    for certificate in CertificateDer::pem_file_iter(authority).with_context(context)? {
        roots.add(certificate.with_context(context)?)?;
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (name, _) = endpoint
        .host
        .rsplit_once(':')
        .context("a host and a port")?;
    let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
        .with_context(|| format!("{name:?} is no name of a host"))?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    Ok(StreamOwned::new(connection, stream))
}

/// Sends a request. Returns the status code of the response.
fn send_request(endpoint: &Endpoint, mut stream: impl Read + Write) -> anyhow::Result<String> {
    let Endpoint { host, path, .. } = endpoint;
    // The request is one write, for servers that read only once.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let no_response = || format!("{host} did not answer");
    stream
        .write_all(request.as_bytes())
        .with_context(no_response)?;
    let mut status_line = [0; "HTTP/1.1 200".len()];
    stream
        .read_exact(&mut status_line)
        .with_context(no_response)?;
    let status_line = String::from_utf8_lossy(&status_line);
    let status = status_line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split_once(' '));
    match status {
        Some((_, status)) => Ok(status.to_owned()),
        None => bail!("{host} does not speak HTTP"),
    }
}

/// The parts of an address.
#[derive(Debug, PartialEq, Eq)]
struct Endpoint {
    uses_tls: bool,
    /// Host and port, separated by a colon.
    host: String,
    path: String,
}

impl Endpoint {
    fn parse(url: &str) -> anyhow::Result<Self> {
        let (uses_tls, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => bail!("{url:?} begins with neither http:// nor https://"),
        };
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            bail!("{url:?} contains a blank or a control character");
        }
        let (host, path) = match rest.find('/') {
            Some(index) => rest.split_at(index),
            None => (rest, "/"),
        };
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if uses_tls { 443 } else { 80 };
        let host = if has_port {
            host.to_owned()
        } else {
            format!("{host}:{port}")
        };
        Ok(Self {
            uses_tls,
            host,
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustls::pki_types::PrivateKeyDer;

    use super::*;

    fn arguments(url: String, ca: Option<PathBuf>) -> Arguments {
        Arguments {
            url,
            timeout: 3,
            ca,
            keys: None,
        }
    }

    /// Starts a server that answers one connection with a self-signed certificate. Returns its URL
    /// and its certificate.
    fn start_tls_server() -> (String, String) {
        install_crypto();
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/livez", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            // A client that does not trust the certificate closes the connection during the
            // handshake.
            let _ = stream.read(&mut [0; 256]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        });
        (url, certified.cert.pem())
    }

    // A self-signed certificate is trusted only when it is the given authority. (D11)
    #[test]
    fn only_a_certificate_of_the_authority_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let (url, certificate) = start_tls_server();
        std::fs::write(&file, certificate).unwrap();
        run(&arguments(url, Some(file.clone()))).unwrap();

        let (url, _) = start_tls_server();
        let failure = run(&arguments(url, Some(file))).unwrap_err();
        assert!(
            format!("{failure:#}").contains("certificate"),
            "{failure:#}"
        );
        // The server answers one connection only, so each request needs a new server.
        let (url, _) = start_tls_server();
        let failure = run(&arguments(url, None)).unwrap_err().to_string();
        assert!(failure.contains("--ca"), "{failure}");
    }

    #[test]
    fn an_address_has_a_host_a_port_and_a_path() {
        let parse = |url: &str| {
            let Endpoint {
                uses_tls,
                host,
                path,
            } = Endpoint::parse(url).unwrap();
            (uses_tls, host, path)
        };
        let plain = (false, "a:1".into(), "/readyz".into());
        assert_eq!(parse("http://a:1/readyz"), plain);
        assert_eq!(parse("http://a"), (false, "a:80".into(), "/".into()));
        assert_eq!(parse("https://a"), (true, "a:443".into(), "/".into()));
        assert!(Endpoint::parse("ftp://a").is_err() && Endpoint::parse("http://a/b c").is_err());
    }

    #[test]
    fn only_status_200_is_healthy() {
        for (response, healthy) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", false),
            ("what do you want?", false),
            ("", false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/readyz", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut buffer = [0; 256];
                    let length = stream.read(&mut buffer).unwrap();
                    assert!(length > 0, "the request broke off: {request:?}");
                    request.extend_from_slice(&buffer[..length]);
                }
                stream.write_all(response.as_bytes()).unwrap();
                String::from_utf8_lossy(&request).into_owned()
            });
            let result = run(&arguments(url, None));
            assert_eq!(result.is_ok(), healthy, "{response:?}: {result:?}");
            assert!(
                server
                    .join()
                    .unwrap()
                    .starts_with("GET /readyz HTTP/1.1\r\n")
            );
        }
    }
}
