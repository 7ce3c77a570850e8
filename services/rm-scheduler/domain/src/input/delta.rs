//! Differences between two snapshots. A delta may also list entries that did not change: they cost
//! time, but change no plan.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, WorkId};

use super::snapshot::{Allocation, Demand, Snapshot};

/// Entries that came, left or changed, with their values in the newer snapshot. Policy, tunables,
/// time, round number and carried rows are absent, because every round compares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotDelta {
    /// True if the changes are unknown, so that the whole snapshot is read.
    pub everything: bool,
    /// Nodes that came, left or changed.
    pub nodes: BTreeSet<NodeName>,
    /// Changed work by id. `None` if the work was withdrawn.
    pub work: BTreeMap<WorkId, Option<Demand>>,
    /// Changed allocations by id. `None` if the allocation has ended.
    pub allocations: BTreeMap<AllocationId, Option<Allocation>>,
}

impl SnapshotDelta {
    pub fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// Returns a delta of these pieces of work, with their values in the snapshot.
    pub fn for_work(snapshot: &Snapshot, ids: impl IntoIterator<Item = WorkId>) -> Self {
        let value = |id: WorkId| (id.clone(), snapshot.demand.get(&id).cloned());
        Self {
            work: ids.into_iter().map(value).collect(),
            ..Self::default()
        }
    }

    /// Returns all differences between two snapshots.
    pub fn between(previous: &Snapshot, now: &Snapshot) -> Self {
        let nodes = changed_entries(&previous.nodes, &now.nodes);
        Self {
            everything: false,
            nodes: nodes.into_keys().collect(),
            work: changed_entries(&previous.demand, &now.demand),
            allocations: changed_entries(&previous.allocations, &now.allocations),
        }
    }

    /// Asserts that all values of the delta equal those of the snapshot.
    #[cfg(test)]
    pub(crate) fn assert_matches(&self, snapshot: &Snapshot) {
        for (id, value) in &self.work {
            assert_eq!(value.as_ref(), snapshot.demand.get(id), "{id}");
        }
        for (id, value) in &self.allocations {
            assert_eq!(value.as_ref(), snapshot.allocations.get(id), "{id}");
        }
    }
}

fn changed_entries<K: Ord + Clone, V: Clone + PartialEq>(
    previous: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let keys = previous.keys().chain(now.keys());
    let changed = keys.filter(|key| previous.get(*key) != now.get(*key));
    changed
        .map(|key| (key.clone(), now.get(key).cloned()))
        .collect()
}
