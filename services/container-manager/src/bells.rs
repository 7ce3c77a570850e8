//! Waking those who wait for more output of one container, and nobody else.
//!
//! A bell hangs only while somebody listens, so there are never more than open requests. It says
//! that something may have changed; the listener looks for itself.

use std::collections::HashMap;
use std::sync::Arc;

use hayward_vocabulary::AllocationId;
use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Default)]
pub struct Bells {
    hung: Mutex<HashMap<AllocationId, watch::Sender<()>>>,
}

impl Bells {
    pub fn ring(&self, container: &AllocationId) {
        if let Some(bell) = self.hung.lock().get(container) {
            bell.send_replace(());
        }
    }

    pub fn listen(self: &Arc<Self>, container: &AllocationId) -> Ear {
        let mut hung = self.hung.lock();
        let bell = hung
            .entry(container.clone())
            .or_insert_with(|| watch::Sender::new(()));
        Ear {
            bells: self.clone(),
            container: container.clone(),
            heard: bell.subscribe(),
        }
    }
}

/// Someone who listens. With the last listener the bell comes down.
pub struct Ear {
    bells: Arc<Bells>,
    container: AllocationId,
    heard: watch::Receiver<()>,
}

impl Ear {
    /// Waits for the next ring since this ear was made or last heard one.
    pub async fn heard(&mut self) {
        // The bell hangs as long as this ear is there.
        let _ = self.heard.changed().await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut hung = self.bells.hung.lock();
        // This one still counts itself.
        if hung
            .get(&self.container)
            .is_some_and(|bell| bell.receiver_count() <= 1)
        {
            hung.remove(&self.container);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ring_is_heard_by_all_who_listen_and_leaves_nothing_behind() {
        let bells = Arc::new(Bells::default());
        let id = AllocationId::new("alc_1").unwrap();
        bells.ring(&id);
        let (mut one, mut two) = (bells.listen(&id), bells.listen(&id));
        bells.ring(&id);
        one.heard().await;
        drop(one);
        two.heard().await;
        bells.ring(&id);
        two.heard().await;
        drop(two);
        assert!(bells.hung.lock().is_empty());
    }
}
