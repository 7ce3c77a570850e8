//! Limits of requests: sizes, counts, rates and timeouts. All apply before parsing begins (S27).

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

/// Maximum depth of nesting in a JSON body.
pub const MAX_JSON_DEPTH: usize = 32;
/// Maximum size of a body of an ordinary route, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum size of a body of a bulk route, in bytes.
pub const MAX_BULK_BODY_BYTES: usize = 16 << 20;
/// Maximum time that is added to the timeout of a long poll.
pub const MAX_LONG_POLL: Duration = Duration::from_secs(30);
/// Maximum `wait` of a query, in seconds.
pub const MAX_WAIT_SECONDS: u64 = 25;

/// Deserializes the `wait` of a query. A value above the maximum is refused and not reduced (A9).
///
/// # Errors
/// If it is not a number of seconds, or more than [`MAX_WAIT_SECONDS`].
pub fn wait_seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let seconds = <u64 as serde::Deserialize>::deserialize(deserializer)?;
    if seconds > MAX_WAIT_SECONDS {
        let detail = format!("at most {MAX_WAIT_SECONDS} seconds");
        return Err(serde::de::Error::custom(detail));
    }
    Ok(seconds)
}

/// Path of the change stream (A7).
pub const CHANGES_ROUTE: &str = "/v1/changes";

/// Returns whether responses of this path are streams without an end.
pub(crate) fn is_stream(path: &str) -> bool {
    path == CHANGES_ROUTE
}

/// The limits of one server. The defaults are those of the specification. Tests shorten them.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum number of open connections, limited by the file descriptors of the process.
    /// Further connections wait in the kernel queue while idle ones are closed.
    pub connections: usize,
    /// Maximum number of silent connections of one address without a valid token. Beyond that, the
    /// connection that has been silent longest is closed.
    pub connections_per_address: usize,
    /// Maximum number of requests in progress, without long polls. Further requests get 503.
    pub in_progress: usize,
    /// Requests per second of one caller, five times as many in a burst. 0 means no limit (S28).
    pub requests_per_second: u32,
    /// Requests per second of one address without a valid token, five times as many in a burst. 0
    /// means no limit (S28).
    pub stranger_requests_per_second: u32,
    /// Requests per second of all users of a tenant, five times as many in a burst. 0 means no
    /// limit (S28).
    pub tenant_requests_per_second: u32,
    /// Maximum number of concurrent requests of one caller. 0 means no limit.
    pub requests_at_once: u32,
    /// Maximum number of concurrent long polls of one caller. 0 means no limit.
    pub streams_at_once: u32,
    /// CPU share of one caller in percent of all CPUs, while other callers are active. 0 means no
    /// limit (G13).
    pub processor_percent_each: u32,
    /// Maximum number of expensive requests in progress.
    pub expensive_at_once: usize,
    /// Maximum number of expensive requests in the queue. Further requests get 429.
    pub expensive_waiting: usize,
    /// Maximum number of expensive requests of one caller, in progress and in the queue. Further
    /// ones get 429.
    pub expensive_per_caller: usize,
    /// Maximum size of a request head, in bytes.
    pub max_head_bytes: usize,
    /// Maximum time from the first byte of a request head to its end.
    pub head_timeout: Duration,
    /// Maximum time from the end of a request to the first byte of the next one.
    pub idle_timeout: Duration,
    /// Maximum time from the first byte of a body to its end.
    pub body_timeout: Duration,
    /// Maximum time in which a client reads no byte of a response.
    pub write_timeout: Duration,
    /// Time for a handler, in addition to the time for its body or long poll.
    pub handler_timeout: Duration,
    /// Time for requests in progress after the shutdown has begun.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            connections_per_address: 256,
            in_progress: 1_024,
            requests_per_second: 2_000,
            stranger_requests_per_second: 50,
            tenant_requests_per_second: 8_000,
            requests_at_once: 64,
            streams_at_once: 16,
            processor_percent_each: 12,
            expensive_at_once: 8,
            expensive_waiting: 64,
            expensive_per_caller: 24,
            max_head_bytes: 16 * 1024,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            handler_timeout: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Returns the number of connections that the file descriptors of the process allow. Some
/// descriptors are reserved for the database, files and outgoing calls. Raises the soft limit to
/// the hard limit.
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

/// Returns the number of open file descriptors of this process and their maximum. Returns `None` if
/// the system has no `/proc`.
pub fn open_descriptors() -> Option<(u64, u64)> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let (max, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some((u64::try_from(open).ok()?, max))
}

/// Returns a layer for bulk routes, which allows bodies up to [`MAX_BULK_BODY_BYTES`].
pub fn bulk_body_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(MAX_BULK_BODY_BYTES)
}

/// The body did not arrive in time.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the body did not arrive in time")]
pub struct BodyTooSlow;

/// A body that must be complete before a deadline.
pub(crate) struct BodyDeadline {
    body: Body,
    timeout: Duration,
    /// Timer of the deadline. It is created at the first poll, which runs inside the runtime.
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl BodyDeadline {
    pub(crate) fn new(body: Body, timeout: Duration) -> Self {
        Self {
            body,
            timeout,
            deadline: None,
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
                let deadline = self
                    .deadline
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                match deadline.as_mut().poll(cx) {
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

/// Returns whether brackets nest deeper than [`MAX_JSON_DEPTH`]. Brackets in strings do not count.
pub fn nests_too_deep(json: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
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
