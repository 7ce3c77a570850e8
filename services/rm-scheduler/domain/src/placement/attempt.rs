//! One attempt at placing work, in the order given.

use super::{
    by_free_space::Search,
    pass::{Walk, is_usable},
};
use crate::{entitlement::whole_nodes, input::snapshot::Policy, state::Books};

/// Processes for which memory is asked for at once, at most.
const RESERVED_AT_ONCE: u64 = 1 << 20;

pub(super) fn place_in_order(books: &mut Books, turns: &[(Policy, usize)]) {
    reserve_memory(books, turns);
    let mut walk = None;
    serve(books, &mut walk, turns.iter());
    if let Some(walk) = walk {
        walk.close(books);
    }
}

/// For all that could be granted to these: grown bit by bit, it would be copied as often.
pub(super) fn reserve_memory(books: &mut Books, turns: &[(Policy, usize)]) {
    let missing = turns.iter().map(|(_, at)| books.requests[*at].missing());
    let missing = missing.fold(0, u64::saturating_add).min(RESERVED_AT_ONCE);
    books.pending.reserve(usize::try_from(missing).unwrap_or(0));
}

/// In this order. The walk is opened for the first who lacks anything.
pub(super) fn serve<'a, 't>(
    books: &mut Books<'a>,
    walk: &mut Option<Walk<'a>>,
    turns: impl Iterator<Item = &'t (Policy, usize)>,
) {
    for (policy, at) in turns {
        let request = &books.requests[*at];
        if request.missing() == 0 {
            continue;
        }
        let fair = *policy == Policy::FairShare;
        if fair && walk.as_ref().is_some_and(|walk| walk.is_in_vain(request)) {
            continue;
        }
        if request.is_out() {
            continue;
        }
        let walk = walk.get_or_insert_with(|| Walk::open(books, *at, false));
        match policy {
            Policy::Reserve => {
                let before = books.pending.len();
                whole_nodes::place(books, *at);
                walk.rooms.follow(books);
                if let Some(packing) = &mut walk.packing {
                    for granted in &books.pending[before..] {
                        packing.changed(granted.machine);
                    }
                }
                // What it sends away may leave room to others than those it is meant for.
                walk.spoken_for.clear();
            }
            Policy::FixedShare => place_fixed(books, walk, *at),
            Policy::FairShare => {
                let need = books.requests[*at].missing();
                place(books, walk, *at, need);
            }
        }
    }
}

/// one work fills a node before it moves on, home before the pools below.
pub(crate) fn place<'a>(books: &mut Books<'a>, walk: &mut Walk<'a>, at: usize, need: u64) {
    let Some(home) = books.home(at) else { return };
    let mut left = need;
    let forest = books.forest;
    for pool in forest.subtree(home) {
        if left == 0 {
            return;
        }
        left = place_in(books, walk, (at, *pool), left, true);
    }
    if left > 0 {
        walk.note_vain(books, at, home);
    }
}

/// home pool only; first where no instance of the same service is, then anywhere [C-10].
fn place_fixed<'a>(books: &mut Books<'a>, walk: &mut Walk<'a>, at: usize) {
    let Some(home) = books.home(at) else { return };
    let mut left = books.requests[at].missing();
    if books.demand(at).wishes().service.is_some() {
        left = place_in(books, walk, (at, home), left, false);
        if books.requests[at].has() > 0 {
            return;
        }
    }
    place_in(books, walk, (at, home), left, true);
}

/// Places up to `need` processes in one pool; returns how many are left. Unless `beside` says so,
/// never next to an instance of the same service.
fn place_in<'a>(
    books: &mut Books<'a>,
    walk: &mut Walk<'a>,
    (at, pool): (usize, usize),
    need: u64,
    beside: bool,
) -> u64 {
    let request = &books.requests[at];
    let (order, size, shape) = (request.order, books.size(at), request.shape);
    let (anywhere, is_apart) = (beside && !request.is_picky(), request.apart);
    let is_meant = request.coming > 0;
    let in_vain = |walk: &Walk| {
        walk.exhausted.contains(&(pool, shape))
            || !is_meant && walk.spoken_for.contains(&(pool, shape))
    };
    if need == 0 || (anywhere && in_vain(walk)) {
        return need;
    }
    if walk.packing.as_ref().is_some_and(|it| it.covers(pool)) {
        return place_packed(books, walk, (at, pool), need, beside);
    }
    let mut left = need;
    let mut kept_for_others = false;
    let mut search = Search::of(books, &walk.rooms, pool, at);
    while let Some(machine) = search.next(&walk.rooms) {
        if !is_usable(books, walk.lends, machine) {
            continue;
        }
        let place = &books.machines[machine];
        let shunned = (!beside && has_sibling(books, at, machine))
            || is_apart && books.is_parted(at, machine);
        let mut count = place.free.fitting(order, size).min(left);
        if count > 0 && place.spoken.iter().any(|meant| meant.request != at) {
            // What is leaving here is meant for others, who may find it where this one does not.
            let unmeant = if books.coming_order_for(machine, Some(at)) < order {
                0
            } else {
                let room = books.coming_room_for(machine, Some(at));
                room.fitting(order, size)
            };
            kept_for_others |= unmeant < count;
            count = count.min(unmeant);
        }
        if shunned || count == 0 {
            continue;
        }
        for _ in 0..count {
            books.grant(at, machine, order, size);
        }
        walk.changed(books, machine);
        left -= count;
        if left == 0 {
            return 0;
        }
    }
    if anywhere && !kept_for_others {
        walk.exhausted.insert((pool, shape));
    } else if anywhere && !is_meant && size.gpu_milli == 0 {
        // Which gpus a grant takes can differ from those that were meant; sums cannot.
        walk.spoken_for.insert((pool, shape));
    }
    left
}

/// As [`place_in`] where gpus are in play: one process after the other, each on the node where what
/// then stays free is of most use.
fn place_packed<'a>(
    books: &mut Books<'a>,
    walk: &mut Walk<'a>,
    (at, pool): (usize, usize),
    need: u64,
    beside: bool,
) -> u64 {
    let (order, size) = (books.requests[at].order, books.size(at));
    let Some(packing) = walk.packing.as_mut() else {
        return need;
    };
    for placed in 0..need {
        let suits = |machine: usize| {
            let place = &books.machines[machine];
            let shunned = !beside && has_sibling(books, at, machine);
            let meant = place.spoken.iter().any(|meant| meant.request != at);
            let kept_for_others = || {
                let room = books.coming_room_for(machine, Some(at));
                room.fitting(order, size) == 0
            };
            let may = books.admits(at, machine) && !books.is_parted(at, machine);
            !shunned && may && !(meant && kept_for_others())
        };
        let Some(machine) = packing.best(books, (at, pool), suits) else {
            if packing.is_full(books, (at, pool)) {
                walk.exhausted.insert((pool, books.requests[at].shape));
            }
            return need - placed;
        };
        books.grant(at, machine, order, size);
        packing.changed(machine);
        walk.rooms.follow_one(books, machine);
    }
    0
}

/// Is an instance of the same service there, or placed there in this round?
fn has_sibling(books: &Books, at: usize, machine: usize) -> bool {
    let place = &books.machines[machine];
    let Some(service) = &books.demand(at).wishes().service else {
        return false;
    };
    let is_sibling = |pending: &usize| {
        let request = books.pending[*pending].request;
        books.demand(request).wishes().service.as_ref() == Some(service)
    };
    books.station(machine).services.contains(service) || place.pending.iter().any(is_sibling)
}
