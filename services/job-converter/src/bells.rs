//! Waking those who wait for one piece of work, and nobody else.
//!
//! A bell exists only while somebody listens. Ringing says that something *may* have changed; the
//! listener looks for itself, so a bell too many does no harm. Bells ring when a change is applied,
//! which is before it is committed: who reads what is published waits for the revision rung, and
//! for the commit in flight when it began to listen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::watch;
use uuid::Uuid;

#[derive(Default)]
pub struct Bells {
    hung: Mutex<FxHashMap<Uuid, watch::Sender<u64>>>,
    count: AtomicUsize,
}

impl Bells {
    /// Rings with the revision at which the change will be visible.
    pub fn ring(&self, work: Uuid, revision: u64) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(bell) = self.hung.lock().get(&work) {
            bell.send_replace(revision);
        }
    }

    pub fn listen(self: &Arc<Self>, work: Uuid) -> Ear {
        let mut hung = self.hung.lock();
        self.count.fetch_add(1, Ordering::AcqRel);
        let heard = hung
            .entry(work)
            .or_insert_with(|| watch::Sender::new(0))
            .subscribe();
        Ear {
            bells: self.clone(),
            work,
            heard,
        }
    }
}

/// Someone who listens. Dropped, the bell comes down with its last listener.
pub struct Ear {
    bells: Arc<Bells>,
    work: Uuid,
    heard: watch::Receiver<u64>,
}

impl Ear {
    /// Waits for the next ring after this ear was made or last heard one.
    pub async fn heard(&mut self) -> u64 {
        // The sender stays as long as this ear is there.
        let _ = self.heard.changed().await;
        *self.heard.borrow_and_update()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut hung = self.bells.hung.lock();
        self.bells.count.fetch_sub(1, Ordering::AcqRel);
        if hung
            .get(&self.work)
            .is_some_and(|bell| bell.receiver_count() <= 1)
        {
            hung.remove(&self.work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ring_is_heard_by_who_listened_before_and_leaves_nothing_behind() {
        let bells = Arc::new(Bells::default());
        let work = Uuid::nil();
        bells.ring(work, 1);
        let (mut one, mut two) = (bells.listen(work), bells.listen(work));
        bells.ring(work, 7);
        assert_eq!((one.heard().await, two.heard().await), (7, 7));
        drop(one);
        bells.ring(work, 8);
        assert_eq!(two.heard().await, 8);
        drop(two);
        assert!(bells.hung.lock().is_empty());
    }
}
