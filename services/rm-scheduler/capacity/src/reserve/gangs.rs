//! Room that is kept for a gang (9.3, I23): a set of nodes found by packing all that it lacks.
//!
//! Invariants: room is kept for one gang of a pool at a time and always for all that it lacks, so
//! two never each keep a half (I13); what runs in that room goes on, and nothing new starts there
//! that would not fit beside it. The gang still starts whole, in one round, there or elsewhere.
//! The room has one lifetime however often it is found anew; a gang whose room lapsed gets none for
//! as long again, and others have their turn.

use std::{cmp::Reverse, collections::BTreeMap};

use hayward_rm_scheduler_domain::snapshot::queues::GangRoom;
use hayward_vocabulary::{Timestamp, WorkId};

use super::{
    PATIENCE_MS,
    gang_fit::{Found, pack, pack_soon},
    is_awaited,
};
use crate::{
    future_nodes::Yard,
    gang::{self, whole::lacks},
    resource_vec::times,
    round_state::{Books, Why},
    tree::ROOT,
    verdict::never,
};

/// Gangs for which room is looked for in one round.
const LOOKS: usize = 10;

/// A gang for which room is to be kept.
pub(crate) struct Next {
    ask: usize,
    pub since: Timestamp,
}

/// An ask of the gang that this room is for, if it lacks something still.
fn whose(books: &Books, room: &GangRoom) -> Option<usize> {
    let ask = books.ask_of.get(&room.work).copied()?;
    let lacks = !gang::lacking(books, ask).is_empty();
    (lacks && books.queue_of(ask).is_some()).then_some(ask)
}

/// Since when others leave for a gang.
pub(super) fn cleared_since(books: &Books) -> Option<Timestamp> {
    let room = books.kept.gang.as_ref();
    room.filter(|room| room.cleared).map(|room| room.since)
}

/// How long this room is kept. Who was told to leave it may need longer than that; what they leave
/// would be of no use to anybody else if it were given up, so it has a second lifetime.
pub(crate) fn until(books: &Books, room: &GangRoom) -> Timestamp {
    let nodes = room.nodes.keys().filter_map(|name| books.nodes.find(name));
    let ask = books.ask_of.get(&room.work);
    let longer = room.cleared && ask.is_some_and(|ask| is_awaited(books, *ask, nodes));
    let lifetimes = if longer { 2 } else { 1 };
    let ms = books.queues.reservation_ms;
    room.since.plus_ms(ms.saturating_mul(lifetimes))
}

fn is_over(books: &Books, room: &GangRoom) -> bool {
    until(books, room) <= books.snapshot.now
}

/// The gang that has room is tried first, with that room and any other. Where it still does not
/// fit, the room stays its own for this round.
pub(super) fn serve(books: &mut Books) {
    books.promise_to_no_gang();
    let Some(mut room) = books.kept.gang.take() else {
        return;
    };
    let Some(ask) = whose(books, &room) else {
        return;
    };
    let now = books.snapshot.now;
    if is_over(books, &room) {
        let works = gang::all(books, ask).map(|part| books.asks[part].work.clone());
        // What others left for in vain is not tried again for twice as long.
        let again = u64::from(room.cleared) * books.queues.reservation_ms;
        let lapsed: Vec<_> = works.map(|work| (work, now.plus_ms(again))).collect();
        books.kept.lapsed.extend(lapsed);
        return;
    }
    room.nodes.retain(|name, works| {
        let node = books.nodes.find(name);
        let node = node.filter(|at| books.nodes.stations[*at].node.is_schedulable());
        let suits = |node: usize| {
            let mut parts = works.keys().filter_map(|work| books.ask_of.get(work));
            parts.all(|part| books.suits(*part, node))
        };
        node.is_some_and(suits)
    });
    let app = books.asks[ask].app;
    let backs_off = books.kept.backing_off.contains_key(books.apps[app].name);
    // Otherwise its application is told so in its turn.
    if !backs_off && books.may_run(app).is_ok() {
        books.nodes.line_up();
        let Err(why) = gang::place(books, ask, Some(&room)) else {
            return;
        };
        for part in gang::parts(books, ask) {
            books.asks[part].why = Some(why.clone());
            books.aside.push(part);
        }
    }
    charge(books, (ask, &room));
    books.kept.gang = Some(room);
}

/// From here on nothing starts in it, nor with the quota that its gang needs.
fn charge(books: &mut Books, (ask, room): (usize, &GangRoom)) {
    books.promise_to_gang(ask, room.cleared);
    for (name, works) in &room.nodes {
        let Some(node) = books.nodes.find(name) else {
            continue;
        };
        for (work, count) in works {
            if let Some(ask) = books.ask_of.get(work) {
                let vector = times(books.vector(*ask), *count);
                books.nodes.keep(node, &vector);
            }
        }
    }
}

fn open_up(books: &mut Books) {
    books.promise_to_no_gang();
    for node in 0..books.nodes.stations.len() {
        books.nodes.release(node);
    }
}

/// Keeps this room, and none for any other gang.
pub(crate) fn hold(
    books: &mut Books,
    (ask, found): (usize, &Found),
    (since, cleared): (Timestamp, bool),
) {
    open_up(books);
    let first = gang::all(books, ask).next().unwrap_or(ask);
    let mut room = GangRoom {
        work: books.asks[first].work.clone(),
        since,
        cleared,
        nodes: BTreeMap::new(),
    };
    for (node, parts) in found {
        let works = parts.iter();
        let works = works.map(|(part, count)| (books.asks[*part].work.clone(), *count));
        let name = books.nodes.stations[*node].name.clone();
        room.nodes.insert(name, works.collect());
    }
    charge(books, (ask, &room));
    books.kept.gang = Some(room);
}

/// The node is needed for somebody with a better right to it.
pub(super) fn leave(books: &mut Books, node: usize) {
    books.nodes.release(node);
    if let Some(room) = &mut books.kept.gang {
        room.nodes.remove(books.nodes.stations[node].name);
    }
}

/// Others were told to leave this node for a gang.
pub(crate) fn is_cleared(books: &Books, node: usize) -> bool {
    let room = books.kept.gang.as_ref().filter(|room| room.cleared);
    room.is_some_and(|room| room.nodes.contains_key(books.nodes.stations[node].name))
}

/// The room that is kept for the gang of this ask.
pub(crate) fn of<'b>(books: &'b Books, ask: usize) -> Option<&'b GangRoom> {
    let room = books.kept.gang.as_ref()?;
    let first = books.ask_of.get(&room.work)?;
    gang::all(books, ask)
        .any(|part| part == *first)
        .then_some(room)
}

/// Room of which nodes have gone, or that is too small by now, is found anew within its one
/// lifetime; a part of what is needed is never kept.
pub(super) fn settle(books: &mut Books) {
    let Some(room) = books.kept.gang.clone() else {
        return;
    };
    let Some(ask) = whose(books, &room) else {
        books.kept.gang = None;
        return open_up(books);
    };
    let parts = gang::lacking(books, ask);
    let lacking = parts.iter().map(|part| {
        let it = &books.asks[*part];
        (it.work, it.gang_lacks())
    });
    let lacking: BTreeMap<&WorkId, u64> = lacking.collect();
    let mut seats: BTreeMap<&WorkId, u64> = BTreeMap::new();
    for (work, count) in room.nodes.values().flatten() {
        *seats.entry(work).or_default() += count;
    }
    if seats == lacking {
        return;
    }
    books.kept.gang = None;
    open_up(books);
    let yard = Yard::of(books);
    // Others were told to leave for it: what they leave may still be enough.
    let cleared = room.cleared && books.may_hold_soon(ask, &lacks(books, &parts));
    let soon = cleared.then(|| pack_soon(books, &yard, &parts)).flatten();
    if let Some(found) = soon {
        hold(books, (ask, &found), (room.since, true));
    } else if let Some(found) = pack(books, &yard, (&parts, false)) {
        hold(books, (ask, &found), (room.since, false));
    }
}

/// The gang whose turn it is: of the highest priority, of those the one that waited longest. What
/// could never be, or not on the nodes there are now, is passed over: it delays nobody. Only so
/// many are looked at in one round, and the next round goes on where this one ended.
pub(super) fn next(books: &mut Books) -> Option<Next> {
    if books.kept.gang.is_some() {
        return None;
    }
    let gangs = books.aside.iter().copied();
    let mut gangs: Vec<usize> = gangs.filter(|ask| is_first(books, *ask)).collect();
    gangs.retain(|ask| waits_for_nodes(books, *ask));
    let passed_over = |ask: &usize| books.kept.passed_over.contains(books.asks[*ask].work);
    if gangs.iter().all(passed_over) {
        books.kept.passed_over.clear();
    } else {
        gangs.retain(|ask| !passed_over(ask));
    }
    gangs.sort_by_cached_key(|ask| {
        let priority = books.queue_of(*ask).map(|queue| {
            let own = books.asks[*ask].queued.priority;
            books.tree.priority_below(ROOT, queue, own)
        });
        (
            Reverse(priority),
            waits_since(books, *ask),
            books.asks[*ask].work,
        )
    });
    let yard = Yard::of(books);
    for ask in gangs.iter().copied().take(LOOKS) {
        let parts = gang::lacking(books, ask);
        if pack(books, &yard, (&parts, true)).is_some() {
            let since = waits_since(books, ask);
            return Some(Next { ask, since });
        }
        books.kept.passed_over.insert(books.asks[ask].work.clone());
    }
    if gangs.len() <= LOOKS {
        books.kept.passed_over.clear();
    }
    None
}

/// It stands for its gang.
fn is_first(books: &Books, ask: usize) -> bool {
    books.asks[ask].gang_lacks() > 0
        && gang::all(books, ask).find(|part| books.asks[*part].gang_lacks() > 0) == Some(ask)
}

fn waits_for_nodes(books: &Books, ask: usize) -> bool {
    let it = &books.asks[ask];
    let no_node = matches!(
        &it.why,
        Some(Why::Gang { because, .. }) if because.as_deref() == Some(&Why::NoNode)
    );
    no_node
        && books.snapshot.now.ms_since(waits_since(books, ask)) >= PATIENCE_MS
        && !has_lapsed(books, ask)
        && never(books, ask).is_none()
}

/// Its last part waits since then.
pub(crate) fn waits_since(books: &Books, ask: usize) -> Timestamp {
    let parts = gang::all(books, ask).map(|part| &books.asks[part]);
    let parts = parts.filter(|it| it.gang_lacks() > 0);
    let since = parts.map(|it| it.waits_since);
    since.max().unwrap_or(books.asks[ask].waits_since)
}

pub(crate) fn has_lapsed(books: &Books, ask: usize) -> bool {
    let mut parts = gang::all(books, ask);
    parts.any(|part| books.kept.lapsed.contains_key(books.asks[part].work))
}

/// Keeps room for it beside what is kept for others, if there is enough.
pub(super) fn keep(books: &mut Books, next: &Next) -> bool {
    let parts = gang::lacking(books, next.ask);
    let yard = Yard::of(books);
    let found = pack(books, &yard, (&parts, false));
    let since = books.snapshot.now;
    found.is_some_and(|found| {
        hold(books, (next.ask, &found), (since, false));
        books.kept.passed_over.clear();
        true
    })
}
