//! The fair-share snapshot: the part of a snapshot that the fair-share planner may see, updated
//! from round to round.
//!
//! Invariant: the fair-share snapshot depends only on the whole snapshot, not on earlier updates.
//! Each update visits all allocations and nodes.

use std::collections::{BTreeMap, HashSet};

use hayward_rm_scheduler_domain::{
    Snapshot, SnapshotDelta,
    snapshot::{Carried, Node},
};
use hayward_vocabulary::NodeName;

use super::planner_assignment::{AssignedPlanner, PlannerAssignment};

/// A snapshot without the work of other planners and the nodes of their pools.
pub(super) struct FairShareSnapshot(Snapshot);

impl FairShareSnapshot {
    /// Returns true if other planners plan a part of the fleet. Otherwise fair shares are planned
    /// from the whole snapshot.
    pub fn is_needed(snapshot: &Snapshot) -> bool {
        let mut demand = snapshot.demand.values();
        let has_other_pools = !snapshot.queues.is_empty() || !snapshot.external_planners.is_empty();
        has_other_pools || demand.any(|demand| demand.queued.is_some())
    }

    /// Returns true if the delta adds queued work, so that a fair-share snapshot is needed. A new
    /// policy with queues is not examined here, because its delta marks everything as changed.
    pub fn adds_queued_work(delta: &SnapshotDelta) -> bool {
        let mut new_demand = delta.work.values().flatten();
        new_demand.any(|demand| demand.queued.is_some())
    }

    pub fn new(snapshot: &Snapshot) -> Self {
        let mut fair_share_snapshot = Self(Snapshot::empty());
        let delta = SnapshotDelta::for_work(snapshot, snapshot.demand.keys().cloned());
        fair_share_snapshot.update(snapshot, &delta);
        fair_share_snapshot
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.0
    }

    /// Updates the fair-share snapshot to a new whole snapshot. Returns the differences.
    pub fn update(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) -> SnapshotDelta {
        let assignment = PlannerAssignment::new(snapshot);
        self.copy_settings(snapshot, &assignment);
        let mut changes = SnapshotDelta::default();
        for (work, demand) in &delta.work {
            let demand = demand.as_ref();
            let fair_demand = demand.filter(|demand| assignment.is_fair_share(snapshot, demand));
            match fair_demand {
                Some(demand) => drop(self.0.demand.insert(work.clone(), demand.clone())),
                None => drop(self.0.demand.remove(work)),
            }
            changes.work.insert(work.clone(), fair_demand.cloned());
        }
        let node_assignments = self.update_allocations(snapshot, assignment, delta, &mut changes);
        self.update_nodes(snapshot, delta, &node_assignments, &mut changes);
        changes
    }

    fn copy_settings(&mut self, snapshot: &Snapshot, assignment: &PlannerAssignment) {
        let target = &mut self.0;
        (target.now, target.round) = (snapshot.now, snapshot.round);
        copy_if_changed(&mut target.quantum, &snapshot.quantum);
        copy_if_changed(&mut target.tunables, &snapshot.tunables);
        copy_if_changed(&mut target.pools, &snapshot.pools);
        copy_if_changed(&mut target.classes, &snapshot.classes);
        match assignment.remaining_allotments(snapshot) {
            None => copy_if_changed(&mut target.users, &snapshot.users),
            Some(users) => target.users = users,
        }
        copy_if_changed(&mut target.preempted_quanta, &snapshot.preempted_quanta);
        let carried = Carried {
            queues: BTreeMap::new(),
            used_responses: BTreeMap::new(),
            ..snapshot.carried.clone()
        };
        target.carried = carried;
    }

    fn update_allocations<'s>(
        &mut self,
        snapshot: &'s Snapshot,
        assignment: PlannerAssignment,
        delta: &SnapshotDelta,
        changes: &mut SnapshotDelta,
    ) -> NodeAssignments<'s> {
        let mut node_assignments = NodeAssignments {
            assignment,
            with_fair_share: HashSet::new(),
            with_other: HashSet::new(),
        };
        let allocations = &mut self.0.allocations;
        for (id, allocation) in &snapshot.allocations {
            let planner = node_assignments.assignment.planner_of(snapshot, allocation);
            let is_known = allocations.contains_key(id);
            if planner == AssignedPlanner::Other {
                node_assignments.with_other.insert(&allocation.node);
                if is_known {
                    allocations.remove(id);
                    changes.allocations.insert(id.clone(), None);
                }
                continue;
            }
            node_assignments.with_fair_share.insert(&allocation.node);
            if !is_known || delta.allocations.contains_key(id) {
                allocations.insert(id.clone(), allocation.clone());
                changes
                    .allocations
                    .insert(id.clone(), Some(allocation.clone()));
            }
        }
        for (id, _) in delta
            .allocations
            .iter()
            .filter(|(_, allocation)| allocation.is_none())
        {
            allocations.remove(id);
            changes.allocations.insert(id.clone(), None);
        }
        node_assignments
    }

    fn update_nodes(
        &mut self,
        snapshot: &Snapshot,
        delta: &SnapshotDelta,
        node_assignments: &NodeAssignments,
        changes: &mut SnapshotDelta,
    ) {
        let nodes = &mut self.0.nodes;
        for (name, node) in &snapshot.nodes {
            let known = nodes.get(name);
            let Some(takes_work) = node_assignments.takes_fair_share_work(name, node) else {
                if known.is_some() {
                    nodes.remove(name);
                    changes.nodes.insert(name.clone());
                }
                continue;
            };
            let is_unchanged = known.is_some_and(|known| known.takes_work == takes_work);
            if !is_unchanged || delta.nodes.contains(name) {
                let visible_node = Node {
                    takes_work,
                    ..node.clone()
                };
                nodes.insert(name.clone(), visible_node);
                changes.nodes.insert(name.clone());
            }
        }
        for name in &delta.nodes {
            if !snapshot.nodes.contains_key(name) {
                nodes.remove(name);
                changes.nodes.insert(name.clone());
            }
        }
    }
}

fn copy_if_changed<T: PartialEq + Clone>(target: &mut T, source: &T) {
    if target != source {
        target.clone_from(source);
    }
}

/// Nodes with allocations of each planner.
struct NodeAssignments<'s> {
    /// Planner of each pool and class.
    assignment: PlannerAssignment,
    with_fair_share: HashSet<&'s NodeName>,
    with_other: HashSet<&'s NodeName>,
}

impl NodeAssignments<'_> {
    /// Returns whether the fair-share planner may place work on the node, or `None` if the planner
    /// does not see the node.
    fn takes_fair_share_work(&self, name: &NodeName, node: &Node) -> Option<bool> {
        if self.assignment.has_other_planner(&node.pool) {
            return self.with_fair_share.contains(name).then_some(false);
        }
        Some(node.takes_work && !self.with_other.contains(name))
    }
}
