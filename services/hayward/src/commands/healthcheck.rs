//! `hayward healthcheck URL`: does it answer 200? For containers that have no other program to ask
//! with. It is run every few seconds, so it is one connection by hand: no TLS, no redirects.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, bail};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// What to ask, as in `http://127.0.0.1:7400/readyz`.
    #[arg(value_name = "URL")]
    pub url: String,
    /// Seconds to wait for the answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = limit())]
    pub timeout: u64,
}

fn limit() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (host, path) = parts(&arguments.url)?;
    let limit = Duration::from_secs(arguments.timeout);
    let address = host
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .with_context(|| format!("there is no address {host}"))?;
    let mut stream = TcpStream::connect_timeout(&address, limit)
        .with_context(|| format!("cannot reach {host}"))?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    // In one piece, as a server that reads once would like it.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    // `HTTP/1.1 200`
    let mut start = [0; 12];
    stream
        .read_exact(&mut start)
        .with_context(|| format!("{host} did not answer"))?;
    let start = String::from_utf8_lossy(&start);
    match start
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split_once(' '))
    {
        Some((_, "200")) => Ok(()),
        Some((_, status)) => bail!("{} answered {status}", arguments.url),
        None => bail!("{host} does not speak HTTP"),
    }
}

/// Host with port, and path.
fn parts(url: &str) -> anyhow::Result<(String, String)> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("{url:?} does not begin with http://")
    };
    if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
        bail!("{url:?} has blanks in it");
    }
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let named = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if named {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    Ok((host, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_address_has_a_host_a_port_and_a_path() {
        let read = |url: &str| parts(url).unwrap();
        assert_eq!(read("http://a:1/readyz"), ("a:1".into(), "/readyz".into()));
        assert_eq!(read("http://a"), ("a:80".into(), "/".into()));
        assert!(parts("https://a").is_err() && parts("http://a/b c").is_err());
    }

    #[test]
    fn only_200_is_healthy() {
        for (answer, healthy) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", false),
            ("what do you want?", false),
            ("", false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/readyz", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    let mut piece = [0; 256];
                    let length = stream.read(&mut piece).unwrap();
                    assert!(length > 0, "the request broke off: {asked:?}");
                    asked.extend_from_slice(&piece[..length]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8_lossy(&asked).into_owned()
            });
            let asked = run(&Arguments { url, timeout: 3 });
            assert_eq!(asked.is_ok(), healthy, "{answer:?}: {asked:?}");
            assert!(
                server
                    .join()
                    .unwrap()
                    .starts_with("GET /readyz HTTP/1.1\r\n")
            );
        }
    }
}
