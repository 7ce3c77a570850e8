//! Room for connections, and what happens when there is none left.
//!
//! A fleet keeps thousands of connections open between two requests. While there is room they cost
//! little and stay; when there is none, those that ask for nothing make room for those that do, so
//! that neither a large fleet nor ten thousand idle strangers (F39) shut the door on an operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::http::limits::Limits;

/// How long a connection may ask for nothing while others find no room.
const IDLE_UNDER_PRESSURE: Duration = Duration::from_secs(1);

/// Who is in, counted, and whether the others must hurry.
pub(crate) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    /// So much room must be free again before idle connections may stay longer: a sixteenth.
    resume_at: usize,
    full: AtomicBool,
    changed: Notify,
}

impl ConnectionLimit {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(connections)),
            resume_at: (connections / 16).max(1),
            full: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Waits for room, and presses idle connections to leave where there is none.
    pub(crate) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            if self.permits.available_permits() >= self.resume_at {
                self.full.store(false, Ordering::Relaxed);
            }
            return Some(permit);
        }
        if !self.full.swap(true, Ordering::Relaxed) {
            tracing::warn!("no room for another connection: idle ones are closed");
        }
        self.changed.notify_waiters();
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// How long a connection may be idle now.
    pub(crate) fn idle(&self, limits: &Limits) -> Duration {
        if self.full.load(Ordering::Relaxed) {
            limits.idle.min(IDLE_UNDER_PRESSURE)
        } else {
            limits.idle
        }
    }

    /// Ends when somebody found no room after this was called.
    pub(crate) fn pressure(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_server_shortens_the_idle_timeout_until_connections_are_free() {
        let (connection_limit, limits) = (ConnectionLimit::new(2), Limits::default());
        let first = connection_limit.enter().await.unwrap();
        let second = connection_limit.enter().await.unwrap();
        assert_eq!(connection_limit.idle(&limits), limits.idle);
        let pressure = connection_limit.pressure();
        let (third, ()) = tokio::join!(connection_limit.enter(), async {
            pressure.await;
            assert_eq!(connection_limit.idle(&limits), IDLE_UNDER_PRESSURE);
            drop(first);
        });
        assert!(third.is_some());
        assert_eq!(
            connection_limit.idle(&limits),
            IDLE_UNDER_PRESSURE,
            "there is no relief yet"
        );
        drop((second, third));
        let _fourth = connection_limit.enter().await.unwrap();
        assert_eq!(connection_limit.idle(&limits), limits.idle);
    }
}
