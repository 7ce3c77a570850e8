//! What each address or caller has used up of something that grows back with time: the instant
//! from which it has everything again. Nothing is kept of who has.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Remembered one by one; all others share one account (I25).
const MAX_KEYS: usize = 64 * 1024;
/// A full table is looked through at most so often, for it is large.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct TokenBuckets<K> {
    full_at: HashMap<K, Instant>,
    /// Whose account all those share who find no room for one of their own.
    overflow: K,
    max_keys: usize,
    /// When the full table was last looked through.
    swept: Option<Instant>,
}

impl<K: Eq + Hash + Clone> TokenBuckets<K> {
    pub(crate) fn new(overflow: K) -> Self {
        Self::with_capacity(MAX_KEYS, overflow)
    }

    fn with_capacity(max_keys: usize, overflow: K) -> Self {
        Self {
            full_at: HashMap::new(),
            overflow,
            max_keys,
            swept: None,
        }
    }

    fn key_or_overflow<'a>(&'a self, key: &'a K) -> &'a K {
        let known = self.full_at.len() < self.max_keys || self.full_at.contains_key(key);
        if known { key } else { &self.overflow }
    }

    pub(crate) fn debt(&self, key: &K, now: Instant) -> Duration {
        let full_at = self.full_at.get(self.key_or_overflow(key));
        full_at.map_or(Duration::ZERO, |full_at| {
            full_at.saturating_duration_since(now)
        })
    }

    pub(crate) fn spend(&mut self, key: &K, cost: Duration, now: Instant) {
        if self.full_at.len() >= self.max_keys {
            self.sweep(now);
        }
        let key_or_overflow = self.key_or_overflow(key).clone();
        let full_at = self.full_at.entry(key_or_overflow).or_insert(now);
        *full_at = (*full_at).max(now) + cost;
    }

    /// It was less than was added.
    pub(crate) fn refund(&mut self, key: &K, cost: Duration) {
        let key_or_overflow = self.key_or_overflow(key).clone();
        if let Some(full_at) = self.full_at.get_mut(&key_or_overflow)
            && let Some(sooner) = full_at.checked_sub(cost)
        {
            *full_at = sooner;
        }
    }

    fn sweep(&mut self, now: Instant) {
        let swept = self.swept.map(|swept| now.saturating_duration_since(swept));
        if swept.is_none_or(|since| since >= SWEEP_INTERVAL) {
            self.swept = Some(now);
            self.full_at.retain(|_, full_at| *full_at > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_used_up_grows_back() {
        let (mut buckets, now) = (TokenBuckets::new(0), Instant::now());
        buckets.spend(&1, SECOND, now);
        buckets.spend(&1, SECOND, now);
        assert_eq!(buckets.debt(&1, now + SECOND), SECOND);
        assert_eq!(buckets.debt(&1, now + SECOND * 3), Duration::ZERO);
        assert_eq!(buckets.debt(&2, now), Duration::ZERO);
        buckets.refund(&1, SECOND);
        assert_eq!(buckets.debt(&1, now), SECOND);
    }

    #[test]
    fn i25_the_table_is_bounded_and_forgets_who_owes_nothing() {
        let (mut buckets, now) = (TokenBuckets::with_capacity(2, 255), Instant::now());
        for number in 0..9_u8 {
            buckets.spend(&number, SECOND, now);
        }
        assert_eq!(
            buckets.full_at.len(),
            3,
            "two, and one account for all others"
        );
        assert_eq!(buckets.debt(&0, now), SECOND);
        assert_eq!(buckets.debt(&200, now), SECOND * 7);
        let later = now + SECOND * 7;
        buckets.spend(&5, SECOND, later);
        assert_eq!(buckets.full_at.len(), 1);
    }
}
