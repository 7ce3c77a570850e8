//! What differs between two snapshots: the entries themselves, so that nobody has to look for them
//! among all others. Naming too much costs time and changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, WorkId};

use super::snapshot::{Allocation, Demand, Snapshot};

/// Entries that came, went or changed, as the newer snapshot has them. A new policy, new tunables,
/// the time, the number of the round and what is carried are looked at in every round and need not
/// be named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotDelta {
    /// Nothing is known: the whole snapshot is read.
    pub everything: bool,
    pub nodes: BTreeSet<NodeName>,
    /// None where it is withdrawn.
    pub work: BTreeMap<WorkId, Option<Demand>>,
    /// None where it is absent now.
    pub allocations: BTreeMap<AllocationId, Option<Allocation>>,
}

impl SnapshotDelta {
    pub fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// These pieces of work, as the snapshot has them.
    pub fn of_work(snapshot: &Snapshot, ids: impl IntoIterator<Item = WorkId>) -> Self {
        let said = |id: WorkId| (id.clone(), snapshot.demand.get(&id).cloned());
        Self {
            work: ids.into_iter().map(said).collect(),
            ..Self::default()
        }
    }

    /// All that differs between two snapshots.
    pub fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let nodes = differing(&before.nodes, &now.nodes);
        Self {
            everything: false,
            nodes: nodes.into_keys().collect(),
            work: differing(&before.demand, &now.demand),
            allocations: differing(&before.allocations, &now.allocations),
        }
    }

    /// What it carries is what the snapshot says.
    #[cfg(test)]
    pub(crate) fn assert_true(&self, snapshot: &Snapshot) {
        for (id, said) in &self.work {
            assert_eq!(said.as_ref(), snapshot.demand.get(id), "{id}");
        }
        for (id, said) in &self.allocations {
            assert_eq!(said.as_ref(), snapshot.allocations.get(id), "{id}");
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
