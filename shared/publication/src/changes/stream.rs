//! Writes changes as server-sent events or as one document. The next batch is read only after the
//! reader has taken the last one, so nothing accumulates for a slow reader. A connection that
//! stalls too long is closed (S27), and the reader continues from its last event.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;
use tokio::time::Instant;

use super::reader::{EndReason, Reader, VisibleChange};
use crate::Cursor;

/// Interval of bookmarks. The API promises at most 15 seconds (A7).
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(10);
/// Size in bytes after which a chunk is written. One change may exceed it.
const CHUNK_BYTES: usize = 64 * 1024;
/// Minimum time between two batches, because a busy service commits hundreds of times a second.
const MIN_PAUSE: Duration = Duration::from_millis(50);

pub fn event_stream(reader: Reader) -> Response {
    let events = Events {
        changes: VecDeque::new(),
        // The first bookmark tells the reader where it starts.
        next_bookmark: Instant::now(),
        batch_end: reader.position,
        is_ended: false,
        reader,
    };
    let events = unfold(events, |mut events| async move {
        let chunk = events.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), events))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

struct Events {
    reader: Reader,
    /// Changes of the last batch that are not written yet. All of them are before `batch_end`.
    changes: VecDeque<VisibleChange>,
    batch_end: Cursor,
    /// Time of the next bookmark.
    next_bookmark: Instant,
    is_ended: bool,
}

impl Events {
    /// Returns the next chunk of events. Returns `None` after the event `end`.
    async fn next(&mut self) -> Option<String> {
        let mut text = String::new();
        if self.is_ended {
            return None;
        }
        while self.changes.is_empty() {
            if Instant::now() >= self.next_bookmark {
                return Some(self.write_bookmark());
            }
            if let Err(end) = self.read_batch().await {
                self.is_ended = true;
                let data = serde_json::json!({ "reason": end.code() });
                write_event(&mut text, "end", &data.to_string(), None);
                return Some(text);
            }
        }
        while text.len() < CHUNK_BYTES
            && let Some(change) = self.changes.pop_front()
        {
            // Only the last event of a commit has an id to continue from.
            let next = self.changes.front().map(|next| next.revision);
            let id = (next != Some(change.revision)).then_some(Cursor {
                revision: change.revision,
                ..self.batch_end
            });
            let event = if change.object.is_some() {
                "changed"
            } else {
                "removed"
            };
            write_event(&mut text, event, &change_json(&change), id);
        }
        Some(text)
    }

    fn write_bookmark(&mut self) -> String {
        self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
        let data = serde_json::json!({ "revision": self.batch_end.revision }).to_string();
        let mut text = String::new();
        write_event(&mut text, "bookmark", &data, Some(self.batch_end));
        text
    }

    /// Reads the next batch. Waits at most until the next bookmark.
    async fn read_batch(&mut self) -> Result<(), EndReason> {
        let (changes, more) = self.reader.next_batch()?;
        self.batch_end = self.reader.position;
        if changes.is_empty() && more {
            // No change of a full batch is visible to the caller. Other tasks may run before the
            // next batch.
            tokio::task::yield_now().await;
        }
        if changes.is_empty() && !more {
            self.reader.wait(self.next_bookmark).await?;
            tokio::select! {
                () = self.reader.context.shutdown.wait() => {}
                () = tokio::time::sleep(MIN_PAUSE) => {}
            }
        }
        self.changes = changes.into();
        Ok(())
    }
}

fn write_event(text: &mut String, event: &str, data: &str, id: Option<Cursor>) {
    // Writing to a String cannot fail, and JSON on one line contains no line break.
    let _ = writeln!(text, "event: {event}\ndata: {data}");
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    text.push('\n');
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn change_json(change: &VisibleChange) -> String {
    let (revision, kind, id) = (
        change.revision,
        json_string(change.kind),
        json_string(&change.id),
    );
    let removed = change.object.is_none();
    let mut text =
        format!("{{\"revision\":{revision},\"kind\":{kind},\"id\":{id},\"removed\":{removed}");
    if let Some(object) = &change.object {
        let _ = write!(text, ",\"object\":{}", join_lines(object.get()));
    }
    text.push('}');
    text
}

/// Joins the lines of a body. Bodies come from the database unchanged, and a line break would end
/// the event.
fn join_lines(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

/// Returns the JSON document of a long poll.
pub fn json_document(changes: &[VisibleChange], position: Cursor) -> String {
    let changes: Vec<String> = changes.iter().map(change_json).collect();
    format!(
        "{{\"changes\":[{}],\"revision\":{},\"cursor\":\"{position}\"}}",
        changes.join(","),
        position.revision
    )
}
