//! Checks anti-affinity, independently of the planner: whether a grant avoids the nodes of all
//! other work of its group.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, WorkId};
use rustc_hash::FxHashMap;

use crate::{
    input::snapshot::{Demand, Snapshot},
    output::plan::Grant,
};

/// Members of the anti-affinity groups, with and without allocations.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AntiAffinityGroups {
    group_by_work: FxHashMap<WorkId, WorkId>,
    /// Work by group.
    members: BTreeMap<WorkId, BTreeSet<WorkId>>,
}

impl AntiAffinityGroups {
    /// Returns whether the work belongs to a group.
    pub fn contains(&self, work: &WorkId) -> bool {
        !self.group_by_work.is_empty() && self.group_by_work.contains_key(work)
    }

    /// Updates the group of this work from its demand. Returns true if the work was in no group and
    /// now is in one.
    pub fn update(&mut self, work: &WorkId, demand: Option<&Demand>) -> bool {
        let apart = demand.and_then(|demand| demand.anti_affinity.as_ref());
        let new_group = apart.map(|apart| &apart.group);
        if self.group_by_work.get(work) == new_group {
            return false;
        }
        let old_group = self.group_by_work.remove(work);
        if let Some(old_group) = &old_group
            && let Some(members) = self.members.get_mut(old_group)
        {
            members.remove(work);
            if members.is_empty() {
                self.members.remove(old_group);
            }
        }
        if let Some(group) = new_group {
            self.group_by_work.insert(work.clone(), group.clone());
            let members = self.members.entry(group.clone()).or_default();
            members.insert(work.clone());
        }
        old_group.is_none()
    }

    /// Returns whether a grant avoids the nodes of other work of its group. Nodes are compared by
    /// name, or by the value of a label that the granted node must have. `nodes_of` returns the
    /// nodes on which a piece of work is or will be.
    pub fn keeps_apart<'a, Nodes: Iterator<Item = &'a NodeName>>(
        &'a self,
        snapshot: &Snapshot,
        grant: &Grant,
        nodes_of: impl Fn(&'a WorkId) -> Nodes,
    ) -> bool {
        let demand = snapshot.demand.get(&grant.work);
        let Some(apart) = demand.and_then(|demand| demand.anti_affinity.as_ref()) else {
            return true;
        };
        let label = apart.by_label.as_ref();
        let value = |node: &NodeName| snapshot.nodes.get(node)?.labels.get(label?);
        let own_value = value(&grant.node);
        let members = self.members.get(&apart.group).into_iter().flatten();
        let mut others = members
            .filter(|work| **work != grant.work)
            .flat_map(nodes_of);
        (label.is_none() || own_value.is_some())
            && others
                .all(|node| *node != grant.node && (label.is_none() || value(node) != own_value))
    }
}
