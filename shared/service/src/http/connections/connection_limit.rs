//! Limit of open connections. The idle timeout is shorter while the limit is reached.
//!
//! Thousands of agents keep connections open between two requests. At the limit, idle connections
//! are closed in favour of new ones. Idle clients cannot block an operator (F39).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::http::limits::Limits;

/// Idle timeout while the limit is reached.
const IDLE_UNDER_PRESSURE: Duration = Duration::from_secs(1);

/// Limit of open connections of one server.
pub(crate) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    /// Number of free permits from which the normal idle timeout applies again: a sixteenth of all.
    resume_at: usize,
    is_full: AtomicBool,
    /// Notified when a connection finds no free permit.
    pressure: Notify,
}

impl ConnectionLimit {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(connections)),
            resume_at: (connections / 16).max(1),
            is_full: AtomicBool::new(false),
            pressure: Notify::new(),
        }
    }

    /// Waits for a permit. If none is free, idle connections close soon.
    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            if self.permits.available_permits() >= self.resume_at {
                self.is_full.store(false, Ordering::Relaxed);
            }
            return Some(permit);
        }
        if !self.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!("the connection limit is reached: idle connections are closed");
        }
        self.pressure.notify_waiters();
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Returns the current idle timeout.
    pub(crate) fn idle_timeout(&self, limits: &Limits) -> Duration {
        if self.is_full.load(Ordering::Relaxed) {
            limits.idle_timeout.min(IDLE_UNDER_PRESSURE)
        } else {
            limits.idle_timeout
        }
    }

    /// Returns a future that ends when a connection finds no free permit after this call.
    pub(crate) fn pressure(&self) -> Notified<'_> {
        self.pressure.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_server_shortens_the_idle_timeout_until_connections_are_free() {
        let (connection_limit, limits) = (ConnectionLimit::new(2), Limits::default());
        let first = connection_limit.acquire().await.unwrap();
        let second = connection_limit.acquire().await.unwrap();
        assert_eq!(connection_limit.idle_timeout(&limits), limits.idle_timeout);
        let pressure = connection_limit.pressure();
        let (third, ()) = tokio::join!(connection_limit.acquire(), async {
            pressure.await;
            assert_eq!(connection_limit.idle_timeout(&limits), IDLE_UNDER_PRESSURE);
            drop(first);
        });
        assert!(third.is_some());
        assert_eq!(
            connection_limit.idle_timeout(&limits),
            IDLE_UNDER_PRESSURE,
            "too few are free"
        );
        drop((second, third));
        let _fourth = connection_limit.acquire().await.unwrap();
        assert_eq!(connection_limit.idle_timeout(&limits), limits.idle_timeout);
    }
}
