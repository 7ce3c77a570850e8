//! The map of a neighbour in the memory of a follower. A delta and an equivalent full update give
//! the same map and the same changes.

use std::collections::BTreeMap;

use crate::{Cursor, Update};

/// Change of one entry by an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// A new or changed entry, with its previous state. The previous state is `None` for a new
    /// entry.
    Set {
        key: String,
        before: Option<T>,
    },
    Removed {
        key: String,
        before: T,
    },
}

/// Entries of a followed publication.
#[derive(Debug, Clone)]
pub struct Followed<T> {
    entries: BTreeMap<String, T>,
    cursor: Option<Cursor>,
    /// Arrival of the last update, by the monotonic clock. `None` before the first one.
    last_update_ms: Option<u64>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            cursor: None,
            last_update_ms: None,
        }
    }
}

impl<T: PartialEq> Followed<T> {
    /// Applies an update and returns its changes. `monotonic_ms` is its arrival time. Even an empty
    /// update proves that the publisher is alive.
    pub fn absorb(&mut self, update: Update<T>, monotonic_ms: u64) -> Vec<Change<T>> {
        self.last_update_ms = Some(monotonic_ms);
        self.cursor = Cursor::parse(&update.cursor);
        let mut changes = Vec::new();
        let removed_keys: Vec<String> = if update.full {
            self.entries
                .keys()
                .filter(|key| !update.changed.contains_key(*key))
                .cloned()
                .collect()
        } else {
            update.removed
        };
        for key in removed_keys {
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

    /// Returns true after the first update of this term. Before that, an empty map has no meaning.
    pub fn has_update(&self) -> bool {
        self.last_update_ms.is_some()
    }

    /// Returns true if no update arrived for longer than `limit_ms`. A round with a stale input
    /// revokes nothing.
    pub fn is_stale(&self, monotonic_ms: u64, limit_ms: u64) -> bool {
        self.last_update_ms
            .is_none_or(|last_ms| monotonic_ms.saturating_sub(last_ms) > limit_ms)
    }

    /// Returns the milliseconds since the last update. Returns `None` before the first update of
    /// this term.
    pub fn ms_since_update(&self, monotonic_ms: u64) -> Option<u64> {
        Some(monotonic_ms.saturating_sub(self.last_update_ms?))
    }

    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }
}
