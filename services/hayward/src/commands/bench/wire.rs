//! A client that costs next to nothing, so that what is measured is the service: requests are
//! written as they were prepared, and of an answer only its status and length are looked at.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// One connection, for one request after the other.
pub struct Line {
    stream: BufReader<TcpStream>,
    head: String,
    body: Vec<u8>,
}

impl Line {
    pub async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(1024, stream),
            head: String::new(),
            body: Vec::new(),
        })
    }

    /// Sends a prepared request; anything but 200 is an error.
    pub async fn ask(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        self.stream.write_all(request).await?;
        let mut length = 0;
        let mut status = String::new();
        loop {
            self.head.clear();
            if self.stream.read_line(&mut self.head).await? == 0 {
                bail!("the service hung up");
            }
            let line = self.head.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(told) = line.strip_prefix("content-length:") {
                length = told.trim().parse().context("the length of the answer")?;
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

/// A request with a body, as bytes.
pub fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
