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

/// The node with the cheapest victims: no reluctant ones, then no originators, then the fewest;
/// then nodes without gang reservations; then by name.
pub(super) fn choose(
    round: &RoundState,
    (guarantees, occupancy): (&Guarantees, &Occupancy),
    request: &PreemptionRequest,
) -> Option<Choice> {
    let candidates = candidates(round, guarantees, request);
    let on: BTreeSet<usize> = candidates
        .iter()
        .filter_map(|at| round.held[*at].node)
        .collect();
    let mut best: Option<((bool, bool, usize, bool), Choice)> = None;
    for node in 0..round.nodes.node_states.len() {
        let moves = on.contains(&node) || round.nodes.node_states[node].going[0] > 0;
        let roomy = || round.nodes.node_states[node].has_room(&request.vector);
        if !is_open(round, request, node) || !(moves || roomy()) {
            continue;
        }
        let Some(victims) = on_node(round, (guarantees, occupancy), (request, &candidates), node)
        else {
            continue;
        };
        let score = (
            victims.iter().any(|at| !is_willing(round, *at)),
            victims.iter().any(|at| is_originator(round, *at)),
            victims.len(),
            !round.nodes.node_states[node].reserved_amounts.is_empty(),
        );
        if best.as_ref().is_none_or(|(least, _)| score < *least) {
            best = Some((score, Choice { node, victims }));
        }
    }
    best.map(|(_, choice)| choice)
}

fn is_open(round: &RoundState, request: &PreemptionRequest, node: usize) -> bool {
    let node_state = &round.nodes.node_states[node];
    let work = round.items[request.item].work;
    let reservation = round.carried.reservations.get(node_state.name);
    node_state.node.is_schedulable()
        && node_state.could_hold(&request.vector)
        && reservation.is_none_or(|it| it.work == *work)
        // Space with victims belongs to its work; a gang reservation without victims does not.
        && !gangs::is_cleared(round, node)
        && round.suits(request.item, node)
}

pub(super) fn is_willing(round: &RoundState, held: usize) -> bool {
    let item = round.held[held].item.map(|item| round.items[item].queued);
    item.is_none_or(|queued| queued.preemptable)
}

pub(super) fn is_originator(round: &RoundState, held: usize) -> bool {
    let item = round.held[held].item.map(|item| round.items[item].queued);
    item.is_some_and(|queued| queued.originator)
}

/// True for a restarted process of recently preempted work, which is protected for a while.
pub(super) fn is_recently_preempted(round: &RoundState, held: usize) -> bool {
    let allocation = round.held[held].allocation;
    let hit = round.carried.hit.get(&allocation.work);
    hit.is_some_and(|hit| allocation.granted_at > *hit)
}

/// Candidates in the order in which they are taken.
pub(super) fn candidates(
    round: &RoundState,
    guarantees: &Guarantees,
    request: &PreemptionRequest,
) -> Vec<usize> {
    let tree = &round.tree;
    let leaves = tree.leaves().filter(|leaf| {
        *leaf != request.leaf
            && tree.is_below(*leaf, request.fence)
            && !tree.entries[*leaf].manner.spared
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

/// Victims on this node; none if the process would still not fit.
fn on_node(
    round: &RoundState,
    (guarantees, occupancy): (&Guarantees, &Occupancy),
    (request, candidates): (&PreemptionRequest, &[usize]),
    node: usize,
) -> Option<Vec<usize>> {
    let soon = soon(round, occupancy, (request, node));
    let mut room = soon.clone();
    let mut freed = Freed::new();
    let mut victims = Vec::new();
    let here = |at: &&usize| round.held[**at].node == Some(node);
    for at in candidates.iter().filter(here) {
        if room.fits(&request.vector) {
            break;
        }
        if try_take(round, (guarantees, request), *at, &mut freed) {
            room.free(round, *at);
            victims.push(*at);
        }
    }
    let fits_without = |victims: &[usize]| {
        let mut room = soon.clone();
        let here = |at: &&usize| round.held[**at].node == Some(node);
        let here = victims.iter().filter(here);
        here.for_each(|at| room.free(round, *at));
        room.fits(&request.vector)
    };
    if !room.fits(&request.vector) {
        return None;
    }
    let victims = spare(round, victims, fits_without);
    let victims = elsewhere(round, guarantees, (request, candidates), victims)?;
    let helps = |victims: &[usize]| fits_without(victims) && !is_short(round, request, victims);
    Some(spare(round, victims, helps))
}

/// Keeps only the necessary victims. Reluctant ones are spared first, then originators, then the
/// oldest.
fn spare(round: &RoundState, mut all: Vec<usize>, enough: impl Fn(&[usize]) -> bool) -> Vec<usize> {
    all.sort_by_key(|at| {
        let age = (round.held[*at].allocation.granted_at, round.held[*at].id);
        (is_willing(round, *at), !is_originator(round, *at), age)
    });
    needed(all, enough)
}

/// Victims without which the others are not enough, checked in this order.
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

/// True when a queue on the path still lacks resources with only these victims.
pub(super) fn is_short(round: &RoundState, request: &PreemptionRequest, victims: &[usize]) -> bool {
    let mut short = request.short.clone();
    for at in victims {
        take(&mut short, &round.held[*at].vector);
    }
    short.iter().any(|short| *short > 0)
}

/// Future free space of the node, without space that has victims already.
fn soon(
    round: &RoundState,
    occupancy: &Occupancy,
    (request, node): (&PreemptionRequest, usize),
) -> FutureNode {
    let reservation = round
        .carried
        .reservations
        .get(round.nodes.node_states[node].name);
    let cleared = reservation.filter(|reservation| reservation.cleared);
    let cleared = cleared.map_or(0, |reservation| reservation.processes);
    let mut room = FutureNode::soon(round, occupancy, node);
    for _ in 0..cleared {
        room.place(&request.vector);
    }
    room
}

/// Further victims on any node, when queues lack more than the node's victims free.
pub(super) fn elsewhere(
    round: &RoundState,
    guarantees: &Guarantees,
    (request, candidates): (&PreemptionRequest, &[usize]),
    mut victims: Vec<usize>,
) -> Option<Vec<usize>> {
    let mut freed = Freed::new();
    for at in &victims {
        let taken = try_take(round, (guarantees, request), *at, &mut freed);
        // A victim allowed among more victims is allowed among fewer.
        debug_assert!(taken, "a victim that no law allows");
    }
    let mut short = request.short.clone();
    for at in &victims {
        take(&mut short, &round.held[*at].vector);
    }
    for at in candidates {
        if short.iter().all(|short| *short == 0) {
            break;
        }
        let vector = &round.held[*at].vector;
        let helps = share_a_type(vector, &short) && !victims.contains(at);
        if helps && try_take(round, (guarantees, request), *at, &mut freed) {
            take(&mut short, vector);
            victims.push(*at);
        }
    }
    short.iter().all(|short| *short == 0).then_some(victims)
}

/// Removes the victim's usage from its queues, if the rules allow that.
pub(super) fn try_take(
    round: &RoundState,
    (guarantees, request): (&Guarantees, &PreemptionRequest),
    at: usize,
    freed: &mut Freed,
) -> bool {
    let held = &round.held[at];
    let Some(queue) = held.queue else {
        return false;
    };
    if !guarantees.allows(round, request, (queue, &held.vector), freed) {
        return false;
    }
    for at in round.tree.path(queue) {
        let freed = freed.entry(at).or_insert_with(|| round.dims.zero());
        add(freed, &held.vector);
    }
    true
}
