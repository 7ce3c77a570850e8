//! Finds the rows of the work and of the allocations that a delta names.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, WorkId};

use super::{FleetIndex, NameHash, NameTable};
use crate::{
    ids::{AllocIx, Ix, WorkIx},
    input::{
        delta::SnapshotDelta,
        snapshot::{Allocation, Demand, Snapshot},
    },
};

/// One name of a delta.
pub(super) struct Entry<'s, K, V, I> {
    pub name: &'s K,
    pub hash: NameHash,
    /// Value in the delta. `None` if the name is removed.
    pub value: Option<&'s V>,
    /// Row of the name. `None` if it has no row.
    pub row: Option<I>,
}

pub(super) type WorkEntry<'s> = Entry<'s, WorkId, Demand, WorkIx>;
pub(super) type AllocationEntry<'s> = Entry<'s, AllocationId, Allocation, AllocIx>;

impl<'s, K: Eq + AsRef<str>, V, I: Ix> Entry<'s, K, V, I> {
    pub fn new(name: &'s K, value: Option<&'s V>) -> Self {
        Self {
            name,
            hash: NameHash::new(name.as_ref()),
            value,
            row: None,
        }
    }

    fn find<'r>(&self, rows: &NameTable<I>, name: impl Fn(I) -> &'r K) -> Option<I>
    where
        K: 'r,
    {
        rows.find(self.hash, |row| name(row) == self.name)
    }
}

/// Looks up each name of a part of a delta. `name` returns the name of a row. Names that the delta
/// removes are removed from the table.
fn find_entries<'s, 'r, K: Eq + AsRef<str> + 'r, V, I: Ix>(
    changes: &'s BTreeMap<K, Option<V>>,
    rows: &mut NameTable<I>,
    name: impl Fn(I) -> &'r K,
) -> Vec<Entry<'s, K, V, I>> {
    let mut entries = Vec::with_capacity(changes.len());
    for (id, value) in changes {
        let entry = Entry::new(id, value.as_ref());
        let row = entry.find(rows, &name);
        if let (Some(row), None) = (row, value) {
            rows.remove(entry.hash, row);
        }
        entries.push(Entry { row, ..entry });
    }
    entries
}

/// Looks up the work and the allocations of a delta, and the unchanged work in `reread`. Names that
/// the delta removes are removed from the tables.
pub(super) fn find_rows<'s>(
    index: &mut FleetIndex,
    snapshot: &'s Snapshot,
    delta: &'s SnapshotDelta,
    reread: &'s [WorkId],
) -> (Vec<WorkEntry<'s>>, Vec<AllocationEntry<'s>>) {
    let work_ids = |work: WorkIx| &index.work[work].id;
    let mut work = find_entries(&delta.work, &mut index.work_by_name, work_ids);
    for id in reread {
        let entry = Entry::new(id, snapshot.demand.get(id));
        let row = entry.find(&index.work_by_name, work_ids);
        work.push(Entry { row, ..entry });
    }
    let allocations = find_entries(
        &delta.allocations,
        &mut index.allocation_by_name,
        |allocation| &index.allocations[allocation].id,
    );
    (work, allocations)
}
