//! What-Of: puts counted processes on nodes (section 10), and lends what stays idle.
//!
//! Nothing is taken back here and nothing given is moved. Fit is tested on quanta, on the
//! full size vector and on single gpus.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_vocabulary::Size;

use crate::{
    books::Books, explain::Explainer, pack, packing::Packing, plan::Reason, reserve,
    snapshot::Policy,
};

/// Nodes by free quanta, so that the smallest hole that fits is found without looking at others.
pub(crate) struct FreeRoom<'a> {
    pools: Vec<BTreeMap<u64, Row>>,
    /// What did not fit once does not fit later: in this phase room only shrinks.
    exhausted: BTreeSet<(usize, u64, &'a Size)>,
    /// Decides in its place in pools where gpus are in play.
    packing: Option<Packing<'a>>,
}

/// Nodes of one size of hole, ascending. They mostly come and go at its ends.
type Row = VecDeque<usize>;

impl<'a> FreeRoom<'a> {
    fn index(books: &Books<'a>, usable: impl Fn(usize) -> bool) -> Self {
        let mut pools = vec![BTreeMap::<u64, Row>::new(); books.forest.len()];
        for (at, machine) in books.machines.iter().enumerate() {
            let Some(pool) = machine.pool.filter(|_| machine.is_schedulable()) else {
                continue;
            };
            if machine.free.order > 0 && usable(at) {
                pools[pool]
                    .entry(machine.free.order)
                    .or_default()
                    .push_back(at);
            }
        }
        Self {
            pools,
            exhausted: BTreeSet::new(),
            packing: Packing::open(books, usable),
        }
    }

    /// A node that was given away as a whole before this walk came to know of it.
    fn forget_whole(&mut self, books: &Books, machine: usize) {
        let machine_order = books.machines[machine].order;
        if let Some(pool) = books.machines[machine].pool {
            self.forget(pool, machine_order, machine);
        }
        if let Some(packing) = &mut self.packing {
            packing.changed(machine);
        }
    }

    fn forget(&mut self, pool: usize, free: u64, machine: usize) {
        let Some(nodes) = self.pools[pool].get_mut(&free) else {
            return;
        };
        if nodes.front() == Some(&machine) {
            nodes.pop_front();
        } else if let Ok(place) = nodes.binary_search(&machine) {
            nodes.remove(place);
        }
        if nodes.is_empty() {
            self.pools[pool].remove(&free);
        }
    }

    fn remember(&mut self, pool: usize, free: u64, machine: usize) {
        let nodes = self.pools[pool].entry(free).or_default();
        if nodes.back().is_none_or(|last| *last < machine) {
            nodes.push_back(machine);
        } else if let Err(place) = nodes.binary_search(&machine) {
            nodes.insert(place, machine);
        }
    }

    /// Nodes of a pool the request may use, smallest hole first, then by name.
    fn search(&self, books: &Books, pool: usize, request: usize) -> Search {
        let work = &books.requests[request];
        if work.demand.machines.is_empty() {
            return Search::All {
                pool,
                free: work.order,
                after: None,
            };
        }
        let mut listed: Vec<(u64, usize)> = work
            .demand
            .machines
            .iter()
            .filter_map(|name| books.register.machine(name))
            .map(|at| (books.machines[at].free.order, at))
            .filter(|(free, at)| {
                self.pools[pool]
                    .get(free)
                    .is_some_and(|n| n.binary_search(at).is_ok())
            })
            .collect();
        listed.sort_unstable();
        Search::Listed(listed.into_iter())
    }
}

/// A walk over free room that may change behind it: what was used moves to smaller holes.
enum Search {
    All {
        pool: usize,
        free: u64,
        after: Option<usize>,
    },
    Listed(std::vec::IntoIter<(u64, usize)>),
}

impl Search {
    fn next(&mut self, room: &FreeRoom) -> Option<usize> {
        match self {
            Self::Listed(listed) => listed.next().map(|(_, machine)| machine),
            Self::All { pool, free, after } => loop {
                let (size, nodes) = room.pools[*pool].range(*free..).next()?;
                if *size > *free {
                    (*free, *after) = (*size, None);
                }
                let from = after.map_or(0, |after| nodes.partition_point(|at| *at <= after));
                if let Some(machine) = nodes.get(from) {
                    *after = Some(*machine);
                    return Some(*machine);
                }
                (*free, *after) = (*size + 1, None);
            },
        }
    }
}

/// for one tree.
pub(crate) fn place_counted(books: &mut Books, turns: &[(Policy, usize)]) {
    let placed_before = books.pending.len();
    let turns = &in_need(books, turns);
    if !books.was_needy.is_empty() {
        let mut needy = vec![false; books.requests.len()];
        for at in &books.was_needy {
            needy[*at] = true;
        }
        let first = turns.iter().filter(|(_, at)| needy[*at]).copied();
        place_in_order(books, &first.collect::<Vec<_>>());
    }
    place_in_order(books, turns);
    if books.settings.pack {
        pack::improve(books, turns, placed_before);
    }
    let mut explainer = Explainer::default();
    for (_, at) in turns {
        books.requests[*at].waits = why_nothing(books, *at, &mut explainer);
    }
}

/// Those whose turns can change anything: they lack something, or have nothing and are told why. A
/// reservation can take something from anybody, so beside one all may come to lack something.
fn in_need(books: &Books, turns: &[(Policy, usize)]) -> Vec<(Policy, usize)> {
    let clears = turns.iter().any(|(policy, _)| *policy == Policy::Reserve);
    let lacks = |(_, at): &&(Policy, usize)| {
        let request = &books.requests[*at];
        clears || request.has() == 0 || request.missing() > 0
    };
    turns.iter().filter(lacks).copied().collect()
}

pub(crate) fn place_in_order<'a>(books: &mut Books<'a>, turns: &[(Policy, usize)]) {
    let kept = books.settings.clear_promised;
    let mut room: Option<FreeRoom<'a>> = None;
    for (policy, at) in turns {
        let request = &books.requests[*at];
        if request.is_out() || request.missing() == 0 {
            continue;
        }
        let room = room.get_or_insert_with(|| {
            FreeRoom::index(books, |at| {
                !kept || books.machines[at].promised_to.is_none()
            })
        });
        match policy {
            Policy::Reserve => {
                let before = books.pending.len();
                reserve::place(books, *at);
                for share in before..books.pending.len() {
                    room.forget_whole(books, books.pending[share].machine);
                }
            }
            Policy::FixedShare => place_fixed(books, room, *at),
            Policy::FairShare => {
                let need = books.requests[*at].missing();
                place(books, room, *at, need);
            }
        }
    }
}

/// why it has no process after its turn.
fn why_nothing<'a>(books: &Books<'a>, at: usize, explainer: &mut Explainer<'a>) -> Option<Reason> {
    let request = &books.requests[at];
    if request.has() > 0 || request.is_out() || request.cap.now == 0 && request.reach > 0 {
        return None;
    }
    if let Some(reason) = explainer.never(books, at) {
        let fair = books.policy(at) == Some(Policy::FairShare);
        if fair || reason == Reason::NoListedMachine {
            return Some(reason);
        }
    }
    Some(match request.counted {
        0 => Reason::ZeroShare,
        _ => Reason::WaitingForPreemption,
    })
}

/// Room that no count claims is lent to whoever can use it: an idle node helps nobody, and it is
/// taken back as soon as somebody due can stand there. Nodes whose room is spoken for are left out.
pub(crate) fn lend_idle<'a>(books: &mut Books<'a>, turns: &[(Policy, usize)]) {
    let mut room: Option<FreeRoom<'a>> = None;
    for (policy, at) in turns {
        let request = &books.requests[*at];
        let more = request.cap.now.saturating_sub(request.has());
        if *policy == Policy::FairShare && more > 0 && !request.demand.completing {
            let room = room.get_or_insert_with(|| {
                FreeRoom::index(books, |at| {
                    let machine = &books.machines[at];
                    machine.spoken.is_empty() && machine.promised_to.is_none()
                })
            });
            place(books, room, *at, more);
        }
    }
}

/// one work fills a node before it moves on, home before the pools below.
fn place<'a>(books: &mut Books<'a>, room: &mut FreeRoom<'a>, at: usize, need: u64) {
    let Some(home) = books.home(at) else { return };
    let mut left = need;
    let forest = books.forest;
    for pool in forest.subtree(home) {
        if left == 0 {
            return;
        }
        left = place_in(books, room, (at, *pool), left, true);
    }
}

/// home pool only; first where no instance of the same service is, then anywhere [C-10].
fn place_fixed<'a>(books: &mut Books<'a>, room: &mut FreeRoom<'a>, at: usize) {
    let Some(home) = books.home(at) else { return };
    let mut left = books.requests[at].missing();
    if books.requests[at].demand.service.is_some() {
        left = place_in(books, room, (at, home), left, false);
        if books.requests[at].has() > 0 {
            return;
        }
    }
    place_in(books, room, (at, home), left, true);
}

/// Places up to `need` processes in one pool; returns how many are left. Unless `beside` says so,
/// never next to an instance of the same service.
fn place_in<'a>(
    books: &mut Books<'a>,
    room: &mut FreeRoom<'a>,
    (at, pool): (usize, usize),
    need: u64,
    beside: bool,
) -> u64 {
    let request = &books.requests[at];
    let (order, size) = (request.order, request.size);
    let anywhere = beside && request.demand.machines.is_empty();
    if need == 0 || (anywhere && room.exhausted.contains(&(pool, order, size))) {
        return need;
    }
    if let Some(packing) = room.packing.as_mut().filter(|it| it.covers(pool)) {
        return place_packed(books, packing, (at, pool), need, beside);
    }
    let mut left = need;
    let mut kept_for_others = false;
    let mut search = room.search(books, pool, at);
    while let Some(machine) = search.next(room) {
        let place = &books.machines[machine];
        let free = place.free.order;
        let shunned = !beside && has_sibling(books, at, machine);
        let mut count = place.free.fitting(order, size).min(left);
        if count > 0 && place.spoken.iter().any(|meant| meant.request != at) {
            // What is leaving here is meant for others, who may find it where this one does not.
            let room = books.coming_room_for(machine, Some(at));
            let unmeant = room.fitting(order, size);
            kept_for_others |= unmeant < count;
            count = count.min(unmeant);
        }
        if shunned || count == 0 {
            continue;
        }
        for _ in 0..count {
            books.grant(at, machine, order, size);
        }
        room.forget(pool, free, machine);
        let free = books.machines[machine].free.order;
        if free > 0 {
            room.remember(pool, free, machine);
        }
        left -= count;
        if left == 0 {
            return 0;
        }
    }
    if anywhere && !kept_for_others {
        room.exhausted.insert((pool, order, size));
    }
    left
}

/// As [`place_in`] where gpus are in play: one process after the other, each on the node where what
/// then stays free is of most use.
fn place_packed<'a>(
    books: &mut Books<'a>,
    packing: &mut Packing<'a>,
    (at, pool): (usize, usize),
    need: u64,
    beside: bool,
) -> u64 {
    let (order, size) = (books.requests[at].order, books.requests[at].size);
    for placed in 0..need {
        let suits = |machine: usize| {
            let place = &books.machines[machine];
            let shunned = !beside && has_sibling(books, at, machine);
            let meant = place.spoken.iter().any(|meant| meant.request != at);
            let kept_for_others = || {
                let room = books.coming_room_for(machine, Some(at));
                room.fitting(order, size) == 0
            };
            !shunned && books.requests[at].admits(place) && !(meant && kept_for_others())
        };
        let Some(machine) = packing.best(books, (at, pool), suits) else {
            return need - placed;
        };
        books.grant(at, machine, order, size);
        packing.changed(machine);
    }
    0
}

/// Is an instance of the same service there, or placed there in this round?
fn has_sibling(books: &Books, at: usize, machine: usize) -> bool {
    let place = &books.machines[machine];
    let Some(service) = &books.requests[at].demand.service else {
        return false;
    };
    let is_sibling = |pending: &usize| {
        let request = books.pending[*pending].request;
        books.requests[request].demand.service.as_ref() == Some(service)
    };
    place.services.contains(service) || place.pending.iter().any(is_sibling)
}
