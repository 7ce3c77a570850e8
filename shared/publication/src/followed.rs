//! A neighbour's map as a follower holds it, in memory. A delta and a full answer that mean the
//! same leave the same map and tell the same changes, so deciding code never sees the difference.

use std::collections::BTreeMap;

use crate::{Cursor, Update};

/// What one update did to one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// New, or different from before; the state before, where there was one.
    Set {
        key: String,
        before: Option<T>,
    },
    Removed {
        key: String,
        before: T,
    },
}

#[derive(Debug, Clone)]
pub struct Followed<T> {
    entries: BTreeMap<String, T>,
    cursor: Option<Cursor>,
    heard_ms: Option<u64>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            cursor: None,
            heard_ms: None,
        }
    }
}

impl<T: PartialEq> Followed<T> {
    /// Takes an update in and says what it changed. `monotonic_ms` is when it arrived: even an
    /// empty one proves the publisher alive.
    pub fn absorb(&mut self, update: Update<T>, monotonic_ms: u64) -> Vec<Change<T>> {
        self.heard_ms = Some(monotonic_ms);
        self.cursor = Cursor::parse(&update.cursor);
        let mut changes = Vec::new();
        let gone: Vec<String> = if update.full {
            self.entries
                .keys()
                .filter(|key| !update.changed.contains_key(*key))
                .cloned()
                .collect()
        } else {
            update.removed
        };
        for key in gone {
            if let Some(before) = self.entries.remove(&key) {
                changes.push(Change::Removed { key, before });
            }
        }
        for (key, entry) in update.changed {
            if self.entries.get(&key) == Some(&entry) {
                continue;
            }
            let before = self.entries.insert(key.clone(), entry);
            changes.push(Change::Set { key, before });
        }
        changes
    }

    pub fn get(&self, key: &str) -> Option<&T> {
        self.entries.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.entries.iter()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True once the publisher has been heard in this term: no news of nodes is not news of no
    /// nodes.
    pub fn heard(&self) -> bool {
        self.heard_ms.is_some()
    }

    /// True when nothing was heard for longer than `limit_ms`. A round with a stale input revokes
    /// nothing.
    pub fn stale(&self, monotonic_ms: u64, limit_ms: u64) -> bool {
        self.heard_ms
            .is_none_or(|heard| monotonic_ms.saturating_sub(heard) > limit_ms)
    }

    /// Milliseconds since it was heard, if it was in this term.
    pub fn silence_ms(&self, monotonic_ms: u64) -> Option<u64> {
        Some(monotonic_ms.saturating_sub(self.heard_ms?))
    }

    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }
}
