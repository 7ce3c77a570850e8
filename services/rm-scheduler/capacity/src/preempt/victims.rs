//! Which processes would have to leave so that one more of an ask fits (10.3).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hayward_rm_scheduler_domain::snapshot::GPU_MILLI;

use super::{Wish, guarantee::Guarantees};
use crate::{
    books::Books,
    dims::{Vector, add, share_a_type, take, times},
};

/// What lies on which node.
pub(super) struct Yard {
    pub by_node: BTreeMap<usize, Vec<usize>>,
}

impl Yard {
    pub fn of(books: &Books) -> Self {
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, held) in books.held.iter().enumerate() {
            if let Some(node) = held.node {
                by_node.entry(node).or_default().push(at);
            }
        }
        Self { by_node }
    }
}

pub(super) struct Choice {
    pub node: usize,
    pub victims: Vec<usize>,
}

/// What victims free, by queue.
type Freed = BTreeMap<usize, Vector>;

/// The node where the least has to leave: nobody who would rather stay, then no originator, then
/// as few as can be; ties by name.
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
    let mut best: Option<((bool, bool, usize), Choice)> = None;
    for node in 0..books.nodes.stations.len() {
        let moves = on.contains(&node) || books.nodes.stations[node].going[0] > 0;
        let roomy = || books.nodes.stations[node].fits(&wish.vector);
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
fn candidates(books: &Books, guarantees: &Guarantees, wish: &Wish) -> Vec<usize> {
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

/// Who would have to leave so that it fits here; None where nothing helps.
fn on_node(
    books: &Books,
    (guarantees, yard): (&Guarantees, &Yard),
    (wish, candidates): (&Wish, &[usize]),
    node: usize,
) -> Option<Vec<usize>> {
    let mut room = Room::of(books, yard, (wish, node));
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
    if !room.fits(&wish.vector) {
        return None;
    }
    // Who was taken early may not be needed any more now.
    for at in victims.clone() {
        let mut without = Room::of(books, yard, (wish, node));
        let others = victims.iter().filter(|other| **other != at);
        others.for_each(|other| without.free(books, *other));
        if without.fits(&wish.vector) {
            victims.retain(|other| *other != at);
        }
    }
    elsewhere(books, guarantees, (wish, candidates), victims)
}

/// Where queues are short of more than the node, others leave from wherever they are.
fn elsewhere(
    books: &Books,
    guarantees: &Guarantees,
    (wish, candidates): (&Wish, &[usize]),
    mut victims: Vec<usize>,
) -> Option<Vec<usize>> {
    let mut freed = Freed::new();
    let mut short = wish.short.clone();
    for at in &victims {
        let taken = try_take(books, (guarantees, wish), *at, &mut freed);
        // What was lawful among more of them is lawful among fewer.
        debug_assert!(taken, "a victim that no law allows");
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
fn try_take(
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

/// A node as it will be once what leaves has left.
struct Room {
    capacity: Vector,
    used: Vector,
    /// Thousandths in use, by gpu.
    gpus: BTreeMap<u64, u64>,
}

impl Room {
    fn of(books: &Books, yard: &Yard, (wish, node): (&Wish, usize)) -> Self {
        let station = &books.nodes.stations[node];
        let mut used = station.used.clone();
        take(&mut used, &station.going);
        let promised = books.kept.reservations.get(station.name);
        let promised = promised.map_or(0, |reservation| reservation.processes);
        add(&mut used, &times(&wish.vector, promised));
        let mut room = Self {
            capacity: station.capacity.clone(),
            used,
            gpus: BTreeMap::new(),
        };
        if wish.vector[3] > 0 {
            let here = yard.by_node.get(&node).into_iter().flatten();
            for at in here.filter(|at| !books.held[**at].leaves) {
                let held = &books.held[*at];
                for gpu in &held.allocation.gpus {
                    let part = held.vector[3].min(GPU_MILLI);
                    *room.gpus.entry(*gpu).or_default() += part;
                }
            }
            let fresh = books.placed.iter().filter(|placed| placed.node == node);
            for placed in fresh {
                for gpu in &placed.gpus {
                    let part = books.vector(placed.ask)[3].min(GPU_MILLI);
                    *room.gpus.entry(*gpu).or_default() += part;
                }
            }
        }
        room
    }

    fn free(&mut self, books: &Books, held: usize) {
        let held = &books.held[held];
        take(&mut self.used, &held.vector);
        for gpu in &held.allocation.gpus {
            let used = self.gpus.entry(*gpu).or_default();
            *used = used.saturating_sub(held.vector[3].min(GPU_MILLI));
        }
    }

    fn fits(&self, ask: &[u64]) -> bool {
        let all = self.used.iter().zip(&self.capacity).zip(ask);
        let mut all = all.map(|((used, most), ask)| used.saturating_add(*ask) <= *most);
        all.all(|fits| fits) && self.has_gpus(ask[3])
    }

    fn has_gpus(&self, milli: u64) -> bool {
        let (count, part) = (milli.div_ceil(GPU_MILLI), milli.min(GPU_MILLI));
        let devices = 0..self.capacity[3].div_ceil(GPU_MILLI);
        let free = devices.filter(|gpu| {
            let most = self.capacity[3]
                .saturating_sub(gpu * GPU_MILLI)
                .min(GPU_MILLI);
            let used = self.gpus.get(gpu).copied().unwrap_or(0);
            most.saturating_sub(used) >= part
        });
        count == 0 || free.count() as u64 >= count
    }
}
