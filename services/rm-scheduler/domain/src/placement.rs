//! What-Of: puts counted processes on nodes (section 10), and lends what stays idle.
//!
//! Nothing is taken back here and nothing given is moved. Fit is tested on quanta, on the
//! full size vector and on single gpus.

mod by_free_space;
pub(crate) mod gpu_packing;
mod node_index;
mod pass;
mod repack;
pub(crate) mod serve_order;

use std::borrow::Cow;

use crate::{
    entitlement::whole_nodes, explanation::unblock::Explainer, input::snapshot::Policy,
    lending::candidates::borrowing, output::plan::Reason, state::Books,
};
use serve_order::{all_in_turn, lacking_in_turn};

pub(crate) use crate::collections::buckets::Shelf;
pub(crate) use by_free_space::FreeNodes;
use by_free_space::Search;
pub(crate) use node_index::Rooms;
use pass::{Walk, is_usable};

/// Processes for which memory is asked for at once, at most.
const RESERVED_AT_ONCE: u64 = 1 << 20;

/// for one tree. Returns who lacks something or has more than it may, in turn, as
/// it is then.
pub(crate) fn place_counted(books: &mut Books, tree: usize) -> Vec<(Policy, usize)> {
    let placed_before = books.pending.len();
    let told_before = books.vacates.len();
    let lacking = lacking_in_turn(books, tree);
    let turns = &*in_need(books, tree, &lacking);
    let was_needy = books.was_needy.numbers.clone();
    let was_needy = |turn: &&(Policy, usize)| was_needy.contains(turn.1);
    reserve_memory(books, turns);
    let mut walk = None;
    serve(books, &mut walk, turns.iter().filter(was_needy));
    // What was in vain is so still.
    serve(books, &mut walk, turns.iter());
    if let Some(walk) = walk {
        walk.close(books);
    }
    if books.settings.pack {
        // Who was needy was served first.
        let in_turn = || {
            !turns
                .iter()
                .skip_while(was_needy)
                .any(|turn| was_needy(&turn))
        };
        repack::improve(books, turns, placed_before, in_turn);
    }
    let mut explainer = Explainer::default();
    for (_, at) in turns {
        if let Some(reason) = why_nothing(books, *at, &mut explainer) {
            books.note_wait(*at, reason);
        }
    }
    // Who is given something does not come to lack anything by that.
    if books.vacates.len() > told_before {
        return lacking_in_turn(books, tree);
    }
    debug_assert!(lacking == lacking_in_turn(books, tree));
    lacking
}

/// Those whose turns can change anything: they lack something, or have nothing and are told why. A
/// reservation can take something from anybody, so where one is to be placed all may come to lack
/// something.
fn in_need<'l>(
    books: &Books,
    tree: usize,
    lacking: &'l [(Policy, usize)],
) -> Cow<'l, [(Policy, usize)]> {
    let is_missing = |at: usize| books.requests[at].missing() > 0;
    let is_whole = |(policy, at): &(Policy, usize)| *policy == Policy::Reserve && is_missing(*at);
    if lacking.iter().any(is_whole) {
        return Cow::Owned(all_in_turn(books, tree));
    }
    let needs = |(_, at): &(Policy, usize)| is_missing(*at) || books.requests[*at].has() == 0;
    // Mostly all do.
    if lacking.iter().all(needs) {
        return Cow::Borrowed(lacking);
    }
    Cow::Owned(lacking.iter().copied().filter(needs).collect())
}

pub(crate) fn place_in_order(books: &mut Books, turns: &[(Policy, usize)]) {
    reserve_memory(books, turns);
    let mut walk = None;
    serve(books, &mut walk, turns.iter());
    if let Some(walk) = walk {
        walk.close(books);
    }
}

/// For all that could be granted to these: grown bit by bit, it would be copied as often.
fn reserve_memory(books: &mut Books, turns: &[(Policy, usize)]) {
    let missing = turns.iter().map(|(_, at)| books.requests[*at].missing());
    let missing = missing.fold(0, u64::saturating_add).min(RESERVED_AT_ONCE);
    books.pending.reserve(usize::try_from(missing).unwrap_or(0));
}

/// In this order. The walk is opened for the first who lacks anything.
fn serve<'a, 't>(
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

/// why it has no process after its turn.
fn why_nothing(books: &Books, at: usize, explainer: &mut Explainer) -> Option<Reason> {
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
        _ if books.is_kept_from_room(at) => Reason::KeptApart,
        _ => Reason::WaitingForPreemption,
    })
}

/// Room that no count claims is lent to whoever can use it: an idle node helps nobody, and it is
/// taken back as soon as somebody due can stand there. Nodes whose room is spoken for are left out.
pub(crate) fn lend_idle(books: &mut Books, tree: usize) {
    let mut walk: Option<Walk> = None;
    let mut borrowing = borrowing(books, tree);
    loop {
        let is_in_vain = |at| {
            let walk = walk.as_ref();
            walk.is_some_and(|walk| walk.is_in_vain(&books.requests[at]))
        };
        let Some(at) = borrowing.next(books, is_in_vain) else {
            break;
        };
        let request = &books.requests[at];
        let more = request.cap.now.saturating_sub(request.has());
        if more > 0 && !books.demand(at).completing {
            let walk = walk.get_or_insert_with(|| Walk::open(books, at, true));
            place(books, walk, at, more);
        }
    }
    borrowing.close(books);
    if let Some(walk) = walk {
        walk.close(books);
    }
}

/// one work fills a node before it moves on, home before the pools below.
fn place<'a>(books: &mut Books<'a>, walk: &mut Walk<'a>, at: usize, need: u64) {
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
