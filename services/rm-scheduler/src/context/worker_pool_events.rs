//! The signal that a worker pool has new events.

use tokio::sync::watch;

/// Signal that wakes long polls when an event of any pool is committed. Each poll then reads its
/// own events.
pub struct PoolEventSignal(watch::Sender<()>);

impl Default for PoolEventSignal {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl PoolEventSignal {
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    pub fn notify(&self) {
        self.0.send_replace(());
    }
}
