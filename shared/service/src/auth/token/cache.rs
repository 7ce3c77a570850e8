//! Bounded cache of the results of token verification, by digest of the token.
//!
//! The cache has two generations. A full young generation becomes the old one. An entry of the old
//! generation moves to the young one when it is used.

use std::collections::HashMap;
use std::sync::Arc;

use crate::locks::Mutex;

type Digest = [u8; 32];

/// Tokens per generation. It is enough for a fleet of ten thousand agents.
const GENERATION_SIZE: usize = 16 * 1024;

struct Generations<T> {
    young: HashMap<Digest, Arc<T>>,
    old: HashMap<Digest, Arc<T>>,
    insertions: u64,
}

pub(super) struct TokenCache<T>(Mutex<Generations<T>>);

impl<T> TokenCache<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Generations {
            young: HashMap::new(),
            old: HashMap::new(),
            insertions: 0,
        }))
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<T>> {
        let mut generations = self.0.lock();
        if let Some(found) = generations.young.get(digest) {
            return Some(Arc::clone(found));
        }
        let found = generations.old.remove(digest)?;
        generations.insert_young(*digest, Arc::clone(&found));
        Some(found)
    }

    pub(super) fn insert(&self, digest: Digest, value: T) {
        let mut generations = self.0.lock();
        generations.insertions += 1;
        generations.insert_young(digest, Arc::new(value));
    }

    #[cfg(test)]
    pub(super) fn insertions(&self) -> u64 {
        self.0.lock().insertions
    }
}

impl<T> Generations<T> {
    fn insert_young(&mut self, digest: Digest, value: Arc<T>) {
        if self.young.len() >= GENERATION_SIZE {
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
    fn the_cache_is_bounded_and_retains_used_entries() {
        let cache = TokenCache::new();
        for number in 0..GENERATION_SIZE * 5 {
            cache.insert(digest(number), number);
            assert_eq!(cache.get(&digest(0)).as_deref(), Some(&0), "after {number}");
        }
        let generations = cache.0.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION_SIZE);
    }
}
