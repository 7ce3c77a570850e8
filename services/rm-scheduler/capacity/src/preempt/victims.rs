//! Which processes would have to leave so that one more of an ask fits (10.3).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{Wish, guarantee::Guarantees};
use crate::{
    future_nodes::{Room, Yard},
    reserve::gangs,
    resource_vec::{Vector, add, share_a_type, take},
    round_state::Books,
};

pub(super) struct Choice {
    pub node: usize,
    pub victims: Vec<usize>,
}

/// What victims free, by queue.
pub(super) type Freed = BTreeMap<usize, Vector>;

/// The node where the least has to leave: nobody who would rather stay, then no originator, then
/// as few as can be; then where nothing is kept for a gang; ties by name.
pub(super) fn choose(
    books: &Books,
    (guarantees, yard): (&Guarantees, &Yard),
    wish: &Wish,
) -> Option<Choice> {
    let candidates = candidates(books, guarantees, wish);
    let on: BTreeSet<usize> = candidates
        .iter()
        .filter_map(|at| books.held[*at].node)
        .collect();
    let mut best: Option<((bool, bool, usize, bool), Choice)> = None;
    for node in 0..books.nodes.stations.len() {
        let moves = on.contains(&node) || books.nodes.stations[node].going[0] > 0;
        let roomy = || books.nodes.stations[node].has_room(&wish.vector);
        if !is_open(books, wish, node) || !(moves || roomy()) {
            continue;
        }
        let Some(victims) = on_node(books, (guarantees, yard), (wish, &candidates), node) else {
            continue;
        };
        let score = (
            victims.iter().any(|at| !is_willing(books, *at)),
            victims.iter().any(|at| is_originator(books, *at)),
            victims.len(),
            !books.nodes.stations[node].kept.is_empty(),
        );
        if best.as_ref().is_none_or(|(least, _)| score < *least) {
            best = Some((score, Choice { node, victims }));
        }
    }
    best.map(|(_, choice)| choice)
}

fn is_open(books: &Books, wish: &Wish, node: usize) -> bool {
    let station = &books.nodes.stations[node];
    let work = books.asks[wish.ask].work;
    let reservation = books.kept.reservations.get(station.name);
    station.node.is_schedulable()
        && station.could_hold(&wish.vector)
        && reservation.is_none_or(|it| it.work == *work)
        // Room that was cleared for somebody is theirs; what is merely kept for a gang is not.
        && !gangs::is_cleared(books, node)
        && books.suits(wish.ask, node)
}

pub(super) fn is_willing(books: &Books, held: usize) -> bool {
    let ask = books.held[held].ask.map(|ask| books.asks[ask].queued);
    ask.is_none_or(|queued| queued.preemptable)
}

pub(super) fn is_originator(books: &Books, held: usize) -> bool {
    let ask = books.held[held].ask.map(|ask| books.asks[ask].queued);
    ask.is_some_and(|queued| queued.originator)
}

/// A process that came back after one of its work was taken is left alone for a while (10.6).
pub(super) fn is_sore(books: &Books, held: usize) -> bool {
    let allocation = books.held[held].allocation;
    let hit = books.kept.hit.get(&allocation.work);
    hit.is_some_and(|hit| allocation.granted_at > *hit)
}

/// In the order in which they are taken.
pub(super) fn candidates(books: &Books, guarantees: &Guarantees, wish: &Wish) -> Vec<usize> {
    let tree = &books.tree;
    let leaves = tree.leaves().filter(|leaf| {
        *leaf != wish.leaf
            && tree.is_below(*leaf, wish.fence)
            && !tree.spots[*leaf].manner.spared
            && guarantees.may_lose(books, *leaf, wish)
    });
    let leaves: BTreeSet<usize> = leaves.collect();
    let mine = books.asks[wish.ask].queued.priority;
    let mine = tree.priority_below(wish.fence, wish.leaf, mine);
    let fits = |at: &usize| {
        let held = &books.held[*at];
        let (Some(queue), Some(ask)) = (held.queue, held.ask) else {
            return false;
        };
        let queued = books.asks[ask].queued;
        let priority = tree.priority_below(wish.fence, queue, queued.priority);
        leaves.contains(&queue)
            && !held.leaves
            && !held.allocation.fixed
            && !books.is_of_a_cleared_gang(ask)
            && queued.required_node.is_none()
            && priority <= mine
            && share_a_type(&held.vector, &wish.vector)
            && !is_sore(books, *at)
    };
    let mut all: Vec<usize> = (0..books.held.len()).filter(fits).collect();
    all.sort_by_key(|at| {
        let it = &books.held[*at];
        let newest = Reverse((it.allocation.granted_at, it.id));
        (!is_willing(books, *at), is_originator(books, *at), newest)
    });
    all
}

/// What would have to leave so that it fits here; None where nothing helps.
fn on_node(
    books: &Books,
    (guarantees, yard): (&Guarantees, &Yard),
    (wish, candidates): (&Wish, &[usize]),
    node: usize,
) -> Option<Vec<usize>> {
    let soon = soon(books, yard, (wish, node));
    let mut room = soon.clone();
    let mut freed = Freed::new();
    let mut victims = Vec::new();
    let here = |at: &&usize| books.held[**at].node == Some(node);
    for at in candidates.iter().filter(here) {
        if room.fits(&wish.vector) {
            break;
        }
        if try_take(books, (guarantees, wish), *at, &mut freed) {
            room.free(books, *at);
            victims.push(*at);
        }
    }
    let fits_without = |victims: &[usize]| {
        let mut room = soon.clone();
        let here = |at: &&usize| books.held[**at].node == Some(node);
        let here = victims.iter().filter(here);
        here.for_each(|at| room.free(books, *at));
        room.fits(&wish.vector)
    };
    if !room.fits(&wish.vector) {
        return None;
    }
    let victims = spare(books, victims, fits_without);
    let victims = elsewhere(books, guarantees, (wish, candidates), victims)?;
    let helps = |victims: &[usize]| fits_without(victims) && !is_short(books, wish, victims);
    Some(spare(books, victims, helps))
}

/// Only what is needed of these leaves. What would rather stay is spared first, then originators,
/// then the oldest (10.3).
fn spare(books: &Books, mut all: Vec<usize>, enough: impl Fn(&[usize]) -> bool) -> Vec<usize> {
    all.sort_by_key(|at| {
        let age = (books.held[*at].allocation.granted_at, books.held[*at].id);
        (is_willing(books, *at), !is_originator(books, *at), age)
    });
    needed(all, enough)
}

/// Those without which the rest is not enough, looked at in this order.
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

/// Some queue on its path has not enough left when only these leave.
pub(super) fn is_short(books: &Books, wish: &Wish, victims: &[usize]) -> bool {
    let mut short = wish.short.clone();
    for at in victims {
        take(&mut short, &books.held[*at].vector);
    }
    short.iter().any(|short| *short > 0)
}

/// The node once what leaves has left, without the room that others leave for already.
fn soon(books: &Books, yard: &Yard, (wish, node): (&Wish, usize)) -> Room {
    let reservation = books.kept.reservations.get(books.nodes.stations[node].name);
    let cleared = reservation.filter(|reservation| reservation.cleared);
    let cleared = cleared.map_or(0, |reservation| reservation.processes);
    let mut room = Room::soon(books, yard, node);
    for _ in 0..cleared {
        room.place(&wish.vector);
    }
    room
}

/// Where queues are short of more than the node, others leave from wherever they are.
pub(super) fn elsewhere(
    books: &Books,
    guarantees: &Guarantees,
    (wish, candidates): (&Wish, &[usize]),
    mut victims: Vec<usize>,
) -> Option<Vec<usize>> {
    let mut freed = Freed::new();
    for at in &victims {
        let taken = try_take(books, (guarantees, wish), *at, &mut freed);
        // What was lawful among more of them is lawful among fewer.
        debug_assert!(taken, "a victim that no law allows");
    }
    let mut short = wish.short.clone();
    for at in &victims {
        take(&mut short, &books.held[*at].vector);
    }
    for at in candidates {
        if short.iter().all(|short| *short == 0) {
            break;
        }
        let vector = &books.held[*at].vector;
        let helps = share_a_type(vector, &short) && !victims.contains(at);
        if helps && try_take(books, (guarantees, wish), *at, &mut freed) {
            take(&mut short, vector);
            victims.push(*at);
        }
    }
    short.iter().all(|short| *short == 0).then_some(victims)
}

/// Takes it from its queues if the laws allow that.
pub(super) fn try_take(
    books: &Books,
    (guarantees, wish): (&Guarantees, &Wish),
    at: usize,
    freed: &mut Freed,
) -> bool {
    let held = &books.held[at];
    let Some(queue) = held.queue else {
        return false;
    };
    if !guarantees.allows(books, wish, (queue, &held.vector), freed) {
        return false;
    }
    for at in books.tree.path(queue) {
        let freed = freed.entry(at).or_insert_with(|| books.dims.zero());
        add(freed, &held.vector);
    }
    true
}
