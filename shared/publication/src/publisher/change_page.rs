//! Changes of several publications in order of revision, page by page (A7).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde_json::value::RawValue;
use tokio::sync::watch;

use super::Publisher;
use crate::Cursor;
use crate::published::Changed;

/// Reads the owner of an entry from its body.
pub type ReadOwner = fn(&RawValue) -> Option<String>;

/// A publication and one of its scopes. `None` selects all scopes.
pub(crate) type Selection<'a> = (&'static str, Option<&'a str>);

/// Changes in order of revision, complete up to `until`.
pub struct ChangePage {
    pub changes: Vec<(&'static str, Changed)>,
    /// Revision up to which the page is complete.
    pub until: u64,
    /// Whether there are more changes.
    pub more: bool,
}

impl Publisher {
    /// Stores the owners of removed entries of this publication from now on.
    pub(crate) fn track_owner(&self, publication: &'static str, read_owner: ReadOwner) {
        self.owner_readers.write().insert(publication, read_owner);
    }

    /// Returns the current cursor, and the oldest revision after which all removals are still
    /// stored.
    pub(crate) fn history_range(&self) -> (Cursor, u64) {
        let maps = self.maps.read();
        let current = Cursor {
            lineage: maps.lineage,
            revision: maps.revision,
        };
        (current, maps.pruned_to)
    }

    /// Returns up to `limit` changes after a revision, and all further changes of the last
    /// commit. A commit is never split.
    pub(crate) fn changes_after(
        &self,
        selection: &[Selection<'_>],
        after: u64,
        limit: usize,
    ) -> ChangePage {
        let maps = self.maps.read();
        let scopes = selection.iter().flat_map(|(publication, scope)| {
            let map = maps.published.get(publication);
            let scopes = map.map_or_else(Vec::new, |map| map.changes_after(*scope, after));
            scopes
                .into_iter()
                .map(|scope_changes| (*publication, scope_changes.peekable()))
        });
        let mut scopes: Vec<_> = scopes.collect();
        // A merge of the scopes: the heap has the next change of each scope. Changes are ordered by
        // revision, and within one commit by `selection`.
        let mut next = BinaryHeap::new();
        for (index, (_, scope_changes)) in scopes.iter_mut().enumerate() {
            if let Some(first) = scope_changes.peek() {
                next.push(Reverse((first.revision, index)));
            }
        }
        let mut changes: Vec<(&'static str, Changed)> = Vec::new();
        let mut last = after;
        while let Some(Reverse((revision, index))) = next.pop() {
            if changes.len() >= limit && revision > last {
                return ChangePage {
                    changes,
                    until: last,
                    more: true,
                };
            }
            last = revision;
            let (publication, scope_changes) = &mut scopes[index];
            let change = scope_changes.next();
            changes.extend(change.map(|change| (*publication, change)));
            if let Some(following) = scope_changes.peek() {
                next.push(Reverse((following.revision, index)));
            }
        }
        let until = maps.revision.max(after);
        ChangePage {
            changes,
            until,
            more: false,
        }
    }

    /// Returns the generation of an entry of a publication without scopes: the revision of its last
    /// change. Returns `None` if there is no such entry (A5).
    pub fn generation(&self, publication: &str, key: &str) -> Option<u64> {
        self.maps
            .read()
            .published
            .get(publication)?
            .revision_of("", key)
    }

    /// Returns a receiver of the revision. It changes with every commit.
    pub(crate) fn watch_revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }
}
