//! Selects the victims for one more process: the allocations that leave so that it fits.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{PreemptionRequest, guarantee::Guarantees};
use crate::{
    future_free_space::{FutureFreeSpace, Occupancy},
    reserve::gangs,
    resource_vec::{QUANTA, Vector, add, have_common_type, subtract},
    round_state::RoundState,
};

/// A node, and the victims that make space for the process on it.
pub(super) struct Choice {
    pub node: usize,
    pub victims: Vec<usize>,
}

/// Resources that victims free, by queue.
pub(super) type Freed = BTreeMap<usize, Vector>;

/// Order of preference among sets of victims. The set with the least cost is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// True if the set contains a victim that is preempted only after other work.
    has_reluctant: bool,
    /// True if the set contains a victim that its application depends on.
    has_originator: bool,
    victim_count: usize,
}

impl Cost {
    pub fn new(round: &RoundState, victims: &[usize]) -> Self {
        Self {
            has_reluctant: victims.iter().any(|index| !is_preemptable(round, *index)),
            has_originator: victims.iter().any(|index| is_originator(round, *index)),
            victim_count: victims.len(),
        }
    }
}

/// The search for the victims of one request.
pub(super) struct VictimSearch<'b, 'a> {
    pub round: &'b RoundState<'a>,
    pub guarantees: &'b Guarantees,
    pub request: &'b PreemptionRequest,
    /// Allocations that may leave, in the order in which they are taken.
    pub candidates: Vec<usize>,
}

impl<'b, 'a> VictimSearch<'b, 'a> {
    pub fn new(
        round: &'b RoundState<'a>,
        guarantees: &'b Guarantees,
        request: &'b PreemptionRequest,
    ) -> Self {
        Self {
            round,
            guarantees,
            request,
            candidates: find_candidates(round, guarantees, request),
        }
    }

    /// Chooses the node with the cheapest victims. Among equals, nodes without gang reservations go
    /// first, then the order of names decides.
    pub fn choose(&self, occupancy: &Occupancy) -> Option<Choice> {
        let round = self.round;
        let candidates = self.candidates.iter();
        let candidate_nodes: BTreeSet<usize> = candidates
            .filter_map(|index| round.allocation_states[*index].node)
            .collect();
        let mut best: Option<((Cost, bool), Choice)> = None;
        for (node, node_state) in round.nodes.node_states.iter().enumerate() {
            let has_leaving = candidate_nodes.contains(&node) || node_state.leaving[QUANTA] > 0;
            let has_space = || node_state.has_free_space(&self.request.vector);
            if !self.is_open(node) || !(has_leaving || has_space()) {
                continue;
            }
            let Some(victims) = self.victims_on_node(occupancy, node) else {
                continue;
            };
            let is_reserved = !node_state.reserved_amounts.is_empty();
            let score = (Cost::new(round, &victims), is_reserved);
            if best
                .as_ref()
                .is_none_or(|(least_score, _)| score < *least_score)
            {
                best = Some((score, Choice { node, victims }));
            }
        }
        best.map(|(_, choice)| choice)
    }

    fn is_open(&self, node: usize) -> bool {
        let round = self.round;
        let node_state = &round.nodes.node_states[node];
        let work = round.items[self.request.item].work;
        let reservation = round.carried.reservations.get(node_state.name);
        node_state.node.is_schedulable()
            && node_state.could_hold(&self.request.vector)
            && reservation.is_none_or(|reservation| reservation.work == *work)
            // Space that victims are freeing belongs to the work that they leave for. A gang
            // reservation without victims does not exclude the node.
            && !gangs::has_victims(round, node)
            && round.meets_constraints(self.request.item, node)
    }

    /// Returns the victims for the process on this node, or `None` if it would still not fit.
    /// Candidates are added in order until the process fits, and then each unnecessary one is
    /// dropped. If queues lack quota, victims on other nodes are added in the same way.
    fn victims_on_node(&self, occupancy: &Occupancy, node: usize) -> Option<Vec<usize>> {
        let (round, vector) = (self.round, &self.request.vector);
        let future_without_victims = self.node_after_vacates(occupancy, node);
        let is_on_node = |index: &&usize| round.allocation_states[**index].node == Some(node);
        let mut future = future_without_victims.clone();
        let mut freed = Freed::new();
        let mut victims = Vec::new();
        for index in self.candidates.iter().filter(is_on_node) {
            if future.fits(vector) {
                break;
            }
            if self.try_add_victim(*index, &mut freed) {
                future.release(round, *index);
                victims.push(*index);
            }
        }
        let fits_without = |victims: &[usize]| {
            let mut future = future_without_victims.clone();
            let on_node = victims.iter().filter(is_on_node);
            on_node.for_each(|index| future.release(round, *index));
            future.fits(vector)
        };
        if !future.fits(vector) {
            return None;
        }
        let victims = drop_unneeded(round, victims, fits_without);
        let victims = self.with_quota_victims(victims)?;
        let is_enough = |victims: &[usize]| fits_without(victims) && !self.lacks_quota(victims);
        Some(drop_unneeded(round, victims, is_enough))
    }

    /// Computes the free space of the node after vacated allocations have left. Space that victims
    /// already free for this work does not count.
    fn node_after_vacates(&self, occupancy: &Occupancy, node: usize) -> FutureFreeSpace {
        let round = self.round;
        let name = round.nodes.node_states[node].name;
        let reservation = round.carried.reservations.get(name);
        let with_victims = reservation.filter(|reservation| reservation.cleared);
        let with_victims = with_victims.map_or(0, |reservation| reservation.processes);
        let mut future = FutureFreeSpace::after_vacates(round, occupancy, node);
        for _ in 0..with_victims {
            future.place(&self.request.vector);
        }
        future
    }

    /// Returns true if a queue on the path still lacks quota with only these victims.
    pub fn lacks_quota(&self, victims: &[usize]) -> bool {
        let mut missing_quota = self.request.missing_quota.clone();
        for index in victims {
            subtract(
                &mut missing_quota,
                &self.round.allocation_states[*index].vector,
            );
        }
        missing_quota.iter().any(|amount| *amount > 0)
    }

    /// Adds victims on any node until they free all missing quota. Returns `None` if they cannot.
    pub fn with_quota_victims(&self, mut victims: Vec<usize>) -> Option<Vec<usize>> {
        let mut freed = Freed::new();
        let mut missing_quota = self.request.missing_quota.clone();
        for index in &victims {
            let is_added = self.try_add_victim(*index, &mut freed);
            // The rules allow each subset of an allowed set of victims.
            debug_assert!(is_added, "a victim that no rule allows");
            subtract(
                &mut missing_quota,
                &self.round.allocation_states[*index].vector,
            );
        }
        for index in &self.candidates {
            if missing_quota.iter().all(|amount| *amount == 0) {
                break;
            }
            let vector = &self.round.allocation_states[*index].vector;
            let helps = have_common_type(vector, &missing_quota) && !victims.contains(index);
            if helps && self.try_add_victim(*index, &mut freed) {
                subtract(&mut missing_quota, vector);
                victims.push(*index);
            }
        }
        missing_quota
            .iter()
            .all(|amount| *amount == 0)
            .then_some(victims)
    }

    /// Counts the victim's resources as freed in its queues, if the rules allow that. Returns false
    /// otherwise.
    pub fn try_add_victim(&self, victim: usize, freed: &mut Freed) -> bool {
        let allocation_state = &self.round.allocation_states[victim];
        let Some(queue) = allocation_state.queue else {
            return false;
        };
        if !self
            .guarantees
            .allows(self.round, self.request, allocation_state, freed)
        {
            return false;
        }
        for ancestor in self.round.tree.path(queue) {
            let freed = freed
                .entry(ancestor)
                .or_insert_with(|| self.round.dims.zero());
            add(freed, &allocation_state.vector);
        }
        true
    }
}

/// Returns false for reluctant work, which is preempted only after other work.
pub(super) fn is_preemptable(round: &RoundState, index: usize) -> bool {
    let item = round.allocation_states[index]
        .item
        .map(|item| round.items[item].queued);
    item.is_none_or(|queued| queued.preemptable)
}

/// Returns true for an originator: work that its application depends on. Such work is preempted
/// last.
pub(super) fn is_originator(round: &RoundState, index: usize) -> bool {
    let item = round.allocation_states[index]
        .item
        .map(|item| round.items[item].queued);
    item.is_some_and(|queued| queued.originator)
}

/// Returns true for a restarted process of recently preempted work, which is protected for a while.
fn is_recently_preempted(round: &RoundState, index: usize) -> bool {
    let allocation = round.allocation_states[index].allocation;
    let preempted_at = round.carried.last_loss.get(&allocation.work);
    preempted_at.is_some_and(|preempted_at| allocation.granted_at > *preempted_at)
}

/// Returns the allocations that may leave, in the order in which they are taken.
fn find_candidates(
    round: &RoundState,
    guarantees: &Guarantees,
    request: &PreemptionRequest,
) -> Vec<usize> {
    let tree = &round.tree;
    let leaves = tree.leaves().filter(|leaf| {
        *leaf != request.leaf
            && tree.is_below(*leaf, request.fence)
            && !tree.entries[*leaf].settings.preemption_disabled
            && guarantees.may_lose(round, *leaf, request)
    });
    let leaves: BTreeSet<usize> = leaves.collect();
    let own_priority = round.items[request.item].queued.priority;
    let own_priority = tree.priority_below(request.fence, request.leaf, own_priority);
    let may_leave = |index: &usize| {
        let allocation_state = &round.allocation_states[*index];
        let (Some(queue), Some(item)) = (allocation_state.queue, allocation_state.item) else {
            return false;
        };
        let queued = round.items[item].queued;
        let priority = tree.priority_below(request.fence, queue, queued.priority);
        leaves.contains(&queue)
            && !allocation_state.is_leaving
            && !allocation_state.allocation.fixed
            && !round.is_in_gang_with_victims(item)
            && queued.required_node.is_none()
            && priority <= own_priority
            && have_common_type(&allocation_state.vector, &request.vector)
            && !is_recently_preempted(round, *index)
    };
    let mut candidates: Vec<usize> = (0..round.allocation_states.len())
        .filter(may_leave)
        .collect();
    candidates.sort_by_key(|index| {
        let allocation_state = &round.allocation_states[*index];
        let newest_first = Reverse((allocation_state.allocation.granted_at, allocation_state.id));
        (
            !is_preemptable(round, *index),
            is_originator(round, *index),
            newest_first,
        )
    });
    candidates
}

/// Drops unnecessary victims: reluctant ones first, then originators, then the oldest.
fn drop_unneeded(
    round: &RoundState,
    mut victims: Vec<usize>,
    is_enough: impl Fn(&[usize]) -> bool,
) -> Vec<usize> {
    victims.sort_by_key(|index| {
        let age = (
            round.allocation_states[*index].allocation.granted_at,
            round.allocation_states[*index].id,
        );
        (
            is_preemptable(round, *index),
            !is_originator(round, *index),
            age,
        )
    });
    retain_needed(victims, is_enough)
}

/// Returns the needed victims, checked in this order. A victim is needed if the others are not
/// enough.
pub(super) fn retain_needed(
    victims: Vec<usize>,
    is_enough: impl Fn(&[usize]) -> bool,
) -> Vec<usize> {
    let mut needed = victims.clone();
    for victim in victims {
        let others: Vec<usize> = needed.iter().copied().filter(|it| *it != victim).collect();
        if is_enough(&others) {
            needed = others;
        }
    }
    needed
}
