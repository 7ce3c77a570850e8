//! What-Of: puts counted processes on nodes (section 10), and lends what stays idle.
//!
//! Nothing is taken back here and nothing given is moved. Fit is tested on quanta, on the
//! full size vector and on single gpus.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use hayward_vocabulary::Size;

use crate::{
    books::Books, pack, packing::Packing, plan::Reason, reach::never, reserve, snapshot::Policy,
    turns::in_turn,
};

/// Nodes by free quanta, so that the smallest hole that fits is found without looking at others.
pub(crate) struct FreeRoom {
    pools: Vec<BTreeMap<u64, BTreeSet<usize>>>,
    /// What did not fit once does not fit later: in this phase room only shrinks.
    exhausted: BTreeSet<(usize, u64, Size)>,
    /// Decides in its place in pools where gpus are in play.
    packing: Option<Packing>,
}

impl FreeRoom {
    fn index(books: &Books, usable: impl Fn(usize) -> bool) -> Self {
        let mut pools = vec![BTreeMap::<u64, BTreeSet<usize>>::new(); books.forest.len()];
        for (at, machine) in books.machines.iter().enumerate() {
            let Some(pool) = machine.pool.filter(|_| machine.is_schedulable()) else {
                continue;
            };
            if machine.free.order > 0 && usable(at) {
                pools[pool]
                    .entry(machine.free.order)
                    .or_default()
                    .insert(at);
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
        if let Some(nodes) = self.pools[pool].get_mut(&free) {
            nodes.remove(&machine);
            if nodes.is_empty() {
                self.pools[pool].remove(&free);
            }
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
            .filter_map(|name| books.machine_index.get(name).copied())
            .map(|at| (books.machines[at].free.order, at))
            .filter(|(free, at)| self.pools[pool].get(free).is_some_and(|n| n.contains(at)))
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
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                if let Some(machine) = nodes.range((from, Bound::Unbounded)).next() {
                    *after = Some(*machine);
                    return Some(*machine);
                }
                (*free, *after) = (*size + 1, None);
            },
        }
    }
}

/// for one tree.
pub(crate) fn place_counted(books: &mut Books, tree: usize) {
    let turns = in_turn(books, tree);
    let needy = &books.snapshot.carried.needy;
    let first: Vec<(Policy, usize)> = turns
        .iter()
        .filter(|(_, at)| needy.contains(books.requests[*at].id))
        .copied()
        .collect();
    let placed_before = books.pending.len();
    place_in_order(books, &first);
    place_in_order(books, &turns);
    if books.settings.pack {
        pack::improve(books, &turns, placed_before);
    }
    for (_, at) in turns {
        books.requests[at].waits = why_nothing(books, at);
    }
}

pub(crate) fn place_in_order(books: &mut Books, turns: &[(Policy, usize)]) {
    let kept = books.settings.clear_promised;
    let promised = |books: &Books, at: usize| kept && books.machines[at].promised_to.is_some();
    let mut room = FreeRoom::index(books, |at| !promised(books, at));
    for (policy, at) in turns {
        if books.requests[*at].is_out() {
            continue;
        }
        match policy {
            Policy::Reserve => {
                let before = books.pending.len();
                reserve::place(books, *at);
                for share in before..books.pending.len() {
                    room.forget_whole(books, books.pending[share].machine);
                }
            }
            Policy::FixedShare => place_fixed(books, &mut room, *at),
            Policy::FairShare => {
                let need = books.requests[*at].missing();
                place(books, &mut room, *at, need);
            }
        }
    }
}

/// why it has no process after its turn.
fn why_nothing(books: &Books, at: usize) -> Option<Reason> {
    let request = &books.requests[at];
    if request.has() > 0 || request.is_out() || request.cap.now == 0 && request.reach > 0 {
        return None;
    }
    if let Some((reason, _)) = never(books, at) {
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
pub(crate) fn lend_idle(books: &mut Books, tree: usize) {
    let open: Vec<bool> = books
        .machines
        .iter()
        .map(|machine| machine.spoken.is_empty() && machine.promised_to.is_none())
        .collect();
    let mut room = FreeRoom::index(books, |at| open[at]);
    for (policy, at) in in_turn(books, tree) {
        if policy == Policy::FairShare && !books.requests[at].demand.completing {
            let request = &books.requests[at];
            let more = request.cap.now.saturating_sub(request.has());
            place(books, &mut room, at, more);
        }
    }
}

/// one work fills a node before it moves on, home before the pools below.
fn place(books: &mut Books, room: &mut FreeRoom, at: usize, need: u64) {
    let Some(home) = books.home(at) else { return };
    let mut left = need;
    for pool in books.forest.subtree(home) {
        if left == 0 {
            return;
        }
        left = place_in(books, room, (at, pool), left, true);
    }
}

/// home pool only; first where no instance of the same service is, then anywhere [C-10].
fn place_fixed(books: &mut Books, room: &mut FreeRoom, at: usize) {
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
fn place_in(
    books: &mut Books,
    room: &mut FreeRoom,
    (at, pool): (usize, usize),
    need: u64,
    beside: bool,
) -> u64 {
    let request = &books.requests[at];
    let (order, size) = (request.order, request.size.clone());
    let anywhere = beside && request.demand.machines.is_empty();
    if need == 0 || (anywhere && room.exhausted.contains(&(pool, order, size.clone()))) {
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
        let shunned = !beside
            && books.requests[at]
                .demand
                .service
                .iter()
                .any(|s| place.services.contains(s));
        let mut count = place.free.fitting(order, &size).min(left);
        if count > 0 && place.spoken.iter().any(|meant| meant.request != at) {
            // What is leaving here is meant for others, who may find it where this one does not.
            let room = books.coming_room_for(machine, Some(at));
            let unmeant = room.fitting(order, &size);
            kept_for_others |= unmeant < count;
            count = count.min(unmeant);
        }
        if shunned || count == 0 {
            continue;
        }
        for _ in 0..count {
            books.grant(at, machine, order, size.clone());
        }
        room.forget(pool, free, machine);
        let free = books.machines[machine].free.order;
        if free > 0 {
            room.pools[pool].entry(free).or_default().insert(machine);
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
fn place_packed(
    books: &mut Books,
    packing: &mut Packing,
    (at, pool): (usize, usize),
    need: u64,
    beside: bool,
) -> u64 {
    let (order, size) = (books.requests[at].order, books.requests[at].size.clone());
    for placed in 0..need {
        let suits = |machine: usize| {
            let place = &books.machines[machine];
            let request = &books.requests[at];
            let service = request.demand.service.iter();
            let shunned = !beside && service.into_iter().any(|it| place.services.contains(it));
            let meant = || place.spoken.iter().any(|meant| meant.request != at);
            let kept_for_others = || {
                let room = books.coming_room_for(machine, Some(at));
                room.fitting(order, &size) == 0
            };
            !shunned && request.admits(place) && !(meant() && kept_for_others())
        };
        let Some(machine) = packing.best(books, (at, pool), suits) else {
            return need - placed;
        };
        books.grant(at, machine, order, size.clone());
        packing.changed(machine);
    }
    0
}
