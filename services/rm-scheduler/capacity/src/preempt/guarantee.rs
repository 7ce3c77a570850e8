//! Guaranteed part of each leaf, by resource type. A leaf without its own guarantee takes part in
//! the guarantee of its nearest ancestor that has one. The active leaves share what remains of that
//! guarantee in equal parts. A leaf below its part is no victim, and a leaf above it does not
//! preempt. Siblings below one guarantee therefore never preempt each other alternately.

use std::collections::BTreeMap;

use super::PreemptionRequest;
use crate::{
    resource_vec::{LimitVector, Vector},
    round_state::{AllocationState, RoundState},
};

pub(super) struct Guarantees {
    /// Guaranteed part, by queue. Only leaves have one.
    parts: Vec<LimitVector>,
    /// Queue that provides the guarantee, by leaf and resource type.
    sources: Vec<Vec<Option<usize>>>,
}

/// The guarantee of a queue for one resource type, as far as its leaves share it.
#[derive(Clone, Copy, Default)]
struct SharedGuarantee {
    /// Amount without the guarantees of the queues below.
    unassigned: u64,
    /// Number of active leaves that share the amount.
    leaf_count: u64,
}

impl Guarantees {
    pub fn new(round: &RoundState) -> Self {
        let queue_count = round.tree.entries.len();
        let none = vec![None; round.dims.len()];
        let mut guarantees = Self {
            parts: vec![none; queue_count],
            sources: vec![vec![None; round.dims.len()]; queue_count],
        };
        let active = active_leaves(round);
        for dim in 1..round.dims.len() {
            guarantees.divide(round, dim, &active);
        }
        guarantees
    }

    /// Divides the guarantees of one resource type among the leaves.
    fn divide(&mut self, round: &RoundState, dim: usize, active: &[bool]) {
        let entries = &round.tree.entries;
        let find_source = |queue: usize| {
            let mut path = round.tree.path(queue);
            path.find(|index| entries[*index].guaranteed[dim].is_some())
        };
        let mut shared: BTreeMap<usize, SharedGuarantee> = BTreeMap::new();
        for (index, queue_state) in entries.iter().enumerate() {
            if let Some(guarantee) = queue_state.guaranteed[dim] {
                shared.entry(index).or_default().unassigned += guarantee;
                if let Some(ancestor) = queue_state.parent.and_then(find_source) {
                    let unassigned = &mut shared.entry(ancestor).or_default().unassigned;
                    *unassigned = unassigned.saturating_sub(guarantee);
                }
            }
        }
        for leaf in round.tree.leaves().filter(|leaf| active[*leaf]) {
            if let Some(source) = find_source(leaf) {
                shared.entry(source).or_default().leaf_count += 1;
            }
        }
        for leaf in round.tree.leaves() {
            let Some(source) = find_source(leaf) else {
                continue;
            };
            let SharedGuarantee {
                unassigned,
                leaf_count,
            } = shared[&source];
            self.sources[leaf][dim] = Some(source);
            self.parts[leaf][dim] = Some(if source == leaf {
                entries[leaf].guaranteed[dim].unwrap_or(0)
            } else {
                unassigned / leaf_count.max(1)
            });
        }
    }

    /// Returns true if a needed type is guaranteed, and the leaf would stay within its part. Space
    /// that victims are freeing counts as used.
    pub fn stays_within_guarantee(&self, round: &RoundState, leaf: usize, needed: &Vector) -> bool {
        let reserved = round.reserved_with_victims(leaf);
        let needed_dims = (1..needed.len()).filter(|dim| needed[*dim] > 0);
        let parts = needed_dims.filter_map(|dim| Some((dim, self.parts[leaf][dim]?)));
        let mut parts = parts.peekable();
        let needed_usage =
            |dim: usize| remaining_usage(round, leaf, dim) + needed[dim] + reserved[dim];
        parts.peek().is_some() && parts.all(|(dim, part)| needed_usage(dim) <= part)
    }

    /// Returns true if this queue would exceed the guarantee that the leaf shares. Other leaves
    /// then use the part of this leaf.
    pub fn is_guarantee_exhausted(
        &self,
        round: &RoundState,
        leaf: usize,
        queue: usize,
        needed: &Vector,
    ) -> bool {
        let reserved = round.reserved_with_victims(queue);
        let mut shared_dims = (1..needed.len()).filter(|dim| {
            leaf != queue && needed[*dim] > 0 && self.sources[leaf][*dim] == Some(queue)
        });
        shared_dims.any(|dim| {
            let guarantee = round.tree.entries[queue].guaranteed[dim].unwrap_or(0);
            remaining_usage(round, queue, dim) + needed[dim] + reserved[dim] > guarantee
        })
    }

    /// Returns true if the leaf has more of a needed type than it must retain.
    pub fn may_lose(&self, round: &RoundState, leaf: usize, request: &PreemptionRequest) -> bool {
        let mut needed_dims = (1..request.vector.len()).filter(|dim| request.vector[*dim] > 0);
        needed_dims.any(|dim| {
            let minimum = self
                .required_minimum(round, leaf, request, dim)
                .unwrap_or(0);
            remaining_usage(round, leaf, dim) > minimum
                && !self.shares_guarantee(leaf, request, dim)
        })
    }

    /// Returns true if both leaves share one guarantee above them that covers the needed type.
    fn shares_guarantee(&self, leaf: usize, request: &PreemptionRequest, dim: usize) -> bool {
        let source = self.sources[leaf][dim].filter(|source| *source != leaf);
        source.is_some() && source == self.sources[request.leaf][dim] && request.vector[dim] > 0
    }

    /// Returns the amount that the leaf must retain. A part of a guarantee above both leaves does
    /// not count if the requesting leaf has a nearer guarantee.
    fn required_minimum(
        &self,
        round: &RoundState,
        leaf: usize,
        request: &PreemptionRequest,
        dim: usize,
    ) -> Option<u64> {
        let source = self.sources[leaf][dim]?;
        let nearer_source = self.sources[request.leaf][dim].filter(|queue| *queue != source);
        let gives_way =
            source != leaf && nearer_source.is_some_and(|queue| round.tree.is_below(queue, source));
        self.parts[leaf][dim].filter(|_| !gives_way)
    }

    /// Returns true if no queue on the victim's path would fall below its guarantee. Queues above
    /// both leaves are not checked, because the preempting work is below them too.
    pub fn allows(
        &self,
        round: &RoundState,
        request: &PreemptionRequest,
        victim: &AllocationState,
        freed: &BTreeMap<usize, Vector>,
    ) -> bool {
        let Some(leaf) = victim.queue else {
            return false;
        };
        let victim = &victim.vector;
        let keeps_minimum = |queue: usize, dim: usize, minimum: Option<u64>| {
            let freed_amount = freed.get(&queue).map_or(0, |freed| freed[dim]);
            let remaining = remaining_usage(round, queue, dim).saturating_sub(freed_amount);
            remaining.saturating_sub(victim[dim]) >= minimum.unwrap_or(0)
                || victim[dim] == 0
                || minimum.is_none()
        };
        let is_shared = |dim: usize| victim[dim] > 0 && self.shares_guarantee(leaf, request, dim);
        let ancestors = round.tree.path(leaf);
        let mut ancestors =
            ancestors.take_while(|queue| !round.tree.is_below(request.leaf, *queue));
        let dims = 1..victim.len();
        dims.clone().all(|dim| {
            !is_shared(dim)
                && keeps_minimum(leaf, dim, self.required_minimum(round, leaf, request, dim))
        }) && ancestors.all(|queue| {
            let minimum = &round.tree.entries[queue].guaranteed;
            dims.clone()
                .all(|dim| keeps_minimum(queue, dim, minimum[dim]))
        })
    }
}

/// Returns the usage of a queue without allocations that are leaving.
pub(super) fn remaining_usage(round: &RoundState, queue: usize, dim: usize) -> u64 {
    let queue_state = &round.tree.entries[queue];
    queue_state.used[dim].saturating_sub(queue_state.leaving[dim])
}

/// Returns for each queue whether it is a leaf with allocations or waiting work.
fn active_leaves(round: &RoundState) -> Vec<bool> {
    let mut active: Vec<bool> = round.tree.entries.iter().map(|it| it.running > 0).collect();
    for (index, item) in round.items.iter().enumerate() {
        if let Some(queue) = round.queue_of(index).filter(|_| item.wanted > 0) {
            active[queue] = true;
        }
    }
    active
}
