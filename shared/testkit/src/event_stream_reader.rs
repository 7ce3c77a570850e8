//! A reader of server-sent events over a plain connection, like a browser.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Timeout of an event. Reaching it means that the event never comes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Length of the line break after a chunk.
const LINE_BREAK_BYTES: usize = 2;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name of the kind of event, such as `changed`.
    pub event: String,
    pub id: Option<String>,
    pub data: Value,
}

/// A stream of events, or the refusal of the server.
pub struct Events {
    pub status: u16,
    lines: Lines<BufReader<OwnedReadHalf>>,
    pending: VecDeque<Event>,
    /// The server sees a connected reader while this exists.
    _writer: OwnedWriteHalf,
}

impl Events {
    /// Sends `GET path` to a service at `url`, `http://address`.
    ///
    /// # Panics
    /// If no service responds there.
    pub async fn open(url: &str, path: &str, token: &str, headers: &[(&str, &str)]) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        let stream = TcpStream::connect(address).await.expect("a service");
        let (reader, mut writer) = stream.into_split();
        let headers = headers.iter().map(|(name, it)| format!("{name}: {it}\r\n"));
        let headers: String = headers.collect();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             Accept: text/event-stream\r\n{headers}\r\n"
        );
        writer.write_all(head.as_bytes()).await.expect("a request");
        let mut lines = BufReader::new(reader).lines();
        let status_line = lines.next_line().await.expect("an answer");
        let status_line = status_line.expect("a status line");
        let status = status_line.split(' ').nth(1).and_then(|it| it.parse().ok());
        while lines
            .next_line()
            .await
            .expect("a head")
            .is_some_and(|line| !line.is_empty())
        {}
        Self {
            status: status.expect("a status"),
            lines,
            pending: VecDeque::new(),
            _writer: writer,
        }
    }

    /// Returns the next event. Returns `None` at the end of the stream.
    ///
    /// # Panics
    /// If neither an event nor the end comes.
    pub async fn next(&mut self) -> Option<Event> {
        let event = tokio::time::timeout(TIMEOUT, self.read());
        event.await.expect("an event, or the end of the stream")
    }

    /// Returns the next event that is not a bookmark. Returns `None` at the end of the stream.
    ///
    /// # Panics
    /// If neither an event nor the end comes.
    pub async fn next_change(&mut self) -> Option<Event> {
        loop {
            let event = self.next().await?;
            if event.event != "bookmark" {
                return Some(event);
            }
        }
    }

    /// Reads one event. Bodies are chunked, with the size before each chunk. A chunk starts and
    /// ends with an event.
    async fn read(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            let size = self.lines.next_line().await.ok()??;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            if size == 0 {
                return None;
            }
            // A line break follows each chunk.
            let mut chunk = vec![0; size + LINE_BREAK_BYTES];
            let body = self.lines.get_mut();
            body.read_exact(&mut chunk).await.ok()?;
            let text = String::from_utf8(chunk).expect("text");
            self.pending
                .extend(text.trim_end().split("\n\n").map(parse_event));
        }
    }
}

fn parse_event(text: &str) -> Event {
    let field = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    Event {
        event: field("event").expect("a name").to_owned(),
        id: field("id").map(str::to_owned),
        data: serde_json::from_str(field("data").expect("data")).expect("JSON"),
    }
}
