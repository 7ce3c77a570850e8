//! A minimal HTTP client, so that the measurement contains mainly the cost of the service. Requests
//! are prepared bytes. Only the status and the length of a response are parsed.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// A connection for successive requests.
pub struct Connection {
    stream: BufReader<TcpStream>,
    /// Buffer for the current line of a response head.
    line: String,
    /// Buffer for the body of the last response.
    body: Vec<u8>,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(1024, stream),
            line: String::new(),
            body: Vec::new(),
        })
    }

    /// Sends a prepared request. Returns the response. A status other than 200 is an error.
    pub async fn send(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        self.stream.write_all(request).await?;
        let mut length = 0;
        let mut status = String::new();
        loop {
            self.line.clear();
            if self.stream.read_line(&mut self.line).await? == 0 {
                bail!("the service closed the connection");
            }
            let line = self.line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().context("the length of the answer")?;
            } else if status.is_empty() {
                status = line;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).await?;
        if !status.contains(" 200") {
            bail!("{status}: {}", String::from_utf8_lossy(&self.body));
        }
        Ok(&self.body)
    }
}

/// A client like [`Connection`] for a separate thread, with blocking reads.
pub struct BlockingConnection {
    stream: std::io::BufReader<std::net::TcpStream>,
}

impl BlockingConnection {
    pub fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: std::io::BufReader::new(stream),
        })
    }

    /// Sends a prepared request. A status other than 200 is an error.
    pub fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(request)?;
        let (mut status, mut length) = (String::new(), 0);
        self.stream.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            ensure!(
                self.stream.read_line(&mut line)? > 0,
                "the service closed the connection"
            );
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().context("the length of the answer")?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        ensure!(
            status.contains(" 200"),
            "{status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(())
    }
}

/// Returns a request with a body, as bytes.
pub fn build_request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
