//! Timeouts of a connection: idle, request head, and a client that does not read its response.
//!
//! The server library has one timeout for the idle time and the head together. Here the stream
//! reports bytes, and the service reports begin and end of requests. The connection is dropped at a
//! deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection_limit::ConnectionLimit;
use crate::http::limits::Limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The connection is between two requests, or before the first.
    Idle,
    /// A request head has begun and is not complete.
    Head,
    /// A request is in progress and has its own timeouts.
    Busy,
}

struct State {
    phase: Phase,
    /// Start of the phase. In the idle phase, a later write moves it.
    since: Instant,
    /// Time since which the client has read no byte. `None` while it reads.
    stalled_since: Option<Instant>,
}

/// Timer that the stream and the service of one connection share.
pub(crate) struct ConnectionTimer {
    state: Mutex<State>,
    changed: Notify,
}

impl ConnectionTimer {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            phase: Phase::Idle,
            since: Instant::now(),
            stalled_since: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        let mut state = self.state.lock();
        (state.phase, state.since) = (phase, Instant::now());
        drop(state);
        self.changed.notify_one();
    }

    fn record_read(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Idle {
            (state.phase, state.since) = (Phase::Head, Instant::now());
            drop(state);
            self.changed.notify_one();
        }
    }

    fn record_write<T>(&self, result: &Poll<T>) {
        let mut state = self.state.lock();
        match (result.is_pending(), state.stalled_since) {
            (true, None) => state.stalled_since = Some(Instant::now()),
            (false, Some(_)) => state.stalled_since = None,
            // The library may send the end of a response after the request. The idle time begins
            // after this write.
            (false, None) if state.phase == Phase::Idle => {
                state.since = Instant::now();
                return;
            }
            _ => return,
        }
        drop(state);
        self.changed.notify_one();
    }

    fn deadline(&self, limits: &Limits, connection_limit: &ConnectionLimit) -> Option<Instant> {
        let state = self.state.lock();
        let phase = match state.phase {
            Phase::Idle => Some(state.since + connection_limit.idle_timeout(limits)),
            Phase::Head => Some(state.since + limits.head_timeout),
            Phase::Busy => None,
        };
        let stall = state
            .stalled_since
            .map(|since| since + limits.write_timeout);
        [phase, stall].into_iter().flatten().min()
    }

    /// Waits until a deadline has passed.
    pub(crate) async fn wait_for_deadline(
        &self,
        limits: &Limits,
        connection_limit: &ConnectionLimit,
    ) {
        loop {
            // The subscription comes before reading the deadline, so that no change is missed.
            let pressure = connection_limit.pressure();
            let deadline = self.deadline(limits, connection_limit);
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return;
            }
            let sleep = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = pressure => {}
                () = sleep => {}
            }
        }
    }
}

/// A stream that reports reads and writes to the timer.
pub(crate) struct TimedStream<S> {
    pub(crate) stream: S,
    pub(crate) timer: Arc<ConnectionTimer>,
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.timer.record_read();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.timer.record_write(&result);
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.timer.record_write(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
