//! Reservations: a node for one work item that has waited long enough, or nodes for one gang
//! ([`gangs`]), for a bounded time. After a reservation lapses without effect, its work gets none
//! for the same time, so no node stays reserved for one work item forever.
//!
//! A reservation has victims (`cleared`) if processes were vacated to make the reserved space free.

pub(crate) mod gang_packing;
pub(crate) mod gangs;

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::Reservation;
use hayward_vocabulary::{NodeName, Timestamp};

use crate::{
    replan_delays::{MIN_WAIT_MS, PREEMPTION_RETRY_MS},
    round_state::{RoundState, WaitReason},
};

/// At most the number of nodes divided by this number is reserved, but at least one node.
const RESERVED_FRACTION_DIVISOR: usize = 10;

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
    drop_expired(round, round.snapshot.now);
    let active = active_reservations(round);
    let gang_start = gangs::victim_reservation_start(round);
    let goes_first = |active_reservation: &ActiveReservation| {
        gang_start.is_none_or(|since| {
            active_reservation.reservation.cleared && active_reservation.reservation.since < since
        })
    };
    let (first, later): (Vec<ActiveReservation>, Vec<ActiveReservation>) =
        active.into_iter().partition(goes_first);
    for active_reservation in first {
        serve_one(round, active_reservation);
    }
    gangs::serve(round);
    for active_reservation in later {
        serve_one(round, active_reservation);
    }
}

/// Returns the active reservations: those with victims first, then the oldest.
fn active_reservations(round: &mut RoundState) -> Vec<ActiveReservation> {
    let mut reservations: Vec<(NodeName, Reservation)> =
        std::mem::take(&mut round.carried.reservations)
            .into_iter()
            .collect();
    reservations.sort_by(|(node_a, a), (node_b, b)| {
        (!a.cleared, a.since, node_a).cmp(&(!b.cleared, b.since, node_b))
    });
    let mut active = Vec::new();
    let mut remaining: BTreeMap<usize, u64> = BTreeMap::new();
    for (name, mut reservation) in reservations {
        let item = round.item_by_work.get(&reservation.work).copied();
        let Some((item, node)) = item.zip(round.nodes.find(&name)) else {
            continue;
        };
        let remaining = remaining.entry(item).or_insert(round.items[item].missing());
        reservation.processes = reservation.processes.min(*remaining);
        if reservation.processes == 0 || !is_possible(round, item, node) {
            continue;
        }
        if has_ended(round, item, node, &reservation) {
            lapse(round, reservation);
            continue;
        }
        *remaining -= reservation.processes;
        round.nodes.node_states[node].reserved = true;
        if reservation.cleared {
            round.record_anti_affinity(item, node);
        }
        active.push(ActiveReservation {
            node,
            item,
            reservation,
        });
    }
    active
}

/// Returns true if the work could ever run on the node.
fn is_possible(round: &RoundState, item: usize, node: usize) -> bool {
    let node_state = &round.nodes.node_states[node];
    node_state.node.is_schedulable()
        && node_state.could_hold(round.vector(item))
        && round.meets_constraints(item, node)
        && round.queue_of(item).is_some()
}

/// Returns true if the reservation has ended. A reservation with victims has a second lifetime
/// while they leave, because otherwise they would leave in vain.
fn has_ended(round: &RoundState, item: usize, node: usize, reservation: &Reservation) -> bool {
    let lifetime = round.queues.reservation_ms;
    let age = round.snapshot.now.ms_since(reservation.since);
    let has_second_lifetime =
        || reservation.cleared && has_leaving_allocations(round, item, [node].into_iter());
    age >= lifetime && (age >= lifetime.saturating_mul(2) || !has_second_lifetime())
}

/// Marks the reservation as lapsed. If it had victims, the pause is twice as long.
fn lapse(round: &mut RoundState, reservation: Reservation) {
    let extra_pause_ms = u64::from(reservation.cleared) * round.queues.reservation_ms;
    let now = round.snapshot.now;
    round
        .carried
        .lapsed
        .insert(reservation.work, now.plus_ms(extra_pause_ms));
}

/// Returns true while an allocation is leaving one of these nodes, or a queue with a maximum that
/// limits this work.
pub(crate) fn has_leaving_allocations(
    round: &RoundState,
    item: usize,
    mut nodes: impl Iterator<Item = usize>,
) -> bool {
    let is_any_leaving = |leaving: &[u64]| leaving.iter().any(|amount| *amount > 0);
    let path = round.queue_of(item).into_iter();
    let mut path = path.flat_map(|queue| round.tree.path(queue));
    nodes.any(|node| is_any_leaving(&round.nodes.node_states[node].leaving))
        || path.any(|ancestor| {
            let queue_state = &round.tree.entries[ancestor];
            queue_state.max.iter().any(Option::is_some) && is_any_leaving(&queue_state.leaving)
        })
}

/// Starts the processes of one reservation as far as they fit. The reservation continues with the
/// others.
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

fn may_start(round: &RoundState, item: usize, node: usize, has_victims: bool) -> bool {
    let vector = round.vector(item);
    let check_headroom = || {
        if has_victims {
            round.may_hold_more(item, vector)
        } else {
            round.may_hold(item)
        }
    };
    round.may_run(round.items[item].app).is_ok()
        && check_headroom().is_ok()
        && round.nodes.node_states[node].fits(vector)
}

/// Drops carried state whose time has passed or whose work is gone.
fn drop_expired(round: &mut RoundState, now: Timestamp) {
    let is_recent = |time: &Timestamp, ms: u64| now.ms_since(*time) < ms;
    let (lifetime, cooldown) = (
        round.queues.reservation_ms,
        round.queues.preemption_cooldown_ms,
    );
    let items = &round.item_by_work;
    let carried = &mut round.carried;
    carried
        .lapsed
        .retain(|work, time| is_recent(time, lifetime) && items.contains_key(work));
    carried
        .attempts
        .retain(|work, time| is_recent(time, PREEMPTION_RETRY_MS) && items.contains_key(work));
    carried
        .last_loss
        .retain(|work, time| is_recent(time, cooldown) && items.contains_key(work));
    carried.passed_over.retain(|work| items.contains_key(work));
    carried.backing_off.retain(|_, until| *until > now);
}

/// Updates reservations after all placements: those of placed work end, and work that has waited
/// long enough gets one.
pub(crate) fn renew(round: &mut RoundState) {
    drop_surplus(round);
    gangs::repair(round);
    let waits_since = round.carried.gang_waits_since.take();
    let Some(next) = gangs::next_gang(round) else {
        return reserve_nodes(round, None);
    };
    // A gang may need nodes that are reserved for other work. Work that waited longer gets its node
    // first, but only in the first round. After that no further node is reserved until the gang has
    // its nodes. Otherwise single work items would starve the gang (I23).
    if waits_since.is_none() {
        reserve_nodes(round, Some(next.since));
    }
    if gangs::try_reserve(round, &next) {
        reserve_nodes(round, None);
    } else {
        round.carried.gang_waits_since = waits_since.or(Some(round.snapshot.now));
    }
}

/// Drops surplus reservations. Those with victims are dropped last.
fn drop_surplus(round: &mut RoundState) {
    let mut remaining: BTreeMap<usize, u64> = BTreeMap::new();
    let reservations = std::mem::take(&mut round.carried.reservations);
    let mut reservations: Vec<(NodeName, Reservation)> = reservations.into_iter().collect();
    reservations.sort_by_key(|(_, it)| (!it.cleared, it.since));
    reservations.retain_mut(|(_, reservation)| {
        let item = round.item_by_work[&reservation.work];
        let remaining = remaining
            .entry(item)
            .or_insert_with(|| round.items[item].missing());
        reservation.processes = reservation.processes.min(*remaining);
        *remaining -= reservation.processes;
        reservation.processes > 0
    });
    round.carried.reservations = reservations.into_iter().collect();
}

/// Reserves a node for each waiting application. With `waits_before`, only work that has waited
/// since that time or longer gets a node.
fn reserve_nodes(round: &mut RoundState, waits_before: Option<Timestamp>) {
    let max_reserved = (round.nodes.node_states.len() / RESERVED_FRACTION_DIVISOR).max(1);
    let mut has_reservation: Vec<bool> = vec![false; round.apps.len()];
    for reservation in round.carried.reservations.values() {
        has_reservation[round.items[round.item_by_work[&reservation.work]].app] = true;
    }
    // For each size, true if no node could hold it. Applies to work that may use any node.
    let mut is_unplaceable: Vec<bool> = vec![false; round.shapes.len()];
    for item in round.skipped.clone() {
        let work_item = &round.items[item];
        let (app, shape) = (work_item.app, work_item.shape);
        let is_waiting = work_item.wait_reason == Some(WaitReason::NoNode)
            && !work_item.starts_with_gang()
            && work_item.queued.required_node.is_none()
            && round.snapshot.now.ms_since(work_item.waits_since) >= MIN_WAIT_MS
            && !round.carried.lapsed.contains_key(work_item.work)
            && waits_before.is_none_or(|waits_before| work_item.waits_since <= waits_before);
        if !is_waiting
            || has_reservation[app]
            || (work_item.may_use_any_node && is_unplaceable[shape])
        {
            continue;
        }
        if round.carried.reservations.len() >= max_reserved {
            return;
        }
        match find_nearest_node(round, item) {
            Some(node) => {
                has_reservation[app] = true;
                reserve_node(round, item, node);
            }
            None => is_unplaceable[shape] |= round.items[item].may_use_any_node,
        }
    }
}

/// Returns the node that lacks the least for this work.
fn find_nearest_node(round: &RoundState, item: usize) -> Option<usize> {
    let vector = round.vector(item);
    let is_candidate = |node: &usize| {
        let node_state = &round.nodes.node_states[*node];
        let reserved = node_state.reserved || !node_state.reserved_amounts.is_empty();
        let is_open = node_state.node.is_schedulable() && !reserved;
        is_open && node_state.could_hold(vector) && round.meets_constraints(item, *node)
    };
    let shortage_and_rank = |node: &usize| {
        let used = &round.nodes.node_states[*node].used;
        (
            gang_packing::shortage(round, *node, used, vector),
            round.nodes.sort_key(*node),
        )
    };
    let nodes = 0..round.nodes.node_states.len();
    nodes.filter(is_candidate).min_by_key(shortage_and_rank)
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
    round.record_anti_affinity(item, node);
}

/// Returns the first node that victims are leaving for a work item, by work item.
pub(crate) fn nodes_reserved_with_victims(round: &RoundState) -> BTreeMap<usize, usize> {
    let with_victims = round
        .carried
        .reservations
        .iter()
        .filter(|(_, it)| it.cleared);
    let with_victims = with_victims.filter_map(|(name, it)| {
        let item = *round.item_by_work.get(&it.work)?;
        let node = round.nodes.find(name)?;
        has_leaving_allocations(round, item, [node].into_iter()).then_some((item, node))
    });
    with_victims.rev().collect()
}

/// Returns the nodes that are reserved for any work item or gang.
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
    let blocking = reserved.iter().copied().filter(|node| {
        let node_state = &round.nodes.node_states[*node];
        node_state.node.is_schedulable()
            && node_state.has_free_space(vector)
            && round.meets_constraints(item, *node)
    });
    blocking.collect()
}
