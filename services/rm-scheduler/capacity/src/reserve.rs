//! Reservations (9.3): a node is kept for one piece of work that waited long enough, and room on as
//! many nodes as it needs for one gang ([`gangs`]), for a bounded time measured once. What lapses
//! without effect stays without one for as long again, so that no node is kept for the same work
//! for ever.

pub(crate) mod gangs;
pub(crate) mod pack;

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::Reservation;
use hayward_vocabulary::{NodeName, Timestamp};

use crate::books::{Books, Why};

/// How long an ask has to wait before a node is kept for it.
pub(crate) const PATIENCE_MS: u64 = 2_000;
/// At most this part of all nodes is kept for those who wait, and at least one.
const ONE_IN: usize = 10;

/// Reservations that still hold, their asks tried first on their nodes (8.1). What they did not
/// need any more is open to everybody.
pub(crate) fn serve(books: &mut Books) {
    forget(books, books.snapshot.now);
    gangs::promise_cleared(books);
    serve_plain(books);
    gangs::serve(books);
}

fn serve_plain(books: &mut Books) {
    let now = books.snapshot.now;
    let lifetime = books.queues.reservation_ms;
    let mut kept: Vec<(NodeName, Reservation)> = std::mem::take(&mut books.kept.reservations)
        .into_iter()
        .collect();
    kept.sort_by(|a, b| (a.1.since, &a.0).cmp(&(b.1.since, &b.0)));
    for (name, mut reservation) in kept {
        let ask = books.ask_of.get(&reservation.work).copied();
        let node = books.nodes.find(&name);
        let (Some(ask), Some(node)) = (ask, node) else {
            continue;
        };
        let station = &books.nodes.stations[node];
        let possible = station.node.is_schedulable()
            && station.could_hold(books.vector(ask))
            && books.suits(ask, node)
            && books.asks[ask].missing() > 0
            && books.queue_of(ask).is_some();
        if !possible {
            continue;
        }
        if now.ms_since(reservation.since) >= lifetime {
            books.kept.lapsed.insert(reservation.work, now);
            continue;
        }
        books.nodes.stations[node].reserved = true;
        let due = reservation.processes.min(books.asks[ask].missing());
        reservation.processes = due - on_its_node(books, (ask, node), due);
        if reservation.processes > 0 {
            books.kept.reservations.insert(name, reservation);
        } else {
            books.nodes.stations[node].reserved = false;
        }
    }
}

fn on_its_node(books: &mut Books, (ask, node): (usize, usize), due: u64) -> u64 {
    for placed in 0..due {
        let app = books.asks[ask].app;
        let may = books.may_run(app).and_then(|()| books.may_hold(ask));
        let vector = books.vector(ask);
        if may.is_err() || !books.nodes.stations[node].fits(vector) {
            return placed;
        }
        books.place(ask, node);
    }
    due
}

/// What is over is no news any more.
fn forget(books: &mut Books, now: Timestamp) {
    let recent = |at: &Timestamp, ms: u64| now.ms_since(*at) < ms;
    let (lifetime, cooldown) = (
        books.queues.reservation_ms,
        books.queues.preemption_cooldown_ms,
    );
    let known = &books.ask_of;
    let kept = &mut books.kept;
    kept.lapsed
        .retain(|work, at| recent(at, lifetime) && known.contains_key(work));
    kept.attempts
        .retain(|work, at| recent(at, crate::preempt::AGAIN_MS) && known.contains_key(work));
    kept.hit
        .retain(|work, at| recent(at, cooldown) && known.contains_key(work));
    kept.passed_over.retain(|work| known.contains_key(work));
    kept.backing_off.retain(|_, until| *until > now);
}

/// After everybody had a turn: what was placed elsewhere needs no node any more, and who waited
/// long enough gets one.
pub(crate) fn renew(books: &mut Books) {
    trim(books);
    gangs::settle(books);
    let waits = books.kept.gang_waits.take();
    let Some(next) = gangs::next(books) else {
        return give(books, None);
    };
    // A gang may need nodes that are kept for others. Who waited longer goes before it, once; then
    // nobody gets a node until it has its own. Otherwise others would follow each other for ever
    // (I23): work whose processes are short always has waited since it was submitted.
    if waits.is_none() {
        give(books, Some(next.since));
    }
    if gangs::keep(books, &next) {
        give(books, None);
    } else {
        books.kept.gang_waits = waits.or(Some(books.snapshot.now));
    }
}

fn trim(books: &mut Books) {
    let mut left: BTreeMap<usize, u64> = BTreeMap::new();
    let mut reservations = std::mem::take(&mut books.kept.reservations);
    reservations.retain(|_, reservation| {
        let ask = books.ask_of[&reservation.work];
        let left = left.entry(ask).or_insert_with(|| books.asks[ask].missing());
        reservation.processes = reservation.processes.min(*left);
        *left -= reservation.processes;
        reservation.processes > 0
    });
    books.kept.reservations = reservations;
}

/// A node for each application that waits; only for who has waited since `until`, where that is
/// said.
fn give(books: &mut Books, until: Option<Timestamp>) {
    let most = (books.nodes.stations.len() / ONE_IN).max(1);
    let mut has: Vec<bool> = vec![false; books.apps.len()];
    for reservation in books.kept.reservations.values() {
        has[books.asks[books.ask_of[&reservation.work]].app] = true;
    }
    // Shapes that no node could hold; only asks that may go anywhere are alike in that.
    let mut never: Vec<bool> = vec![false; books.shapes.len()];
    for ask in books.aside.clone() {
        let it = &books.asks[ask];
        let (app, shape) = (it.app, it.shape);
        let waits = it.why == Some(Why::NoNode)
            && it.queued.gang.is_none()
            && it.queued.required_node.is_none()
            && books.snapshot.now.ms_since(it.waits_since) >= PATIENCE_MS
            && !books.kept.lapsed.contains_key(it.work)
            && until.is_none_or(|until| it.waits_since <= until);
        if !waits || has[app] || (it.anywhere && never[shape]) {
            continue;
        }
        if books.kept.reservations.len() >= most {
            return;
        }
        match nearest(books, ask) {
            Some(node) => {
                has[app] = true;
                book(books, (ask, node), (1, false));
            }
            None => never[shape] |= books.asks[ask].anywhere,
        }
    }
}

/// The node where the least is short of what is asked.
fn nearest(books: &Books, ask: usize) -> Option<usize> {
    let vector = books.vector(ask);
    let could = |at: &usize| {
        let station = &books.nodes.stations[*at];
        let kept = station.reserved || !station.kept.is_empty();
        let open = station.node.is_schedulable() && !kept;
        open && station.could_hold(vector) && books.suits(ask, *at)
    };
    let short = |at: &usize| {
        let used = &books.nodes.stations[*at].used;
        (
            pack::short(books, *at, (used, vector)),
            books.nodes.rank(*at),
        )
    };
    let all = 0..books.nodes.stations.len();
    all.filter(could).min_by_key(short)
}

/// Keeps a node for one piece of work. A gang that merely had room there looks for other room.
pub(crate) fn book(
    books: &mut Books,
    (ask, node): (usize, usize),
    (processes, cleared): (u64, bool),
) {
    let now = books.snapshot.now;
    let work = books.asks[ask].work.clone();
    gangs::leave(books, node);
    let station = &mut books.nodes.stations[node];
    station.reserved = true;
    let reservation = books
        .kept
        .reservations
        .entry(station.name.clone())
        .or_insert(Reservation {
            work,
            processes: 0,
            since: now,
            cleared: false,
        });
    reservation.processes += processes;
    reservation.cleared |= cleared;
}

/// Nodes of which something is kept for others.
pub(crate) fn kept_nodes(books: &Books) -> Vec<usize> {
    let stations = books.nodes.stations.iter().enumerate();
    let kept = stations.filter(|(_, it)| it.reserved || !it.kept.is_empty());
    kept.map(|(node, _)| node).collect()
}

/// Those of them where one more process of this ask could be placed now, if nothing were kept for
/// others.
pub(crate) fn kept_away(books: &Books, ask: usize, kept: &[usize]) -> Vec<usize> {
    let vector = books.vector(ask);
    let away = kept.iter().copied().filter(|node| {
        let station = &books.nodes.stations[*node];
        station.node.is_schedulable() && station.has_room(vector) && books.suits(ask, *node)
    });
    away.collect()
}
