//! Work that must not share a host, or a fault domain, with others of its group: an active and what
//! stands by for it (container placement, 11.1).
//!
//! Whatever holds room counts, also what was told to leave: it runs until it is gone.

use super::RoundState;
use crate::index::FleetIndex;

impl RoundState<'_> {
    /// Another one of its group is there. Nodes without the label that keeps them apart cannot be
    /// told from each other, so nothing of the group goes there.
    pub fn violates_anti_affinity(&self, at: usize, node: usize) -> bool {
        self.violates_among(at, node, |_| true)
    }

    /// The same once everything that leaves has left.
    pub fn will_violate_anti_affinity(&self, at: usize, node: usize) -> bool {
        self.violates_among(at, node, |share| !self.leaving[share])
    }

    /// By those of the shares that are held that count.
    fn violates_among(&self, at: usize, node: usize, counts: impl Fn(usize) -> bool) -> bool {
        let Some(apart) = &self.work_record(at).constraints().apart else {
            return false;
        };
        let label = apart.by_label.as_deref();
        if label.is_some_and(|label| domain(self.index, node, label).is_none()) {
            return true;
        }
        let group = self.index.groups.get(&apart.group);
        let mut others = group.into_iter().flatten().filter(|other| **other != at);
        others.any(|other| self.is_near(*other, node, label, &counts))
    }

    fn is_near(
        &self,
        other: usize,
        node: usize,
        label: Option<&str>,
        counts: &impl Fn(usize) -> bool,
    ) -> bool {
        let near = |place: usize| match label {
            None => place == node,
            Some(label) => {
                let domain = |at| domain(self.index, at, label);
                place == node || domain(place) == domain(node)
            }
        };
        let allocation = self.work_record(other).allocations.iter();
        let allocation = allocation.filter(|share| counts(*share));
        let mut allocation = allocation.filter_map(|share| self.allocations[share].node);
        let granted = || {
            let placed = self.work[other].placed > 0;
            let mut its = self.granted.iter().filter(|it| it.live && it.work == other);
            placed && its.any(|it| near(it.node))
        };
        allocation.any(near) || granted()
    }

    /// There is room for it, and only where others of its group are.
    pub fn anti_affinity_blocks(&self, at: usize) -> bool {
        let (quanta, size) = (self.work[at].process_quanta, self.size(at));
        self.work[at].has_anti_affinity
            && (0..self.nodes.len()).any(|node| {
                let node_state = &self.nodes[node];
                node_state.is_schedulable()
                    && node_state.free.fitting(quanta, size) > 0
                    && self.could_use(at, node)
                    && self.violates_anti_affinity(at, node)
            })
    }
}

fn domain<'r>(index: &'r FleetIndex, node: usize, label: &str) -> Option<&'r str> {
    let labels = &index.nodes[node].node.labels;
    labels.get(label).map(String::as_str)
}

impl FleetIndex {
    pub(crate) fn join_group(&mut self, at: usize) {
        if let Some(apart) = &self.work[at].constraints().apart {
            self.groups.entry(apart.group.clone()).or_default().push(at);
        }
    }

    pub(crate) fn leave_group(&mut self, at: usize) {
        let Some(apart) = &self.work[at].constraints().apart else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&apart.group) {
            group.retain(|other| *other != at);
            if group.is_empty() {
                self.groups.remove(&apart.group);
            }
        }
    }
}

#[cfg(test)]
mod tests;
