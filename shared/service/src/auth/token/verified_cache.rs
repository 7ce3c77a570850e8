//! Bounded cache of verified tokens.
//!
//! The cache has two generations. A full young generation becomes the old one. An entry of the old
//! generation moves to the young one when it is used.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;

type Digest = [u8; 32];

/// Tokens per generation. It is enough for a fleet of ten thousand agents.
const GENERATION: usize = 16 * 1024;

struct Generations<T> {
    young: HashMap<Digest, Arc<T>>,
    old: HashMap<Digest, Arc<T>>,
    misses: u64,
}

pub(super) struct VerifiedCache<T>(Mutex<Generations<T>>);

impl<T> VerifiedCache<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Generations {
            young: HashMap::new(),
            old: HashMap::new(),
            misses: 0,
        }))
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<T>> {
        let mut both = self.0.lock();
        if let Some(found) = both.young.get(digest) {
            return Some(Arc::clone(found));
        }
        let found = both.old.remove(digest)?;
        both.keep(*digest, Arc::clone(&found));
        Some(found)
    }

    pub(super) fn put(&self, digest: Digest, value: T) {
        let mut both = self.0.lock();
        both.misses += 1;
        both.keep(digest, Arc::new(value));
    }

    #[cfg(test)]
    pub(super) fn misses(&self) -> u64 {
        self.0.lock().misses
    }
}

impl<T> Generations<T> {
    fn keep(&mut self, digest: Digest, value: Arc<T>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_le_bytes());
        digest
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_used_entries() {
        let cache = VerifiedCache::new();
        for number in 0..GENERATION * 5 {
            cache.put(digest(number), number);
            assert_eq!(cache.get(&digest(0)).as_deref(), Some(&0), "after {number}");
        }
        let both = cache.0.lock();
        assert!(both.young.len() + both.old.len() <= 2 * GENERATION);
    }
}
