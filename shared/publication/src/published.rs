//! One published map in memory: entries by key, and an index by revision for deltas. The code
//! is pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::value::RawValue;

mod by_revision;

pub use by_revision::Changed;

/// Body of an entry in its sent form. `None` for a removal that readers may still need.
pub type Body = Option<Arc<RawValue>>;

/// State of an entry after its last change.
#[derive(Debug)]
struct EntryState {
    revision: u64,
    body: Body,
}

/// The entries of one scope.
#[derive(Debug, Default)]
struct Scope {
    entries: BTreeMap<Arc<str>, EntryState>,
    /// Keys in order of the last change, removals included.
    by_revision: BTreeSet<(u64, Arc<str>)>,
    /// Number of entries that are not removed.
    live_count: usize,
    /// Known owners of removed entries.
    owners: BTreeMap<Arc<str>, Arc<str>>,
}

/// A map and its scopes. The scope `""` is used where a publication has only one.
#[derive(Debug, Default)]
pub struct Published {
    scopes: HashMap<String, Scope>,
    /// Removals up to this revision are no longer stored. An older cursor gets a full update.
    pruned_to: u64,
}

/// Changes since a cursor, or all entries.
#[derive(Debug, Clone, Default)]
pub struct Delta {
    pub full: bool,
    pub changed: Vec<(Arc<str>, Arc<RawValue>)>,
    pub removed: Vec<Arc<str>>,
}

impl Delta {
    pub fn is_empty(&self) -> bool {
        !self.full && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl Published {
    /// Sets an entry as of `revision`, which never goes back. `None` removes the entry.
    pub fn set(&mut self, scope: &str, key: &str, revision: u64, body: Body) {
        if !self.scopes.contains_key(scope) {
            self.scopes.insert(scope.to_owned(), Scope::default());
        }
        let Some(scope) = self.scopes.get_mut(scope) else {
            return;
        };
        let key: Arc<str> = key.into();
        scope.live_count += usize::from(body.is_some());
        if body.is_some() {
            scope.owners.remove(&key);
        }
        let state = EntryState { revision, body };
        if let Some(before) = scope.entries.insert(key.clone(), state) {
            scope.by_revision.remove(&(before.revision, key.clone()));
            scope.live_count -= usize::from(before.body.is_some());
        }
        scope.by_revision.insert((revision, key));
    }

    pub fn get(&self, scope: &str, key: &str) -> Option<&Arc<RawValue>> {
        let entry = self.scopes.get(scope)?.entries.get(key)?;
        entry.body.as_ref()
    }

    /// Returns entries of a scope in order of key. They begin after the key `after`.
    pub fn page<'a>(
        &'a self,
        scope: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a str, &'a Arc<RawValue>)> + use<'a> {
        let start = match after {
            Some(after) => std::ops::Bound::Excluded(Arc::<str>::from(after)),
            None => std::ops::Bound::Unbounded,
        };
        let entries = self.scopes.get(scope).map(|scope| &scope.entries);
        entries
            .into_iter()
            .flat_map(move |entries| entries.range((start.clone(), std::ops::Bound::Unbounded)))
            .filter_map(|(key, entry)| entry.body.as_ref().map(|body| (&**key, body)))
    }

    pub fn len(&self, scope: &str) -> usize {
        self.scopes.get(scope).map_or(0, |scope| scope.live_count)
    }

    pub fn is_empty(&self, scope: &str) -> bool {
        self.len(scope) == 0
    }

    /// Returns the changes after a revision. Returns all entries for an absent or too old revision.
    pub fn since(&self, scope: &str, revision: Option<u64>) -> Delta {
        let known = revision.filter(|revision| *revision >= self.pruned_to);
        let Some(scope) = self.scopes.get(scope) else {
            return Delta {
                full: known.is_none(),
                ..Delta::default()
            };
        };
        let mut delta = Delta {
            full: known.is_none(),
            ..Delta::default()
        };
        let Some(known) = known else {
            delta.changed = scope
                .entries
                .iter()
                .filter_map(|(key, entry)| entry.body.clone().map(|body| (key.clone(), body)))
                .collect();
            return delta;
        };
        for (_, key) in scope.by_revision.range((known + 1, Arc::from(""))..) {
            match &scope.entries[key].body {
                Some(body) => delta.changed.push((key.clone(), body.clone())),
                None => delta.removed.push(key.clone()),
            }
        }
        delta
    }

    /// Deletes removals up to `revision` (inclusive). Readers behind it get a full update.
    pub fn prune_removals(&mut self, revision: u64) {
        self.pruned_to = self.pruned_to.max(revision);
        self.scopes.retain(|_, scope| {
            let pruned: Vec<(u64, Arc<str>)> = scope
                .by_revision
                .iter()
                .take_while(|(at, _)| *at <= revision)
                .filter(|(_, key)| scope.entries[key].body.is_none())
                .cloned()
                .collect();
            for (at, key) in pruned {
                scope.owners.remove(&key);
                scope.entries.remove(&key);
                scope.by_revision.remove(&(at, key));
            }
            !scope.entries.is_empty()
        });
    }
}

#[cfg(test)]
mod tests;
