//! Differences between two snapshots. An entry that did not change may be listed: it costs time and
//! changes no plan.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, WorkId};

use super::snapshot::{Allocation, Demand, Snapshot};

/// Entries that came, left or changed, with their values in the newer snapshot. Policy, tunables,
/// time, round number and carried rows are absent, because every round compares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotDelta {
    /// True if the changes are unknown, so that the whole snapshot is read.
    pub everything: bool,
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

    /// Returns a delta that lists these pieces of work, with their values in the snapshot.
    pub fn of_work(snapshot: &Snapshot, ids: impl IntoIterator<Item = WorkId>) -> Self {
        let value = |id: WorkId| (id.clone(), snapshot.demand.get(&id).cloned());
        Self {
            work: ids.into_iter().map(value).collect(),
            ..Self::default()
        }
    }

    /// Returns all differences between two snapshots.
    pub fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let nodes = differing(&before.nodes, &now.nodes);
        Self {
            everything: false,
            nodes: nodes.into_keys().collect(),
            work: differing(&before.demand, &now.demand),
            allocations: differing(&before.allocations, &now.allocations),
        }
    }

    /// Asserts that all values of the delta equal those of the snapshot.
    #[cfg(test)]
    pub(crate) fn assert_true(&self, snapshot: &Snapshot) {
        for (id, value) in &self.work {
            assert_eq!(value.as_ref(), snapshot.demand.get(id), "{id}");
        }
        for (id, value) in &self.allocations {
            assert_eq!(value.as_ref(), snapshot.allocations.get(id), "{id}");
        }
    }
}

fn differing<K: Ord + Clone, V: Clone + PartialEq>(
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let keys = before.keys().chain(now.keys());
    let differ = keys.filter(|key| before.get(*key) != now.get(*key));
    differ
        .map(|key| (key.clone(), now.get(key).cloned()))
        .collect()
}
