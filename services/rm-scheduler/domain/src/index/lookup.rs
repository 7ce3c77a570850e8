//! Finds the rows that belong to the names in a delta.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, WorkId};

use super::{ByName, FleetIndex, Hash};
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
    pub hash: Hash,
    /// Value in the delta. `None` if the name is removed.
    pub stated: Option<&'s V>,
    /// Row of the name. `None` if it has no row.
    pub row: Option<I>,
}

pub(super) type OfWork<'s> = Entry<'s, WorkId, Demand, WorkIx>;
pub(super) type OfAllocation<'s> = Entry<'s, AllocationId, Allocation, AllocIx>;

impl<'s, K: Eq + AsRef<str>, V, I: Ix> Entry<'s, K, V, I> {
    pub fn new(name: &'s K, stated: Option<&'s V>) -> Self {
        Self {
            name,
            hash: Hash::new(name.as_ref()),
            stated,
            row: None,
        }
    }

    fn find<'r>(&self, rows: &ByName<I>, name: impl Fn(I) -> &'r K) -> Option<I>
    where
        K: 'r,
    {
        rows.find(self.hash, |row| name(row) == self.name)
    }
}

/// Looks up each name of a part of a delta. `name` gives the name of a row. Removed names leave the
/// table.
fn entries<'s, 'r, K: Eq + AsRef<str> + 'r, V, I: Ix>(
    stated: &'s BTreeMap<K, Option<V>>,
    rows: &mut ByName<I>,
    name: impl Fn(I) -> &'r K,
) -> Vec<Entry<'s, K, V, I>> {
    let mut entries = Vec::with_capacity(stated.len());
    for (id, stated) in stated {
        let it = Entry::new(id, stated.as_ref());
        let row = it.find(rows, &name);
        if let (Some(row), None) = (row, stated) {
            rows.remove(it.hash, row);
        }
        entries.push(Entry { row, ..it });
    }
    entries
}

/// Looks up the work and the allocations of a delta, and the work in `more`, which is read again.
/// Removed names leave the tables.
pub(super) fn find_rows<'s>(
    index: &mut FleetIndex,
    snapshot: &'s Snapshot,
    delta: &'s SnapshotDelta,
    more: &'s [WorkId],
) -> (Vec<OfWork<'s>>, Vec<OfAllocation<'s>>) {
    let work_ids = |work: WorkIx| &index.work[work].id;
    let mut work = entries(&delta.work, &mut index.work_by_name, work_ids);
    for id in more {
        let entry = Entry::new(id, snapshot.demand.get(id));
        let row = entry.find(&index.work_by_name, work_ids);
        work.push(Entry { row, ..entry });
    }
    let allocations = entries(
        &delta.allocations,
        &mut index.allocation_by_name,
        |allocation| &index.allocations[allocation].id,
    );
    (work, allocations)
}
