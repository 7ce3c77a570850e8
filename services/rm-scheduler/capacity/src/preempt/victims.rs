//! Selects the victims for one more process.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{PreemptionRequest, guarantee::Guarantees};
use crate::{
    future_nodes::{FutureNode, Occupancy},
    reserve::gangs,
    resource_vec::{Vector, add, share_a_type, take},
    round_state::RoundState,
};

pub(super) struct Choice {
    pub node: usize,
    pub victims: Vec<usize>,
}

/// Resources that victims free, by queue.
pub(super) type Freed = BTreeMap<usize, Vector>;

/// Order of preference among sets of victims. The set with the least cost is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// True if the set contains a victim that should not be preempted.
    has_reluctant: bool,
    has_originator: bool,
    victims: usize,
}

impl Cost {
    pub fn new(round: &RoundState, victims: &[usize]) -> Self {
        Self {
            has_reluctant: victims.iter().any(|at| !is_willing(round, *at)),
            has_originator: victims.iter().any(|at| is_originator(round, *at)),
            victims: victims.len(),
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
            candidates: candidates(round, guarantees, request),
        }
    }

    /// Chooses the node with the cheapest victims. Among equals, nodes without gang reservations go
    /// first, then the order of names decides.
    pub fn choose(&self, occupancy: &Occupancy) -> Option<Choice> {
        let round = self.round;
        let candidates = self.candidates.iter();
        let on: BTreeSet<usize> = candidates.filter_map(|at| round.held[*at].node).collect();
        let mut best: Option<((Cost, bool), Choice)> = None;
        for (node, node_state) in round.nodes.node_states.iter().enumerate() {
            let moves = on.contains(&node) || node_state.going[0] > 0;
            let has_space = || node_state.has_free_space(&self.request.vector);
            if !self.is_open(node) || !(moves || has_space()) {
                continue;
            }
            let Some(victims) = self.on_node(occupancy, node) else {
                continue;
            };
            let is_reserved = !node_state.reserved_amounts.is_empty();
            let score = (Cost::new(round, &victims), is_reserved);
            if best.as_ref().is_none_or(|(least, _)| score < *least) {
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
            && reservation.is_none_or(|it| it.work == *work)
            // Space that victims are freeing belongs to its work. A gang reservation without
            // victims does not exclude the node.
            && !gangs::is_cleared(round, node)
            && round.suits(self.request.item, node)
    }

    /// Returns the victims on this node, or `None` if the process would still not fit.
    fn on_node(&self, occupancy: &Occupancy, node: usize) -> Option<Vec<usize>> {
        let (round, vector) = (self.round, &self.request.vector);
        let soon = self.soon(occupancy, node);
        let is_here = |at: &&usize| round.held[**at].node == Some(node);
        let mut future = soon.clone();
        let mut freed = Freed::new();
        let mut victims = Vec::new();
        for at in self.candidates.iter().filter(is_here) {
            if future.fits(vector) {
                break;
            }
            if self.try_take(*at, &mut freed) {
                future.free(round, *at);
                victims.push(*at);
            }
        }
        let fits_without = |victims: &[usize]| {
            let mut future = soon.clone();
            let here = victims.iter().filter(is_here);
            here.for_each(|at| future.free(round, *at));
            future.fits(vector)
        };
        if !future.fits(vector) {
            return None;
        }
        let victims = spare(round, victims, fits_without);
        let victims = self.with_others(victims)?;
        let helps = |victims: &[usize]| fits_without(victims) && !self.is_short(victims);
        Some(spare(round, victims, helps))
    }

    /// Computes the free space of the node after vacated allocations have left. Space that victims
    /// already free for this work does not count.
    fn soon(&self, occupancy: &Occupancy, node: usize) -> FutureNode {
        let round = self.round;
        let name = round.nodes.node_states[node].name;
        let reservation = round.carried.reservations.get(name);
        let cleared = reservation.filter(|reservation| reservation.cleared);
        let cleared = cleared.map_or(0, |reservation| reservation.processes);
        let mut future = FutureNode::soon(round, occupancy, node);
        for _ in 0..cleared {
            future.place(&self.request.vector);
        }
        future
    }

    /// Returns true if a queue on the path still lacks quota with only these victims.
    pub fn is_short(&self, victims: &[usize]) -> bool {
        let mut short = self.request.short.clone();
        for at in victims {
            take(&mut short, &self.round.held[*at].vector);
        }
        short.iter().any(|short| *short > 0)
    }

    /// Adds victims on any node while queues lack more than these victims free.
    pub fn with_others(&self, mut victims: Vec<usize>) -> Option<Vec<usize>> {
        let mut freed = Freed::new();
        let mut short = self.request.short.clone();
        for at in &victims {
            let taken = self.try_take(*at, &mut freed);
            // A victim allowed among more victims is allowed among fewer.
            debug_assert!(taken, "a victim that no law allows");
            take(&mut short, &self.round.held[*at].vector);
        }
        for at in &self.candidates {
            if short.iter().all(|short| *short == 0) {
                break;
            }
            let vector = &self.round.held[*at].vector;
            let helps = share_a_type(vector, &short) && !victims.contains(at);
            if helps && self.try_take(*at, &mut freed) {
                take(&mut short, vector);
                victims.push(*at);
            }
        }
        short.iter().all(|short| *short == 0).then_some(victims)
    }

    /// Counts the victim's resources as freed in its queues, if the rules allow that. Returns false
    /// otherwise.
    pub fn try_take(&self, victim: usize, freed: &mut Freed) -> bool {
        let held = &self.round.held[victim];
        let Some(queue) = held.queue else {
            return false;
        };
        if !self
            .guarantees
            .allows(self.round, self.request, held, freed)
        {
            return false;
        }
        for at in self.round.tree.path(queue) {
            let freed = freed.entry(at).or_insert_with(|| self.round.dims.zero());
            add(freed, &held.vector);
        }
        true
    }
}

pub(super) fn is_willing(round: &RoundState, held: usize) -> bool {
    let item = round.held[held].item.map(|item| round.items[item].queued);
    item.is_none_or(|queued| queued.preemptable)
}

pub(super) fn is_originator(round: &RoundState, held: usize) -> bool {
    let item = round.held[held].item.map(|item| round.items[item].queued);
    item.is_some_and(|queued| queued.originator)
}

/// Returns true for a restarted process of recently preempted work, which is protected for a while.
fn is_recently_preempted(round: &RoundState, held: usize) -> bool {
    let allocation = round.held[held].allocation;
    let hit = round.carried.hit.get(&allocation.work);
    hit.is_some_and(|hit| allocation.granted_at > *hit)
}

fn candidates(
    round: &RoundState,
    guarantees: &Guarantees,
    request: &PreemptionRequest,
) -> Vec<usize> {
    let tree = &round.tree;
    let leaves = tree.leaves().filter(|leaf| {
        *leaf != request.leaf
            && tree.is_below(*leaf, request.fence)
            && !tree.entries[*leaf].settings.spared
            && guarantees.may_lose(round, *leaf, request)
    });
    let leaves: BTreeSet<usize> = leaves.collect();
    let mine = round.items[request.item].queued.priority;
    let mine = tree.priority_below(request.fence, request.leaf, mine);
    let fits = |at: &usize| {
        let held = &round.held[*at];
        let (Some(queue), Some(item)) = (held.queue, held.item) else {
            return false;
        };
        let queued = round.items[item].queued;
        let priority = tree.priority_below(request.fence, queue, queued.priority);
        leaves.contains(&queue)
            && !held.leaves
            && !held.allocation.fixed
            && !round.is_of_a_cleared_gang(item)
            && queued.required_node.is_none()
            && priority <= mine
            && share_a_type(&held.vector, &request.vector)
            && !is_recently_preempted(round, *at)
    };
    let mut all: Vec<usize> = (0..round.held.len()).filter(fits).collect();
    all.sort_by_key(|at| {
        let it = &round.held[*at];
        let newest = Reverse((it.allocation.granted_at, it.id));
        (!is_willing(round, *at), is_originator(round, *at), newest)
    });
    all
}

/// Drops unnecessary victims: reluctant ones first, then originators, then the oldest.
fn spare(round: &RoundState, mut all: Vec<usize>, enough: impl Fn(&[usize]) -> bool) -> Vec<usize> {
    all.sort_by_key(|at| {
        let age = (round.held[*at].allocation.granted_at, round.held[*at].id);
        (is_willing(round, *at), !is_originator(round, *at), age)
    });
    needed(all, enough)
}

/// Returns the needed victims, checked in this order. A victim is needed if the others are not
/// enough.
pub(super) fn needed(all: Vec<usize>, enough: impl Fn(&[usize]) -> bool) -> Vec<usize> {
    let mut needed = all.clone();
    for at in all {
        let others: Vec<usize> = needed.iter().copied().filter(|it| *it != at).collect();
        if enough(&others) {
            needed = others;
        }
    }
    needed
}
