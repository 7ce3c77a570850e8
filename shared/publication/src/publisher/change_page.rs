//! Publications of one service in the order of its revisions, a piece at a time (A7).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde_json::value::RawValue;
use tokio::sync::watch;

use super::Publisher;
use crate::Cursor;
use crate::published::Changed;

/// Whose an entry is, read from its body.
pub type ReadOwner = fn(&RawValue) -> Option<String>;

/// A publication, and its one scope where only that is read.
pub(crate) type Selection<'a> = (&'static str, Option<&'a str>);

/// Changes in order, by publication, whole up to the revision `until`.
pub struct ChangePage {
    pub changes: Vec<(&'static str, Changed)>,
    /// Everything up to here has been told.
    pub until: u64,
    /// There is more already.
    pub more: bool,
}

impl Publisher {
    /// Keeps in mind whose the entries of a publication were that go from now on.
    pub(crate) fn track_owner(&self, publication: &'static str, read_owner: ReadOwner) {
        self.owners.write().insert(publication, read_owner);
    }

    /// Where this service is, and the oldest revision from which nothing has been forgotten.
    pub(crate) fn range(&self) -> (Cursor, u64) {
        let maps = self.maps.read();
        let now = Cursor {
            lineage: maps.lineage,
            revision: maps.revision,
        };
        (now, maps.forgotten)
    }

    /// Up to `most` changes after a revision, and those that belong to the transaction of the
    /// last of them: a commit is told whole or not at all. The work is bounded by `most`, the
    /// number of scopes and the largest commit.
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
        // By revision, then by lane: `asked` gives the order within a transaction.
        let mut next = BinaryHeap::new();
        for (at, (_, scope_changes)) in scopes.iter_mut().enumerate() {
            if let Some(first) = scope_changes.peek() {
                next.push(Reverse((first.revision, at)));
            }
        }
        let mut changes: Vec<(&'static str, Changed)> = Vec::new();
        let mut last = after;
        while let Some(Reverse((revision, at))) = next.pop() {
            if changes.len() >= limit && revision > last {
                return ChangePage {
                    changes,
                    until: last,
                    more: true,
                };
            }
            last = revision;
            let (publication, scope_changes) = &mut scopes[at];
            let change = scope_changes.next();
            changes.extend(change.map(|change| (*publication, change)));
            if let Some(following) = scope_changes.peek() {
                next.push(Reverse((following.revision, at)));
            }
        }
        let until = maps.revision.max(after);
        ChangePage {
            changes,
            until,
            more: false,
        }
    }

    /// The generation of an entry of a publication without scopes (A5): the revision at which it
    /// changed last. `None` where there is no such entry.
    pub fn generation(&self, publication: &str, key: &str) -> Option<u64> {
        self.maps
            .read()
            .published
            .get(publication)?
            .revision_of("", key)
    }

    /// Moves with every commit.
    pub(crate) fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }
}
