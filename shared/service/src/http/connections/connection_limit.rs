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
const IDLE_IN_A_CROWD: Duration = Duration::from_secs(1);

/// Who is in, counted, and whether the others must hurry.
pub(crate) struct Crowd {
    room: Arc<Semaphore>,
    /// So much room must be free again before idle connections may stay longer: a sixteenth.
    relief: usize,
    full: AtomicBool,
    changed: Notify,
}

impl Crowd {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(connections)),
            relief: (connections / 16).max(1),
            full: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Waits for room, and presses idle connections to leave where there is none.
    pub(crate) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
            if self.room.available_permits() >= self.relief {
                self.full.store(false, Ordering::Relaxed);
            }
            return Some(permit);
        }
        if !self.full.swap(true, Ordering::Relaxed) {
            tracing::warn!("no room for another connection: idle ones are closed");
        }
        self.changed.notify_waiters();
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// How long a connection may be idle now.
    pub(crate) fn idle(&self, limits: &Limits) -> Duration {
        if self.full.load(Ordering::Relaxed) {
            limits.idle.min(IDLE_IN_A_CROWD)
        } else {
            limits.idle
        }
    }

    /// Ends when somebody found no room after this was called.
    pub(crate) fn pressed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_room_shortens_idling_until_there_is_relief() {
        let (crowd, limits) = (Crowd::new(2), Limits::default());
        let first = crowd.enter().await.unwrap();
        let second = crowd.enter().await.unwrap();
        assert_eq!(crowd.idle(&limits), limits.idle);
        let pressed = crowd.pressed();
        let (third, ()) = tokio::join!(crowd.enter(), async {
            pressed.await;
            assert_eq!(crowd.idle(&limits), IDLE_IN_A_CROWD);
            drop(first);
        });
        assert!(third.is_some());
        assert_eq!(
            crowd.idle(&limits),
            IDLE_IN_A_CROWD,
            "there is no relief yet"
        );
        drop((second, third));
        let _fourth = crowd.enter().await.unwrap();
        assert_eq!(crowd.idle(&limits), limits.idle);
    }
}
