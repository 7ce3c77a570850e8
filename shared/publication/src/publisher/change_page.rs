//! Publications of one service in the order of its revisions, a piece at a time (A7).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde_json::value::RawValue;
use tokio::sync::watch;

use super::Publisher;
use crate::Cursor;
use crate::published::Changed;

/// Whose an entry is, read from its body.
pub type WhoseBody = fn(&RawValue) -> Option<String>;

/// A publication, and its one scope where only that is read.
pub(crate) type Asked<'a> = (&'static str, Option<&'a str>);

/// Changes in order, by publication, whole up to the revision `until`.
pub struct Walk {
    pub changes: Vec<(&'static str, Changed)>,
    /// Everything up to here has been told.
    pub until: u64,
    /// There is more already.
    pub more: bool,
}

impl Publisher {
    /// Keeps in mind whose the entries of a publication were that go from now on.
    pub(crate) fn attribute(&self, publication: &'static str, whose: WhoseBody) {
        self.owners.write().insert(publication, whose);
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
    pub(crate) fn walk(&self, asked: &[Asked<'_>], after: u64, most: usize) -> Walk {
        let maps = self.maps.read();
        let lanes = asked.iter().flat_map(|(publication, scope)| {
            let map = maps.published.get(publication);
            let lanes = map.map_or_else(Vec::new, |map| map.lanes(*scope, after));
            lanes
                .into_iter()
                .map(|lane| (*publication, lane.peekable()))
        });
        let mut lanes: Vec<_> = lanes.collect();
        // By revision, then by lane: `asked` gives the order within a transaction.
        let mut next = BinaryHeap::new();
        for (at, (_, lane)) in lanes.iter_mut().enumerate() {
            if let Some(first) = lane.peek() {
                next.push(Reverse((first.revision, at)));
            }
        }
        let mut changes: Vec<(&'static str, Changed)> = Vec::new();
        let mut last = after;
        while let Some(Reverse((revision, at))) = next.pop() {
            if changes.len() >= most && revision > last {
                return Walk {
                    changes,
                    until: last,
                    more: true,
                };
            }
            last = revision;
            let (publication, lane) = &mut lanes[at];
            let change = lane.next();
            changes.extend(change.map(|change| (*publication, change)));
            if let Some(following) = lane.peek() {
                next.push(Reverse((following.revision, at)));
            }
        }
        let until = maps.revision.max(after);
        Walk {
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
