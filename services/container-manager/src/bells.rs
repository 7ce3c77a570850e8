//! Waking those who wait for more output of one container or one piece of work, and nobody else.
//!
//! A bell hangs only while somebody listens, so there are never more than open requests. It says
//! that something may have changed; the listener looks for itself.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Default)]
pub struct Bells {
    /// By the id of a container or of a whole work; no id is one of both.
    hung: Mutex<HashMap<String, watch::Sender<()>>>,
}

impl Bells {
    pub fn ring(&self, of: &str) {
        if let Some(bell) = self.hung.lock().get(of) {
            bell.send_replace(());
        }
    }

    pub fn listen(self: &Arc<Self>, to: &str) -> Ear {
        let mut hung = self.hung.lock();
        let bell = hung
            .entry(to.to_owned())
            .or_insert_with(|| watch::Sender::new(()));
        Ear {
            bells: self.clone(),
            to: to.to_owned(),
            heard: bell.subscribe(),
        }
    }
}

/// Someone who listens. With the last listener the bell comes down.
pub struct Ear {
    bells: Arc<Bells>,
    to: String,
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
            .get(&self.to)
            .is_some_and(|bell| bell.receiver_count() <= 1)
        {
            hung.remove(&self.to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_notification_wakes_all_listeners_and_leaves_no_entry() {
        let bells = Arc::new(Bells::default());
        let id = "alc_1";
        bells.ring(id);
        let (mut one, mut two) = (bells.listen(id), bells.listen(id));
        bells.ring(id);
        one.heard().await;
        drop(one);
        two.heard().await;
        bells.ring(id);
        two.heard().await;
        drop(two);
        assert!(bells.hung.lock().is_empty());
    }
}
