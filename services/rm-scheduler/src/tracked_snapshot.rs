//! The snapshot of the next round, with its changes since the last round and since the last
//! recording.
//!
//! A [`TrackedSnapshot`] can be read like a [`Snapshot`], and is changed only by its methods, which
//! record each change. The cost of planning a round and of recording its inputs therefore grows
//! with the changes, and not with the fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use hayward_rm_scheduler_domain::budget::PreemptedQuanta;
use hayward_rm_scheduler_domain::fleet_invariants::Sequence;
use hayward_rm_scheduler_domain::snapshot::external_planners::ExternalPlannerState;
use hayward_rm_scheduler_domain::snapshot::queues::Queues;
use hayward_rm_scheduler_domain::snapshot::{Allocation, Carried, Demand, Node};
use hayward_rm_scheduler_domain::{Snapshot, SnapshotDelta};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};

pub struct TrackedSnapshot {
    snapshot: Snapshot,
    changed: ChangedKeys,
    /// Changes since the last round.
    unplanned: SnapshotDelta,
    /// Numbered order of changes, for the invariant checks.
    sequence: Sequence,
}

/// Keys of the entries that changed since the last recording.
#[derive(Debug, Default)]
struct ChangedKeys {
    /// True if all entries and all other fields count as changed.
    all: bool,
    nodes: BTreeSet<NodeName>,
    demand: BTreeSet<WorkId>,
    allocations: BTreeSet<AllocationId>,
    queues: bool,
    /// True if the state of an external planner changed.
    external_planners: bool,
}

impl ChangedKeys {
    /// Marks all entries as changed. Single keys are then not collected, so a snapshot that is
    /// never recorded costs nothing.
    fn all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    fn record_node(&mut self, name: &NodeName) {
        if !self.all {
            self.nodes.insert(name.clone());
        }
    }

    fn record_work(&mut self, work: &WorkId) {
        if !self.all {
            self.demand.insert(work.clone());
        }
    }

    fn record_allocation(&mut self, id: &AllocationId) {
        if !self.all {
            self.allocations.insert(id.clone());
        }
    }
}

/// The difference between a recorded snapshot and a later one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// The later snapshot as a whole.
    Whole(Box<Snapshot>),
    /// The entries that changed since the recorded snapshot.
    #[serde(rename = "since")]
    Changes(Box<ChangedEntries>),
}

/// Changed entries of a snapshot. An absent entry is unchanged, and `null` means that the entry is
/// removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedEntries {
    now: Timestamp,
    round: u64,
    carried: Carried,
    #[serde(
        rename = "taken_back",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    preempted_quanta: PreemptedQuanta,
    /// Queues of all pools. `None` if no queue changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queues: Option<BTreeMap<String, Queues>>,
    /// External planners of all pools. `None` if none changed.
    #[serde(rename = "outside", default, skip_serializing_if = "Option::is_none")]
    external_planners: Option<BTreeMap<String, ExternalPlannerState>>,
    nodes: BTreeMap<NodeName, Option<Node>>,
    demand: BTreeMap<WorkId, Option<Demand>>,
    allocations: BTreeMap<AllocationId, Option<Allocation>>,
}

impl Deref for TrackedSnapshot {
    type Target = Snapshot;
    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl TrackedSnapshot {
    /// Creates a tracked snapshot of which nothing is recorded yet.
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            changed: ChangedKeys::all(),
            unplanned: SnapshotDelta::everything(),
            sequence: Sequence::default(),
        }
    }

    /// Returns the changes since the last round without taking them.
    pub fn unplanned(&self) -> &SnapshotDelta {
        &self.unplanned
    }

    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// Takes the changes since the last call.
    pub fn take_unplanned(&mut self) -> SnapshotDelta {
        // The invariant checks need to know which changes preceded the round.
        self.sequence.record_round();
        std::mem::take(&mut self.unplanned)
    }

    pub fn set_now(&mut self, now: Timestamp) {
        self.snapshot.now = now;
    }

    pub fn set_round(&mut self, round: u64) {
        self.snapshot.round = round;
    }

    pub fn set_carried(&mut self, carried: Carried) {
        self.snapshot.carried = carried;
    }

    pub fn set_preempted_quanta(&mut self, preempted_quanta: PreemptedQuanta) {
        self.snapshot.preempted_quanta = preempted_quanta;
    }

    /// Sets the queues of a pool that already has queues. To add or remove the queues of a pool,
    /// use [`TrackedSnapshot::replace_all`].
    pub fn set_queues(&mut self, pool: &str, queues: Queues) {
        if let Some(known) = self.snapshot.queues.get_mut(pool) {
            *known = queues;
            self.changed.queues = true;
        }
    }

    /// Sets the state of the external planner of a pool that has one.
    pub fn set_external_planner(&mut self, pool: &str, state: ExternalPlannerState) {
        if let Some(known) = self.snapshot.external_planners.get_mut(pool) {
            *known = state;
            self.changed.external_planners = true;
        }
    }

    pub fn set_node(&mut self, name: NodeName, node: Node) {
        self.changed.record_node(&name);
        self.unplanned.nodes.insert(name.clone());
        let before = self.snapshot.nodes.get(&name);
        self.sequence.record_node(&name, before, &node);
        self.snapshot.nodes.insert(name, node);
    }

    pub fn remove_node(&mut self, name: &NodeName) {
        self.changed.record_node(name);
        self.unplanned.nodes.insert(name.clone());
        self.sequence.forget_node(name);
        self.snapshot.nodes.remove(name);
    }

    /// Records a change of work for the next round, unless that round reads the whole snapshot.
    fn record_unplanned_work(&mut self, work: &WorkId, demand: Option<&Demand>) {
        if !self.unplanned.everything {
            self.unplanned.work.insert(work.clone(), demand.cloned());
        }
    }

    pub fn set_demand(&mut self, work: WorkId, demand: Demand) {
        self.changed.record_work(&work);
        self.record_unplanned_work(&work, Some(&demand));
        self.snapshot.demand.insert(work, demand);
    }

    pub fn remove_demand(&mut self, work: &WorkId) {
        self.changed.record_work(work);
        self.record_unplanned_work(work, None);
        self.snapshot.demand.remove(work);
    }

    /// Sets or removes an allocation, and returns the previous one. The change may be temporary;
    /// [`TrackedSnapshot::expose_to_checks`] makes it final.
    pub fn set_allocation(
        &mut self,
        id: &AllocationId,
        allocation: Option<Allocation>,
    ) -> Option<Allocation> {
        self.changed.record_allocation(id);
        if !self.unplanned.everything {
            let copy = allocation.clone();
            self.unplanned.allocations.insert(id.clone(), copy);
        }
        match allocation {
            Some(allocation) => self.snapshot.allocations.insert(id.clone(), allocation),
            None => self.snapshot.allocations.remove(id),
        }
    }

    /// Makes the present state of an allocation visible to the invariant checks.
    pub fn expose_to_checks(&mut self, id: &AllocationId, node: &NodeName) {
        let holds = self.snapshot.allocations.contains_key(id);
        self.sequence.record_allocation(id, holds);
        self.sequence.record_change_on_node(node);
    }

    /// Applies a rare change that may touch anything, such as another policy. The next round is
    /// recorded as a whole.
    pub fn replace_all(&mut self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.snapshot);
        self.sequence.restart(&self.snapshot);
        self.unplanned = SnapshotDelta::everything();
        self.mark_all_changed();
    }

    /// Marks everything as changed, so that the next recording is a whole snapshot.
    pub fn mark_all_changed(&mut self) {
        self.changed = ChangedKeys::all();
    }

    /// Takes the changes to record, or the whole snapshot if `whole` is true. The changes count as
    /// recorded from now on. [`TrackedSnapshot::restore_unrecorded`] undoes that.
    pub fn take_unrecorded(&mut self, whole: bool) -> Delta {
        let changed = std::mem::take(&mut self.changed);
        if whole || changed.all {
            return Delta::Whole(Box::new(self.snapshot.clone()));
        }
        Delta::Changes(Box::new(ChangedEntries {
            now: self.snapshot.now,
            round: self.snapshot.round,
            carried: self.snapshot.carried.clone(),
            preempted_quanta: self.snapshot.preempted_quanta.clone(),
            queues: changed.queues.then(|| self.snapshot.queues.clone()),
            external_planners: changed
                .external_planners
                .then(|| self.snapshot.external_planners.clone()),
            nodes: changed_entries(changed.nodes, &self.snapshot.nodes),
            demand: changed_entries(changed.demand, &self.snapshot.demand),
            allocations: changed_entries(changed.allocations, &self.snapshot.allocations),
        }))
    }

    /// Marks changes as unrecorded again, because their round was not recorded after all.
    pub fn restore_unrecorded(&mut self, delta: Delta) {
        match delta {
            Delta::Whole(_) => self.mark_all_changed(),
            Delta::Changes(entries) if !self.changed.all => {
                self.changed.queues |= entries.queues.is_some();
                self.changed.external_planners |= entries.external_planners.is_some();
                self.changed.nodes.extend(entries.nodes.into_keys());
                self.changed.demand.extend(entries.demand.into_keys());
                let allocations = entries.allocations.into_keys();
                self.changed.allocations.extend(allocations);
            }
            Delta::Changes(_) => {}
        }
    }
}

fn changed_entries<K: Ord, V: Clone>(
    changed: BTreeSet<K>,
    all: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let entry = |key: K| {
        let value = all.get(&key).cloned();
        (key, value)
    };
    changed.into_iter().map(entry).collect()
}

impl Delta {
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Changes the recorded snapshot to the later one.
    pub fn apply(self, snapshot: &mut Snapshot) {
        match self {
            Self::Whole(whole) => *snapshot = *whole,
            Self::Changes(entries) => {
                snapshot.now = entries.now;
                snapshot.round = entries.round;
                snapshot.carried = entries.carried;
                snapshot.preempted_quanta = entries.preempted_quanta;
                if let Some(queues) = entries.queues {
                    snapshot.queues = queues;
                }
                if let Some(external_planners) = entries.external_planners {
                    snapshot.external_planners = external_planners;
                }
                apply_changes(&mut snapshot.nodes, entries.nodes);
                apply_changes(&mut snapshot.demand, entries.demand);
                apply_changes(&mut snapshot.allocations, entries.allocations);
            }
        }
    }
}

/// Sets entries that have a value, and removes entries whose value is `None`.
pub fn apply_changes<K: Ord, V>(all: &mut BTreeMap<K, V>, changed: BTreeMap<K, Option<V>>) {
    for (key, value) in changed {
        match value {
            Some(value) => drop(all.insert(key, value)),
            None => drop(all.remove(&key)),
        }
    }
}
