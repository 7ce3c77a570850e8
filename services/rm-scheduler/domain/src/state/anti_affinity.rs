//! Anti-affinity: work that must not share a node or a fault domain with other work of its group.
//! An example is an active process and its standby. A fault domain is all nodes with one value of a
//! label, such as one rack.
//!
//! Leaving allocations count until they have left, because their processes still run.

use super::RoundState;
use crate::{
    ids::{AllocIx, NodeIx, WorkIx},
    index::FleetIndex,
};

impl RoundState<'_> {
    /// Returns true if another member of the group is on the node or in its fault domain. A node
    /// without the fault-domain label may be in any domain, so no member may go there.
    pub fn violates_anti_affinity(&self, work: WorkIx, node: NodeIx) -> bool {
        self.violates_among(work, node, |_| true)
    }

    /// Returns true if another member will still be on the node, or in its fault domain, after
    /// everything that leaves has left.
    pub fn will_violate_anti_affinity(&self, work: WorkIx, node: NodeIx) -> bool {
        self.violates_among(work, node, |allocation| !self.leaving[allocation])
    }

    /// Returns true if anti-affinity is violated by allocations for which `is_counted` holds.
    fn violates_among(
        &self,
        work: WorkIx,
        node: NodeIx,
        is_counted: impl Fn(AllocIx) -> bool,
    ) -> bool {
        let Some(apart) = &self.work_record(work).constraints().anti_affinity else {
            return false;
        };
        let label = apart.by_label.as_deref();
        if label.is_some_and(|label| fault_domain(self.index, node, label).is_none()) {
            return true;
        }
        let group = self.index.anti_affinity_groups.get(&apart.group);
        let mut others = group.into_iter().flatten().filter(|other| **other != work);
        others.any(|other| self.has_allocation_near(*other, node, label, &is_counted))
    }

    /// Returns true if the other work has an allocation or a grant on this node or in its fault
    /// domain.
    fn has_allocation_near(
        &self,
        other: WorkIx,
        node: NodeIx,
        label: Option<&str>,
        is_counted: &impl Fn(AllocIx) -> bool,
    ) -> bool {
        let is_near = |other: NodeIx| match label {
            None => other == node,
            Some(label) => {
                let fault_domain = |node| fault_domain(self.index, node, label);
                other == node || fault_domain(other) == fault_domain(node)
            }
        };
        let allocations = self.work_record(other).allocations.iter();
        let allocations = allocations.filter(|allocation| is_counted(*allocation));
        let mut nodes = allocations.filter_map(|allocation| self.allocations[allocation].node);
        let has_grant_near = || {
            let has_placed = self.work[other].placed > 0;
            let mut grants = self
                .granted
                .iter()
                .filter(|grant| grant.live && grant.work == other);
            has_placed && grants.any(|grant| is_near(grant.node))
        };
        nodes.any(is_near) || has_grant_near()
    }

    /// Returns true if there is space for the work, but only next to others of its group.
    pub fn anti_affinity_blocks(&self, work: WorkIx) -> bool {
        let (quanta, size) = (self.work[work].process_quanta, self.size(work));
        self.work[work].has_anti_affinity
            && self.nodes.indices().any(|node| {
                let node_state = &self.nodes[node];
                node_state.is_schedulable()
                    && node_state.free.count_fitting(quanta, size) > 0
                    && self.could_use(work, node)
                    && self.violates_anti_affinity(work, node)
            })
    }
}

fn fault_domain<'r>(index: &'r FleetIndex, node: NodeIx, label: &str) -> Option<&'r str> {
    let labels = &index.nodes[node].node.labels;
    labels.get(label).map(String::as_str)
}

impl FleetIndex {
    /// Adds the work to its anti-affinity group, if it has one.
    pub(crate) fn join_group(&mut self, work: WorkIx) {
        if let Some(apart) = &self.work[work].constraints().anti_affinity {
            self.anti_affinity_groups
                .entry(apart.group.clone())
                .or_default()
                .push(work);
        }
    }

    /// Removes the work from its anti-affinity group, if it has one.
    pub(crate) fn leave_group(&mut self, work: WorkIx) {
        let Some(apart) = &self.work[work].constraints().anti_affinity else {
            return;
        };
        if let Some(group) = self.anti_affinity_groups.get_mut(&apart.group) {
            group.retain(|other| *other != work);
            if group.is_empty() {
                self.anti_affinity_groups.remove(&apart.group);
            }
        }
    }
}

#[cfg(test)]
mod tests;
