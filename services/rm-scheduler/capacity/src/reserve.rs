//! Reservations (9.3): a node is kept for one piece of work that waited long enough, and room on as
//! many nodes as it needs for one gang ([`gangs`]), for a bounded time measured once. What lapses
//! without effect stays without one for as long again, so that no node is kept for the same work
//! for ever.

pub(crate) mod gang_fit;
pub(crate) mod gangs;

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::Reservation;
use hayward_vocabulary::{NodeName, Timestamp};

use crate::round_state::{Books, Why};

/// How long an ask has to wait before a node is kept for it.
pub(crate) const PATIENCE_MS: u64 = 2_000;
/// At most this part of all nodes is kept for those who wait, and at least one.
const ONE_IN: usize = 10;

/// A reservation that still holds.
struct Standing {
    node: usize,
    ask: usize,
    reservation: Reservation,
}

/// Reservations that still hold, their asks tried first on their nodes (8.1). What they did not
/// need any more is open to everybody.
///
/// What others leave for goes first, the oldest first of all: what is promised later has victims of
/// its own to wait for, and must not hold back what was promised before until they have left.
pub(crate) fn serve(books: &mut Books) {
    forget(books, books.snapshot.now);
    let standing = standing(books);
    let gang = gangs::cleared_since(books);
    let first = |it: &Standing| {
        gang.is_none_or(|since| it.reservation.cleared && it.reservation.since < since)
    };
    let (first, later): (Vec<Standing>, Vec<Standing>) = standing.into_iter().partition(first);
    for it in first {
        serve_one(books, it);
    }
    gangs::serve(books);
    for it in later {
        serve_one(books, it);
    }
}

/// Those for which others leave first, then the oldest.
fn standing(books: &mut Books) -> Vec<Standing> {
    let mut kept: Vec<(NodeName, Reservation)> = std::mem::take(&mut books.kept.reservations)
        .into_iter()
        .collect();
    kept.sort_by(|a, b| (!a.1.cleared, a.1.since, &a.0).cmp(&(!b.1.cleared, b.1.since, &b.0)));
    let mut standing = Vec::new();
    let mut left: BTreeMap<usize, u64> = BTreeMap::new();
    for (name, mut reservation) in kept {
        let ask = books.ask_of.get(&reservation.work).copied();
        let Some((ask, node)) = ask.zip(books.nodes.find(&name)) else {
            continue;
        };
        let left = left.entry(ask).or_insert(books.asks[ask].missing());
        reservation.processes = reservation.processes.min(*left);
        if reservation.processes == 0 || !is_possible(books, (ask, node)) {
            continue;
        }
        if has_ended(books, (ask, node), &reservation) {
            lapse(books, reservation);
            continue;
        }
        *left -= reservation.processes;
        books.nodes.stations[node].reserved = true;
        if reservation.cleared {
            books.keep_apart(ask, node);
        }
        standing.push(Standing {
            node,
            ask,
            reservation,
        });
    }
    standing
}

fn is_possible(books: &Books, (ask, node): (usize, usize)) -> bool {
    let station = &books.nodes.stations[node];
    station.node.is_schedulable()
        && station.could_hold(books.vector(ask))
        && books.suits(ask, node)
        && books.queue_of(ask).is_some()
}

/// What others leave for has a second lifetime while they do: it would be of no use to anybody
/// else if it were given up.
fn has_ended(books: &Books, (ask, node): (usize, usize), reservation: &Reservation) -> bool {
    let lifetime = books.queues.reservation_ms;
    let age = books.snapshot.now.ms_since(reservation.since);
    let longer = || reservation.cleared && is_awaited(books, ask, [node].into_iter());
    age >= lifetime && (age >= lifetime.saturating_mul(2) || !longer())
}

/// What others left for in vain is not tried again for twice as long.
fn lapse(books: &mut Books, reservation: Reservation) {
    let again = u64::from(reservation.cleared) * books.queues.reservation_ms;
    let now = books.snapshot.now;
    books
        .kept
        .lapsed
        .insert(reservation.work, now.plus_ms(again));
}

/// Something leaves one of these nodes, or a queue whose maximum counts for this ask.
pub(crate) fn is_awaited(
    books: &Books,
    ask: usize,
    mut nodes: impl Iterator<Item = usize>,
) -> bool {
    let leaves = |going: &[u64]| going.iter().any(|amount| *amount > 0);
    let path = books.queue_of(ask).into_iter();
    let mut path = path.flat_map(|own| books.tree.path(own));
    nodes.any(|node| leaves(&books.nodes.stations[node].going))
        || path.any(|at| {
            let spot = &books.tree.spots[at];
            spot.max.iter().any(Option::is_some) && leaves(&spot.going)
        })
}

fn serve_one(books: &mut Books, standing: Standing) {
    let Standing {
        node,
        ask,
        mut reservation,
    } = standing;
    if reservation.cleared {
        books.promise(ask, reservation.processes);
    }
    for _ in 0..reservation.processes {
        if !may_start(books, (ask, node), reservation.cleared) {
            break;
        }
        if reservation.cleared {
            books.redeem(ask, 1);
        }
        books.place(ask, node);
        reservation.processes -= 1;
    }
    let station = &mut books.nodes.stations[node];
    station.reserved = reservation.processes > 0;
    if station.reserved {
        let name = station.name.clone();
        books.kept.reservations.insert(name, reservation);
    }
}

fn may_start(books: &Books, (ask, node): (usize, usize), cleared: bool) -> bool {
    let vector = books.vector(ask);
    let may_hold = || {
        if cleared {
            books.may_hold_more(ask, vector)
        } else {
            books.may_hold(ask)
        }
    };
    books.may_run(books.asks[ask].app).is_ok()
        && may_hold().is_ok()
        && books.nodes.stations[node].fits(vector)
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

/// No more than is asked for still; what others leave for stays before what is merely kept.
fn trim(books: &mut Books) {
    let mut left: BTreeMap<usize, u64> = BTreeMap::new();
    let reservations = std::mem::take(&mut books.kept.reservations);
    let mut reservations: Vec<(NodeName, Reservation)> = reservations.into_iter().collect();
    reservations.sort_by_key(|(_, it)| (!it.cleared, it.since));
    reservations.retain_mut(|(_, reservation)| {
        let ask = books.ask_of[&reservation.work];
        let left = left.entry(ask).or_insert_with(|| books.asks[ask].missing());
        reservation.processes = reservation.processes.min(*left);
        *left -= reservation.processes;
        reservation.processes > 0
    });
    books.kept.reservations = reservations.into_iter().collect();
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
            && !it.starts_whole()
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
                book(books, (ask, node));
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
            gang_fit::short(books, *at, (used, vector)),
            books.nodes.rank(*at),
        )
    };
    let all = 0..books.nodes.stations.len();
    all.filter(could).min_by_key(short)
}

/// Keeps a node for one process of this work. A gang that merely had room there looks for other
/// room.
fn book(books: &mut Books, (ask, node): (usize, usize)) {
    gangs::leave(books, node);
    let station = &mut books.nodes.stations[node];
    station.reserved = true;
    let reservation = Reservation {
        work: books.asks[ask].work.clone(),
        processes: 1,
        since: books.snapshot.now,
        cleared: false,
    };
    let name = station.name.clone();
    books.kept.reservations.insert(name, reservation);
}

/// The same where others leave for it; for one process more, where they do already. A node that was
/// merely kept for this work before needs no other claim. The time is measured from the first.
pub(crate) fn book_cleared(books: &mut Books, (ask, node): (usize, usize)) {
    let name = books.nodes.stations[node].name;
    match books.kept.reservations.get_mut(name) {
        Some(reservation) if reservation.cleared => reservation.processes += 1,
        _ => {
            book(books, (ask, node));
            if let Some(reservation) = books.kept.reservations.get_mut(name) {
                reservation.cleared = true;
            }
        }
    }
    books.promise(ask, 1);
    books.keep_apart(ask, node);
}

/// By ask: the first node that is kept for it while others leave for it.
pub(crate) fn cleared_nodes(books: &Books) -> BTreeMap<usize, usize> {
    let cleared = books.kept.reservations.iter().filter(|(_, it)| it.cleared);
    let cleared = cleared.filter_map(|(name, it)| {
        let ask = *books.ask_of.get(&it.work)?;
        let node = books.nodes.find(name)?;
        is_awaited(books, ask, [node].into_iter()).then_some((ask, node))
    });
    cleared.rev().collect()
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
