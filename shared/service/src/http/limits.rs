//! How much and how long a request may take (S27). Every limit holds before parsing begins.

pub(crate) mod cpu_fairness;
pub(crate) mod cpu_timer;
pub(crate) mod expensive_routes;
pub(crate) mod failed_auth_per_address;
pub(crate) mod guarded_body;
pub(crate) mod per_caller;
mod token_bucket;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::DefaultBodyLimit;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Deepest nesting of a JSON body.
pub const MAX_JSON_DEPTH: usize = 32;
/// Largest body of an ordinary route, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Largest body of a bulk route, in bytes.
pub const MAX_BULK_BODY_BYTES: usize = 16 << 20;
/// Longest wait a long poll may ask for.
pub const MAX_LONG_POLL: Duration = Duration::from_secs(30);
/// Seconds a query may ask to wait for news.
pub const MAX_WAIT_SECONDS: u64 = 25;

/// Reads the `wait` of a query; a longer one than described is refused, as any value out of its
/// bounds is, and not cut (A9).
///
/// # Errors
/// What is no number of seconds, or more than [`MAX_WAIT_SECONDS`].
pub fn wait_seconds<'de, D: serde::Deserializer<'de>>(text: D) -> Result<u64, D::Error> {
    let seconds = <u64 as serde::Deserialize>::deserialize(text)?;
    if seconds > MAX_WAIT_SECONDS {
        let detail = format!("at most {MAX_WAIT_SECONDS} seconds");
        return Err(serde::de::Error::custom(detail));
    }
    Ok(seconds)
}

/// Where a service tells what changes, to whoever stays on the line (A7).
pub const CHANGES_ROUTE: &str = "/v1/changes";

/// Whether answers of this path go on for as long as their reader likes.
pub(crate) fn is_stream(path: &str) -> bool {
    path == CHANGES_ROUTE
}

/// The limits of one server. The defaults are those of the specification; tests shorten them.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections served at once, as far as the process may open descriptors; more wait in the
    /// kernel's queue while idle ones are closed.
    pub connections: usize,
    /// Connections from one address that have shown no good token and say nothing; beyond that the
    /// one that was silent longest is closed.
    pub connections_per_address: usize,
    /// Requests worked on at once, long polls not counted; more are answered 503.
    pub working: usize,
    /// Requests a caller may make in a second, and five times as many in a burst (S28); 0: no
    /// limit.
    pub requests_per_second: u32,
    /// Requests without a good token that are made from one address in a second, and five times as
    /// many in a burst (S28); 0: no limit.
    pub stranger_requests_per_second: u32,
    /// Requests that all of one tenant may make together in a second, and five times as many in a
    /// burst (S28); 0: no limit.
    pub tenant_requests_per_second: u32,
    /// Requests, and long polls, of one caller at once; 0: no limit.
    pub requests_at_once: u32,
    pub streams_at_once: u32,
    /// Percent of all processors that the requests of one caller may take together while it asks
    /// for more (G13); 0: no limit.
    pub processor_percent_each: u32,
    /// Costly questions worked on at once, those that wait for their turn, and how many of both
    /// may be one caller's; more are answered 429.
    pub costly_at_once: usize,
    pub costly_waiting: usize,
    pub costly_each: usize,
    /// Size of a request head, in bytes.
    pub head_bytes: usize,
    /// First byte of a head to its end.
    pub head: Duration,
    /// End of one request to the first byte of the next.
    pub idle: Duration,
    /// First byte of a body to its end.
    pub body: Duration,
    /// Longest time between two bytes that a client takes of an answer.
    pub write_stall: Duration,
    /// Time to work on a request, beyond what its body or its long poll may take.
    pub work: Duration,
    /// After the word to shut down, what requests under way may still take.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            connections_per_address: 256,
            working: 1_024,
            requests_per_second: 2_000,
            stranger_requests_per_second: 50,
            tenant_requests_per_second: 8_000,
            requests_at_once: 64,
            streams_at_once: 16,
            processor_percent_each: 12,
            costly_at_once: 8,
            costly_waiting: 64,
            costly_each: 24,
            head_bytes: 16 * 1024,
            head: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            body: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            work: Duration::from_secs(15),
            drain: Duration::from_secs(5),
        }
    }
}

/// Connections that the process has descriptors for, with some kept back for the database, files
/// and calls of its own. Raises what it may open to what the system allows it.
pub(crate) fn connection_descriptors() -> usize {
    const RESERVED: u64 = 256;
    let allowed = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < hard => {
            let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
            raised.map_or(soft, |()| hard)
        }
        Ok((soft, _)) => soft,
        Err(_) => 1_024,
    };
    usize::try_from(allowed.saturating_sub(RESERVED).max(64)).unwrap_or(usize::MAX)
}

/// Descriptors that this process has open, and how many it may: as the system says. None where it
/// does not say.
pub fn open_descriptors() -> Option<(u64, u64)> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let (most, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some((u64::try_from(open).ok()?, most))
}

/// A layer for bulk routes: bodies up to [`BULK_BODY`].
pub fn bulk_body_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(MAX_BULK_BODY_BYTES)
}

/// The body did not arrive in time.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the body did not arrive in time")]
pub struct BodyTooSlow;

/// A body that must be complete before a deadline, however many small pieces it comes in.
pub(crate) struct BodyDeadline {
    body: Body,
    timeout: Duration,
    /// Made at the first look, which happens inside the runtime.
    until: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl BodyDeadline {
    pub(crate) fn new(body: Body, timeout: Duration) -> Self {
        Self {
            body,
            timeout,
            until: None,
        }
    }
}

impl HttpBody for BodyDeadline {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            Poll::Pending => {
                let timeout = self.timeout;
                let until = self
                    .until
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                match until.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(BodyTooSlow.into()))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether brackets nest deeper than [`DEPTH`]. Brackets in strings do not count.
pub fn nests_too_deep(json: &[u8]) -> bool {
    let (mut depth, mut text, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'[' | b'{' if !text => depth += 1,
            b']' | b'}' if !text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_JSON_DEPTH {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(!nests_too_deep(nested(MAX_JSON_DEPTH).as_bytes()));
        assert!(nests_too_deep(nested(MAX_JSON_DEPTH + 1).as_bytes()));
        assert!(!nests_too_deep(
            format!("[\"\\\"{}\"]", "[".repeat(99)).as_bytes()
        ));
        assert!(!nests_too_deep("{},".repeat(99).as_bytes()));
    }
}
