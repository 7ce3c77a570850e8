//! Guaranteed part of each leaf, by resource type. A leaf without its own guarantee takes part in
//! the guarantee of its nearest ancestor that has one. The active leaves share what remains of that
//! guarantee in equal parts. A leaf below its part is no victim, and a leaf above it does not
//! preempt. Siblings below one guarantee therefore never preempt each other alternately.

use std::collections::BTreeMap;

use super::PreemptionRequest;
use crate::{
    resource_vec::{Sparse, Vector},
    round_state::{HeldAllocation, RoundState},
};

pub(super) struct Guarantees {
    /// Guaranteed part, by queue. Only leaves have one.
    part: Vec<Sparse>,
    /// Queue that provides the guarantee, by leaf and resource type.
    source: Vec<Vec<Option<usize>>>,
}

impl Guarantees {
    pub fn new(round: &RoundState) -> Self {
        let count = round.tree.entries.len();
        let none = vec![None; round.dims.len()];
        let mut all = Self {
            part: vec![none; count],
            source: vec![vec![None; round.dims.len()]; count],
        };
        let active = active(round);
        for dim in 1..round.dims.len() {
            all.divide(round, dim, &active);
        }
        all
    }

    fn divide(&mut self, round: &RoundState, dim: usize, active: &[bool]) {
        let entries = &round.tree.entries;
        let source = |from: usize| {
            let mut path = round.tree.path(from);
            path.find(|at| entries[*at].guaranteed[dim].is_some())
        };
        // Remaining guarantee of a queue, and the number of leaves that share it.
        let mut left: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (at, queue_state) in entries.iter().enumerate() {
            if let Some(own) = queue_state.guaranteed[dim] {
                left.entry(at).or_default().0 += own;
                if let Some(above) = queue_state.parent.and_then(source) {
                    let rest = &mut left.entry(above).or_default().0;
                    *rest = rest.saturating_sub(own);
                }
            }
        }
        for leaf in round.tree.leaves().filter(|leaf| active[*leaf]) {
            if let Some(from) = source(leaf) {
                left.entry(from).or_default().1 += 1;
            }
        }
        for leaf in round.tree.leaves() {
            let Some(from) = source(leaf) else { continue };
            let (rest, sharing) = left[&from];
            self.source[leaf][dim] = Some(from);
            self.part[leaf][dim] = Some(if from == leaf {
                entries[leaf].guaranteed[dim].unwrap_or(0)
            } else {
                rest / sharing.max(1)
            });
        }
    }

    /// Returns true if a needed type is guaranteed, and the leaf would stay within its part. Space
    /// that victims are freeing counts as used.
    pub fn is_short(&self, round: &RoundState, leaf: usize, needed: &Vector) -> bool {
        let cleared = round.cleared_at(leaf);
        let requested = (1..needed.len()).filter(|dim| needed[*dim] > 0);
        let parts = requested.filter_map(|dim| Some((dim, self.part[leaf][dim]?)));
        let mut parts = parts.peekable();
        let with = |dim: usize| net(round, leaf, dim) + needed[dim] + cleared[dim];
        parts.peek().is_some() && parts.all(|(dim, part)| with(dim) <= part)
    }

    /// Returns true if queue `at` would exceed the guarantee that the leaf shares. Other leaves
    /// then use the part of this leaf.
    pub fn is_used_up(&self, round: &RoundState, leaf: usize, at: usize, needed: &Vector) -> bool {
        let cleared = round.cleared_at(at);
        let mut shared = (1..needed.len())
            .filter(|dim| leaf != at && needed[*dim] > 0 && self.source[leaf][*dim] == Some(at));
        shared.any(|dim| {
            let most = round.tree.entries[at].guaranteed[dim].unwrap_or(0);
            net(round, at, dim) + needed[dim] + cleared[dim] > most
        })
    }

    /// Returns true if the leaf has more of a needed type than it must retain.
    pub fn may_lose(&self, round: &RoundState, leaf: usize, request: &PreemptionRequest) -> bool {
        let mut requested = (1..request.vector.len()).filter(|dim| request.vector[*dim] > 0);
        requested.any(|dim| {
            let least = self.least(round, leaf, request, dim).unwrap_or(0);
            net(round, leaf, dim) > least && !self.is_sheltered(leaf, request, dim)
        })
    }

    /// Returns true if both leaves share one guarantee above them that covers the needed type.
    fn is_sheltered(&self, leaf: usize, request: &PreemptionRequest, dim: usize) -> bool {
        let from = self.source[leaf][dim].filter(|from| *from != leaf);
        from.is_some() && from == self.source[request.leaf][dim] && request.vector[dim] > 0
    }

    /// Returns the amount that the leaf must retain. A part of a guarantee above both leaves does
    /// not count if the requesting leaf has a nearer guarantee.
    fn least(
        &self,
        round: &RoundState,
        leaf: usize,
        request: &PreemptionRequest,
        dim: usize,
    ) -> Option<u64> {
        let from = self.source[leaf][dim]?;
        let nearer = self.source[request.leaf][dim].filter(|own| *own != from);
        let gives_way = from != leaf && nearer.is_some_and(|own| round.tree.is_below(own, from));
        self.part[leaf][dim].filter(|_| !gives_way)
    }

    /// Returns true if no queue on the victim's path would fall below its guarantee. Queues above
    /// both leaves are not checked, because they gain what they lose.
    pub fn allows(
        &self,
        round: &RoundState,
        request: &PreemptionRequest,
        victim: &HeldAllocation,
        freed: &BTreeMap<usize, Vector>,
    ) -> bool {
        let Some(leaf) = victim.queue else {
            return false;
        };
        let victim = &victim.vector;
        let stays = |at: usize, dim: usize, least: Option<u64>| {
            let before = freed.get(&at).map_or(0, |freed| freed[dim]);
            let left = net(round, at, dim).saturating_sub(before);
            left.saturating_sub(victim[dim]) >= least.unwrap_or(0)
                || victim[dim] == 0
                || least.is_none()
        };
        let sheltered = |dim: usize| victim[dim] > 0 && self.is_sheltered(leaf, request, dim);
        let own = round.tree.path(leaf);
        let mut own = own.take_while(|at| !round.tree.is_below(request.leaf, *at));
        let dims = 1..victim.len();
        dims.clone()
            .all(|dim| !sheltered(dim) && stays(leaf, dim, self.least(round, leaf, request, dim)))
            && own.all(|at| {
                let least = &round.tree.entries[at].guaranteed;
                dims.clone().all(|dim| stays(at, dim, least[dim]))
            })
    }
}

/// Returns the usage without allocations that are leaving.
pub(super) fn net(round: &RoundState, at: usize, dim: usize) -> u64 {
    let queue_state = &round.tree.entries[at];
    queue_state.used[dim].saturating_sub(queue_state.going[dim])
}

/// Returns for each queue whether it is a leaf with allocations or waiting work.
fn active(round: &RoundState) -> Vec<bool> {
    let mut active: Vec<bool> = round.tree.entries.iter().map(|it| it.running > 0).collect();
    for (at, item) in round.items.iter().enumerate() {
        if let Some(queue) = round.queue_of(at).filter(|_| item.wanted > 0) {
            active[queue] = true;
        }
    }
    active
}
