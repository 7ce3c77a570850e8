//! Wakes the requests that wait for one key, and no others.
//!
//! An entry exists only while a subscription to its key exists. A notification means that the state
//! *may* have changed. A waiter reads the state again, so an extra notification does no harm. A
//! service notifies when it applies a change, which is before the commit. The revision tells the
//! waiter which commit to wait for.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

pub struct KeyedNotify<K> {
    senders: Mutex<HashMap<K, watch::Sender<u64>>>,
    /// Number of open subscriptions. At 0, `notify` takes no lock.
    subscriptions: AtomicUsize,
}

impl<K> Default for KeyedNotify<K> {
    fn default() -> Self {
        Self {
            senders: Mutex::default(),
            subscriptions: AtomicUsize::new(0),
        }
    }
}

impl<K: Eq + Hash + Clone> KeyedNotify<K> {
    /// Wakes the subscriptions to a key. `revision` is the commit that makes the change visible.
    pub fn notify<Q>(&self, key: &Q, revision: u64)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if self.subscriptions.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(sender) = self.senders.lock().get(key) {
            sender.send_replace(revision);
        }
    }

    pub fn subscribe(self: &Arc<Self>, key: K) -> Subscription<K> {
        let mut senders = self.senders.lock();
        self.subscriptions.fetch_add(1, Ordering::AcqRel);
        let sender = senders
            .entry(key.clone())
            .or_insert_with(|| watch::Sender::new(0));
        let receiver = sender.subscribe();
        Subscription {
            notify: self.clone(),
            key,
            receiver,
        }
    }
}

/// Subscription to one key. The last subscription to a key removes its entry when it is dropped.
pub struct Subscription<K: Eq + Hash> {
    notify: Arc<KeyedNotify<K>>,
    key: K,
    receiver: watch::Receiver<u64>,
}

impl<K: Eq + Hash> Subscription<K> {
    /// Waits for a notification after the subscription, or after the last notification returned
    /// here.
    pub async fn changed(&mut self) -> u64 {
        // The sender outlives its subscriptions.
        let _ = self.receiver.changed().await;
        *self.receiver.borrow_and_update()
    }
}

impl<K: Eq + Hash> Drop for Subscription<K> {
    fn drop(&mut self) {
        let mut senders = self.notify.senders.lock();
        self.notify.subscriptions.fetch_sub(1, Ordering::AcqRel);
        // The receiver of this subscription is still counted.
        if senders
            .get(&self.key)
            .is_some_and(|sender| sender.receiver_count() <= 1)
        {
            senders.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_subscriptions_to_a_key_are_notified() {
        let notify = Arc::new(KeyedNotify::<String>::default());
        notify.notify("job", 1);
        let (mut one, mut two) = (
            notify.subscribe("job".to_owned()),
            notify.subscribe("job".to_owned()),
        );
        notify.notify("job", 7);
        assert_eq!((one.changed().await, two.changed().await), (7, 7));
        drop(one);
        notify.notify("job", 8);
        assert_eq!(two.changed().await, 8);
    }

    #[tokio::test]
    async fn the_last_subscription_removes_its_entry() {
        let notify = Arc::new(KeyedNotify::<String>::default());
        let (one, two) = (
            notify.subscribe("job".to_owned()),
            notify.subscribe("job".to_owned()),
        );
        drop(one);
        assert_eq!(notify.senders.lock().len(), 1);
        drop(two);
        assert!(notify.senders.lock().is_empty());
    }
}
