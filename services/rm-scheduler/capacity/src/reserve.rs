//! Reservations: a node for one work item that has waited long enough, or nodes for one gang
//! ([`gangs`]), for a bounded time. After a reservation lapses without effect, its work gets none
//! for the same time, so no node stays reserved for one work item forever.

pub(crate) mod gang_fit;
pub(crate) mod gangs;

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::Reservation;
use hayward_vocabulary::{NodeName, Timestamp};

use crate::{
    delays::{MIN_WAIT_MS, RETRY_MS},
    round_state::{RoundState, Why},
};

/// Divisor of the number of nodes: at most this part of them is reserved, but at least one node.
const MAX_RESERVED_ONE_IN: usize = 10;

/// A reservation that is still active.
struct ActiveReservation {
    node: usize,
    item: usize,
    reservation: Reservation,
}

/// Serves active reservations: their work is tried first, on the reserved nodes. Reservations that
/// are no longer needed end.
///
/// Reservations with victims go first, oldest first. Otherwise a later one, still waiting for its
/// victims, could block an earlier one.
pub(crate) fn serve(round: &mut RoundState) {
    forget(round, round.snapshot.now);
    let active = active_reservations(round);
    let gang = gangs::cleared_since(round);
    let first = |it: &ActiveReservation| {
        gang.is_none_or(|since| it.reservation.cleared && it.reservation.since < since)
    };
    let (first, later): (Vec<ActiveReservation>, Vec<ActiveReservation>) =
        active.into_iter().partition(first);
    for it in first {
        serve_one(round, it);
    }
    gangs::serve(round);
    for it in later {
        serve_one(round, it);
    }
}

/// Returns the active reservations: those with victims first, then the oldest.
fn active_reservations(round: &mut RoundState) -> Vec<ActiveReservation> {
    let mut reserved: Vec<(NodeName, Reservation)> =
        std::mem::take(&mut round.carried.reservations)
            .into_iter()
            .collect();
    reserved.sort_by(|a, b| (!a.1.cleared, a.1.since, &a.0).cmp(&(!b.1.cleared, b.1.since, &b.0)));
    let mut active = Vec::new();
    let mut left: BTreeMap<usize, u64> = BTreeMap::new();
    for (name, mut reservation) in reserved {
        let item = round.item_of.get(&reservation.work).copied();
        let Some((item, node)) = item.zip(round.nodes.find(&name)) else {
            continue;
        };
        let left = left.entry(item).or_insert(round.items[item].missing());
        reservation.processes = reservation.processes.min(*left);
        if reservation.processes == 0 || !is_possible(round, item, node) {
            continue;
        }
        if has_ended(round, item, node, &reservation) {
            lapse(round, reservation);
            continue;
        }
        *left -= reservation.processes;
        round.nodes.node_states[node].reserved = true;
        if reservation.cleared {
            round.keep_apart(item, node);
        }
        active.push(ActiveReservation {
            node,
            item,
            reservation,
        });
    }
    active
}

fn is_possible(round: &RoundState, item: usize, node: usize) -> bool {
    let node_state = &round.nodes.node_states[node];
    node_state.node.is_schedulable()
        && node_state.could_hold(round.vector(item))
        && round.suits(item, node)
        && round.queue_of(item).is_some()
}

/// Returns true if the reservation has ended. One with victims has a second lifetime while they
/// leave, because ending it would waste them.
fn has_ended(round: &RoundState, item: usize, node: usize, reservation: &Reservation) -> bool {
    let lifetime = round.queues.reservation_ms;
    let age = round.snapshot.now.ms_since(reservation.since);
    let longer = || reservation.cleared && is_awaited(round, item, [node].into_iter());
    age >= lifetime && (age >= lifetime.saturating_mul(2) || !longer())
}

/// Marks the reservation as lapsed. If it had victims, the pause is twice as long.
fn lapse(round: &mut RoundState, reservation: Reservation) {
    let again = u64::from(reservation.cleared) * round.queues.reservation_ms;
    let now = round.snapshot.now;
    round
        .carried
        .lapsed
        .insert(reservation.work, now.plus_ms(again));
}

/// Returns true while an allocation is leaving one of these nodes, or a queue with a maximum that
/// limits this work.
pub(crate) fn is_awaited(
    round: &RoundState,
    item: usize,
    mut nodes: impl Iterator<Item = usize>,
) -> bool {
    let leaves = |going: &[u64]| going.iter().any(|amount| *amount > 0);
    let path = round.queue_of(item).into_iter();
    let mut path = path.flat_map(|own| round.tree.path(own));
    nodes.any(|node| leaves(&round.nodes.node_states[node].going))
        || path.any(|at| {
            let queue_state = &round.tree.entries[at];
            queue_state.max.iter().any(Option::is_some) && leaves(&queue_state.going)
        })
}

fn serve_one(round: &mut RoundState, active: ActiveReservation) {
    let ActiveReservation {
        node,
        item,
        mut reservation,
    } = active;
    if reservation.cleared {
        round.reserve_quota(item, reservation.processes);
    }
    for _ in 0..reservation.processes {
        if !may_start(round, item, node, reservation.cleared) {
            break;
        }
        if reservation.cleared {
            round.release_quota(item, 1);
        }
        round.place(item, node);
        reservation.processes -= 1;
    }
    let node_state = &mut round.nodes.node_states[node];
    node_state.reserved = reservation.processes > 0;
    if node_state.reserved {
        let name = node_state.name.clone();
        round.carried.reservations.insert(name, reservation);
    }
}

fn may_start(round: &RoundState, item: usize, node: usize, cleared: bool) -> bool {
    let vector = round.vector(item);
    let may_hold = || {
        if cleared {
            round.may_hold_more(item, vector)
        } else {
            round.may_hold(item)
        }
    };
    round.may_run(round.items[item].app).is_ok()
        && may_hold().is_ok()
        && round.nodes.node_states[node].fits(vector)
}

/// Drops expired state.
fn forget(round: &mut RoundState, now: Timestamp) {
    let recent = |at: &Timestamp, ms: u64| now.ms_since(*at) < ms;
    let (lifetime, cooldown) = (
        round.queues.reservation_ms,
        round.queues.preemption_cooldown_ms,
    );
    let known = &round.item_of;
    let reserved = &mut round.carried;
    reserved
        .lapsed
        .retain(|work, at| recent(at, lifetime) && known.contains_key(work));
    reserved
        .attempts
        .retain(|work, at| recent(at, RETRY_MS) && known.contains_key(work));
    reserved
        .hit
        .retain(|work, at| recent(at, cooldown) && known.contains_key(work));
    reserved.passed_over.retain(|work| known.contains_key(work));
    reserved.backing_off.retain(|_, until| *until > now);
}

/// Updates reservations after all placements: those of placed work end, and work that has waited
/// long enough gets one.
pub(crate) fn renew(round: &mut RoundState) {
    trim(round);
    gangs::settle(round);
    let waits = round.carried.gang_waits.take();
    let Some(next) = gangs::next(round) else {
        return give(round, None);
    };
    // A gang may need nodes reserved for other work. Work that waited longer gets its node first,
    // but only once. Then no further node is reserved until the gang has its own, otherwise single
    // items would starve the gang (I23).
    if waits.is_none() {
        give(round, Some(next.since));
    }
    if gangs::try_reserve(round, &next) {
        give(round, None);
    } else {
        round.carried.gang_waits = waits.or(Some(round.snapshot.now));
    }
}

/// Drops surplus reservations. Those with victims are dropped last.
fn trim(round: &mut RoundState) {
    let mut left: BTreeMap<usize, u64> = BTreeMap::new();
    let reservations = std::mem::take(&mut round.carried.reservations);
    let mut reservations: Vec<(NodeName, Reservation)> = reservations.into_iter().collect();
    reservations.sort_by_key(|(_, it)| (!it.cleared, it.since));
    reservations.retain_mut(|(_, reservation)| {
        let item = round.item_of[&reservation.work];
        let left = left
            .entry(item)
            .or_insert_with(|| round.items[item].missing());
        reservation.processes = reservation.processes.min(*left);
        *left -= reservation.processes;
        reservation.processes > 0
    });
    round.carried.reservations = reservations.into_iter().collect();
}

/// Reserves a node for each waiting application. With `until`, only work that has waited since
/// before that time gets one.
fn give(round: &mut RoundState, until: Option<Timestamp>) {
    let most = (round.nodes.node_states.len() / MAX_RESERVED_ONE_IN).max(1);
    let mut has: Vec<bool> = vec![false; round.apps.len()];
    for reservation in round.carried.reservations.values() {
        has[round.items[round.item_of[&reservation.work]].app] = true;
    }
    // For each size, true if no node could hold it. Applies to work that may use any node.
    let mut never: Vec<bool> = vec![false; round.shapes.len()];
    for item in round.aside.clone() {
        let it = &round.items[item];
        let (app, shape) = (it.app, it.shape);
        let waits = it.why == Some(Why::NoNode)
            && !it.starts_whole()
            && it.queued.required_node.is_none()
            && round.snapshot.now.ms_since(it.waits_since) >= MIN_WAIT_MS
            && !round.carried.lapsed.contains_key(it.work)
            && until.is_none_or(|until| it.waits_since <= until);
        if !waits || has[app] || (it.anywhere && never[shape]) {
            continue;
        }
        if round.carried.reservations.len() >= most {
            return;
        }
        match nearest(round, item) {
            Some(node) => {
                has[app] = true;
                reserve_node(round, item, node);
            }
            None => never[shape] |= round.items[item].anywhere,
        }
    }
}

/// Returns the node that lacks the least for this work.
fn nearest(round: &RoundState, item: usize) -> Option<usize> {
    let vector = round.vector(item);
    let could = |at: &usize| {
        let node_state = &round.nodes.node_states[*at];
        let reserved = node_state.reserved || !node_state.reserved_amounts.is_empty();
        let open = node_state.node.is_schedulable() && !reserved;
        open && node_state.could_hold(vector) && round.suits(item, *at)
    };
    let short = |at: &usize| {
        let used = &round.nodes.node_states[*at].used;
        (
            gang_fit::short(round, *at, used, vector),
            round.nodes.rank(*at),
        )
    };
    let all = 0..round.nodes.node_states.len();
    all.filter(could).min_by_key(short)
}

/// Reserves a node for one process. A gang reservation without victims on it is replaced.
fn reserve_node(round: &mut RoundState, item: usize, node: usize) {
    gangs::release_node(round, node);
    let node_state = &mut round.nodes.node_states[node];
    node_state.reserved = true;
    let reservation = Reservation {
        work: round.items[item].work.clone(),
        processes: 1,
        since: round.snapshot.now,
        cleared: false,
    };
    let name = node_state.name.clone();
    round.carried.reservations.insert(name, reservation);
}

/// Reserves a node with victims, or adds one more process to it. A reservation without victims for
/// the same work is converted, and its start stays.
pub(crate) fn reserve_with_victims(round: &mut RoundState, item: usize, node: usize) {
    let name = round.nodes.node_states[node].name;
    match round.carried.reservations.get_mut(name) {
        Some(reservation) if reservation.cleared => reservation.processes += 1,
        _ => {
            reserve_node(round, item, node);
            if let Some(reservation) = round.carried.reservations.get_mut(name) {
                reservation.cleared = true;
            }
        }
    }
    round.reserve_quota(item, 1);
    round.keep_apart(item, node);
}

/// Returns the first node reserved with victims, by work item.
pub(crate) fn cleared_nodes(round: &RoundState) -> BTreeMap<usize, usize> {
    let cleared = round
        .carried
        .reservations
        .iter()
        .filter(|(_, it)| it.cleared);
    let cleared = cleared.filter_map(|(name, it)| {
        let item = *round.item_of.get(&it.work)?;
        let node = round.nodes.find(name)?;
        is_awaited(round, item, [node].into_iter()).then_some((item, node))
    });
    cleared.rev().collect()
}

/// Returns the nodes reserved for other work.
pub(crate) fn reserved_nodes(round: &RoundState) -> Vec<usize> {
    let node_states = round.nodes.node_states.iter().enumerate();
    let reserved = node_states.filter(|(_, it)| it.reserved || !it.reserved_amounts.is_empty());
    reserved.map(|(node, _)| node).collect()
}

/// Returns the reserved nodes on which the process would otherwise fit now.
pub(crate) fn blocking_reservations(
    round: &RoundState,
    item: usize,
    reserved: &[usize],
) -> Vec<usize> {
    let vector = round.vector(item);
    let away = reserved.iter().copied().filter(|node| {
        let node_state = &round.nodes.node_states[*node];
        node_state.node.is_schedulable()
            && node_state.has_free_space(vector)
            && round.suits(item, *node)
    });
    away.collect()
}
