//! Finds the rows of the names in a delta.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, WorkId};

use super::{ByName, FleetIndex, Hash};
use crate::{
    ids::{AllocIx, Ix, WorkIx},
    incremental::{join::join, prefetch::fetch},
    input::{
        delta::SnapshotDelta,
        snapshot::{Allocation, Demand, Snapshot},
    },
};

/// One name of a delta.
pub(super) struct Entry<'s, K, V, I> {
    pub name: &'s K,
    pub hash: Hash,
    /// None if it is removed.
    pub stated: Option<&'s V>,
    /// Its row, if it has one.
    pub row: Option<I>,
}

pub(super) type OfWork<'s> = Entry<'s, WorkId, Demand, WorkIx>;
pub(super) type OfAllocation<'s> = Entry<'s, AllocationId, Allocation, AllocIx>;

impl<'s, K: Eq + AsRef<str>, V, I: Ix> Entry<'s, K, V, I> {
    pub fn new(name: &'s K, stated: Option<&'s V>) -> Self {
        Self {
            name,
            hash: Hash::of(name.as_ref()),
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

/// `name` gives the name of a row.
fn entries<'s, 'r, K: Eq + AsRef<str> + 'r, V, I: Ix>(
    stated: &'s BTreeMap<K, Option<V>>,
    rows: &mut ByName<I>,
    name: impl Fn(I) -> &'r K,
) -> Vec<Entry<'s, K, V, I>> {
    let stated: Vec<_> = stated.iter().collect();
    fetch(stated.iter().map(|(name, _)| name.as_ref()));
    let entries = stated.into_iter().map(|(name, stated)| {
        let it = Entry::new(name, stated.as_ref());
        let row = rows.guess(it.hash);
        Entry { row, ..it }
    });
    let mut entries: Vec<_> = entries.collect();
    fetch(entries.iter().filter_map(|it| Some(name(it.row?).as_ref())));
    for it in &mut entries {
        if it.row.is_some_and(|row| name(row) != it.name) {
            it.row = it.find(rows, &name);
        }
        // Removed names leave the table here.
        if let Some(row) = it.row.filter(|_| it.stated.is_none()) {
            rows.remove(it.hash, row);
        }
    }
    entries
}

/// Looks up work and allocations of a delta, and `again`: work to read again. Removed names leave
/// the tables. Both lookups run in parallel.
pub(super) fn look_up<'s>(
    index: &mut FleetIndex,
    snapshot: &'s Snapshot,
    delta: &'s SnapshotDelta,
    more: &'s [WorkId],
) -> (Vec<OfWork<'s>>, Vec<OfAllocation<'s>>) {
    let (work_by_name, allocation_by_name) =
        (&mut index.work_by_name, &mut index.allocation_by_name);
    let (work_records, records) = (&index.work, &index.allocations);
    let work = || {
        let name = |work: WorkIx| &work_records[work].id;
        let mut entries = entries(&delta.work, work_by_name, name);
        for more in more {
            let it = Entry::new(more, snapshot.demand.get(more));
            let row = it.find(work_by_name, name);
            entries.push(Entry { row, ..it });
        }
        entries
    };
    let allocations = || {
        entries(&delta.allocations, allocation_by_name, |allocation| {
            &records[allocation].id
        })
    };
    join(
        delta.work.len() + delta.allocations.len(),
        work,
        allocations,
    )
}
