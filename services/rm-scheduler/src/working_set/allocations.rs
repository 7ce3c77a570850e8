//! All allocations, indexed by work and by node, and the number of the last attempt of each work.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, WorkId};

use crate::model::AllocationRecord;

#[derive(Default)]
pub(crate) struct Allocations {
    by_id: BTreeMap<AllocationId, AllocationRecord>,
    by_work: BTreeMap<WorkId, BTreeSet<AllocationId>>,
    /// Allocations of each node that have not ended and therefore hold quanta.
    by_node: BTreeMap<NodeName, BTreeSet<AllocationId>>,
    /// Number of the last attempt of each piece of work.
    incarnations: BTreeMap<WorkId, u64>,
}

impl Allocations {
    pub fn new(
        by_id: BTreeMap<AllocationId, AllocationRecord>,
        incarnations: BTreeMap<WorkId, u64>,
    ) -> Self {
        let mut allocations = Self {
            incarnations,
            ..Self::default()
        };
        for record in by_id.into_values() {
            allocations.insert(record);
        }
        allocations
    }

    pub fn get(&self, id: &AllocationId) -> Option<&AllocationRecord> {
        self.by_id.get(id)
    }

    pub fn contains(&self, id: &AllocationId) -> bool {
        self.by_id.contains_key(id)
    }

    /// Returns true if the allocation exists and has not ended.
    pub fn holds(&self, id: &AllocationId) -> bool {
        self.get(id).is_some_and(|it| it.entry.holds())
    }

    pub fn by_id(&self) -> &BTreeMap<AllocationId, AllocationRecord> {
        &self.by_id
    }

    pub fn values(&self) -> impl Iterator<Item = &AllocationRecord> {
        self.by_id.values()
    }

    /// Returns all allocations of a piece of work, including ended ones.
    pub fn of_work(&self, work: &WorkId) -> impl Iterator<Item = &AllocationRecord> + Clone {
        let ids = self.by_work.get(work).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id))
    }

    pub fn ids_of_work(&self, work: &WorkId) -> Vec<AllocationId> {
        let ids = self.by_work.get(work).into_iter().flatten();
        ids.cloned().collect()
    }

    pub fn has_any(&self, work: &WorkId) -> bool {
        self.by_work.contains_key(work)
    }

    /// Returns the allocations that hold quanta of this node.
    pub fn on_node(&self, node: &NodeName) -> impl Iterator<Item = &AllocationRecord> {
        let ids = self.by_node.get(node).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id))
    }

    /// Returns each allocation that holds quanta, with its node.
    pub fn by_node(&self) -> impl Iterator<Item = (&NodeName, &AllocationRecord)> {
        self.by_node.iter().flat_map(|(node, ids)| {
            let records = ids.iter().filter_map(|id| self.by_id.get(id));
            records.map(move |record| (node, record))
        })
    }

    /// Returns the works with an allocation or an incarnation. A work may occur twice.
    pub fn works(&self) -> impl Iterator<Item = &WorkId> {
        self.by_work.keys().chain(self.incarnations.keys())
    }

    pub fn insert(&mut self, record: AllocationRecord) {
        let entry = &record.entry;
        let of_work = self.by_work.entry(entry.work.clone()).or_default();
        of_work.insert(entry.id.clone());
        if entry.holds() {
            let on_node = self.by_node.entry(entry.node.clone()).or_default();
            on_node.insert(entry.id.clone());
        } else {
            remove_from_index(&mut self.by_node, &entry.node, &entry.id);
        }
        self.by_id.insert(entry.id.clone(), record);
    }

    pub fn remove(&mut self, id: &AllocationId) {
        if let Some(record) = self.by_id.remove(id) {
            remove_from_index(&mut self.by_work, &record.entry.work, id);
            remove_from_index(&mut self.by_node, &record.entry.node, id);
        }
    }

    pub fn last_incarnation(&self, work: &WorkId) -> Option<u64> {
        self.incarnations.get(work).copied()
    }

    pub fn next_incarnation(&mut self, work: &WorkId) -> u64 {
        let last = self.incarnations.entry(work.clone()).or_default();
        *last += 1;
        *last
    }

    /// Removes the incarnation of a work. Returns false if there was none.
    pub fn forget_incarnation(&mut self, work: &WorkId) -> bool {
        self.incarnations.remove(work).is_some()
    }
}

/// Removes an id from an index, and the key if no id is left below the key.
fn remove_from_index<K: Ord>(
    index: &mut BTreeMap<K, BTreeSet<AllocationId>>,
    key: &K,
    id: &AllocationId,
) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
