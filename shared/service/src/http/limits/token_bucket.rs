//! Token buckets by key, in time units. A bucket is stored as the instant at which it is full
//! again. Full buckets are not stored.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Maximum number of keys with their own bucket. All other keys share the overflow bucket (I25).
pub(super) const MAX_KEYS: usize = 64 * 1024;
/// Minimum time between two sweeps, which remove full buckets from a full table.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct TokenBuckets<K> {
    full_at: HashMap<K, Instant>,
    overflow_key: K,
    max_keys: usize,
    /// Time of the last sweep. `None` before the first one.
    swept_at: Option<Instant>,
}

impl<K: Eq + Hash + Clone> TokenBuckets<K> {
    pub(crate) fn new(overflow_key: K) -> Self {
        Self::with_capacity(MAX_KEYS, overflow_key)
    }

    pub(super) fn with_capacity(max_keys: usize, overflow_key: K) -> Self {
        Self {
            full_at: HashMap::new(),
            overflow_key,
            max_keys,
            swept_at: None,
        }
    }

    fn key_or_overflow<'a>(&'a self, key: &'a K) -> &'a K {
        if !self.is_full() || self.full_at.contains_key(key) {
            key
        } else {
            &self.overflow_key
        }
    }

    fn is_full(&self) -> bool {
        self.full_at.len() >= self.max_keys
    }

    /// Returns the time until the bucket is full again.
    pub(crate) fn time_until_full(&self, key: &K, now: Instant) -> Duration {
        let full_at = self.full_at.get(self.key_or_overflow(key));
        full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Takes `cost` out of the bucket, even beyond its size.
    pub(crate) fn spend(&mut self, key: &K, cost: Duration, now: Instant) {
        if self.is_full() {
            self.sweep(now);
        }
        let key = self.key_or_overflow(key).clone();
        let full_at = self.full_at.entry(key).or_insert(now);
        *full_at = (*full_at).max(now) + cost;
    }

    /// Takes `cost` if the bucket is then full again within `burst`. While the table is full, all
    /// keys share the overflow bucket.
    ///
    /// # Errors
    /// The time until the bucket has enough.
    pub(crate) fn try_spend(
        &mut self,
        key: &K,
        cost: Duration,
        burst: Duration,
        now: Instant,
    ) -> Result<(), Duration> {
        if self.is_full() {
            self.sweep(now);
        }
        let key = if self.is_full() {
            self.overflow_key.clone()
        } else {
            key.clone()
        };
        let until_full = self
            .full_at
            .get(&key)
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let wait = (until_full + cost).saturating_sub(burst);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.full_at.insert(key, now + until_full + cost);
        Ok(())
    }

    /// Gives an amount back to the bucket after a too high estimate.
    pub(crate) fn refund(&mut self, key: &K, cost: Duration) {
        let key = self.key_or_overflow(key).clone();
        if let Some(full_at) = self.full_at.get_mut(&key)
            && let Some(earlier) = full_at.checked_sub(cost)
        {
            *full_at = earlier;
        }
    }

    fn sweep(&mut self, now: Instant) {
        let since = self.swept_at.map(|at| now.saturating_duration_since(at));
        if since.is_none_or(|since| since >= SWEEP_INTERVAL) {
            self.swept_at = Some(now);
            self.full_at.retain(|_, full_at| *full_at > now);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.full_at.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_bucket_refills_with_time() {
        let (mut buckets, now) = (TokenBuckets::new(0), Instant::now());
        buckets.spend(&1, SECOND, now);
        buckets.spend(&1, SECOND, now);
        assert_eq!(buckets.time_until_full(&1, now + SECOND), SECOND);
        assert_eq!(
            buckets.time_until_full(&1, now + SECOND * 3),
            Duration::ZERO
        );
        assert_eq!(buckets.time_until_full(&2, now), Duration::ZERO);
        buckets.refund(&1, SECOND);
        assert_eq!(buckets.time_until_full(&1, now), SECOND);
    }

    #[test]
    fn spending_beyond_the_burst_is_refused_with_the_time_to_wait() {
        let (mut buckets, now) = (TokenBuckets::new(0), Instant::now());
        let burst = SECOND * 3;
        let mut spend = |now| buckets.try_spend(&1, SECOND, burst, now);
        assert!((0..3).all(|_| spend(now).is_ok()));
        assert_eq!(spend(now), Err(SECOND));
        assert_eq!(spend(now + SECOND / 2), Err(SECOND / 2));
        assert_eq!(spend(now + SECOND), Ok(()));
    }

    /// A full bucket needs no entry (I25).
    #[test]
    fn the_table_is_bounded_and_drops_full_buckets() {
        let (mut buckets, now) = (TokenBuckets::with_capacity(2, 255), Instant::now());
        for number in 0..9_u8 {
            buckets.spend(&number, SECOND, now);
        }
        assert_eq!(buckets.len(), 3, "two, and the overflow bucket");
        assert_eq!(buckets.time_until_full(&0, now), SECOND);
        assert_eq!(buckets.time_until_full(&200, now), SECOND * 7);
        let later = now + SECOND * 7;
        buckets.spend(&5, SECOND, later);
        assert_eq!(buckets.len(), 1);
    }
}
