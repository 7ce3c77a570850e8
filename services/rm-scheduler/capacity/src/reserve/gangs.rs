//! Space reserved for a gang: nodes found by packing all its missing processes.
//!
//! Invariants: only one gang per pool has a reservation, always for all its missing processes, so
//! two gangs never reserve half of their space each (I13). Running work on these nodes continues,
//! and new work starts there only if it fits next to the reservation. The gang still starts as a
//! whole in one round, on these nodes or others. A reservation has one lifetime, however often its
//! nodes are searched again. After it lapses, the gang gets none for the same time.

use std::{cmp::Reverse, collections::BTreeMap};

use hayward_rm_scheduler_domain::snapshot::queues::GangReservation;
use hayward_vocabulary::{Timestamp, WorkId};

use super::{
    gang_packing::{GangPacking, pack, pack_after_vacates},
    has_leaving_allocations,
};
use crate::{
    future_free_space::Occupancy,
    gang_placement,
    impossible_gangs::explain_impossible_gang,
    queue_tree::ROOT,
    replan_delays::MIN_WAIT_MS,
    resource_vec::scale,
    round_state::{RoundState, WaitReason},
};

/// Maximum number of gangs examined per round.
const MAX_GANGS: usize = 10;

/// The next gang to reserve space for.
pub(crate) struct NextGang {
    item: usize,
    pub since: Timestamp,
}

/// Returns a work item of the reservation's gang, if processes are still missing.
fn find_incomplete_item(round: &RoundState, reservation: &GangReservation) -> Option<usize> {
    let item = round.item_by_work.get(&reservation.work).copied()?;
    let is_incomplete = !round.lacking_gang_parts(item).is_empty();
    (is_incomplete && round.queue_of(item).is_some()).then_some(item)
}

/// Returns the start of the reservation, if it has victims.
pub(super) fn victim_reservation_start(round: &RoundState) -> Option<Timestamp> {
    let reservation = round.carried.gang.as_ref();
    reservation
        .filter(|reservation| reservation.cleared)
        .map(|reservation| reservation.since)
}

/// Returns the end of a reservation. A reservation with victims has a second lifetime while they
/// leave, because otherwise they would leave in vain.
pub(crate) fn expiry(round: &RoundState, reservation: &GangReservation) -> Timestamp {
    let nodes = reservation
        .nodes
        .keys()
        .filter_map(|name| round.nodes.find(name));
    let item = round.item_by_work.get(&reservation.work);
    let has_second_lifetime = reservation.cleared
        && item.is_some_and(|item| has_leaving_allocations(round, *item, nodes));
    let lifetimes = if has_second_lifetime { 2 } else { 1 };
    let ms = round.queues.reservation_ms;
    reservation.since.plus_ms(ms.saturating_mul(lifetimes))
}

fn has_expired(round: &RoundState, reservation: &GangReservation) -> bool {
    expiry(round, reservation) <= round.snapshot.now
}

/// Tries the gang with the reservation first, on its nodes and any others. If it does not fit yet,
/// the space stays reserved this round.
pub(super) fn serve(round: &mut RoundState) {
    round.release_gang_quota();
    let Some(mut reservation) = round.carried.gang.take() else {
        return;
    };
    let Some(item) = find_incomplete_item(round, &reservation) else {
        return;
    };
    let now = round.snapshot.now;
    if has_expired(round, &reservation) {
        let works = round
            .gang_parts(item)
            .map(|part| round.items[part].work.clone());
        // After a failed reservation with victims, the pause is twice as long.
        let extra_pause_ms = u64::from(reservation.cleared) * round.queues.reservation_ms;
        let lapsed: Vec<_> = works
            .map(|work| (work, now.plus_ms(extra_pause_ms)))
            .collect();
        round.carried.lapsed.extend(lapsed);
        return;
    }
    reservation.nodes.retain(|name, works| {
        let node = round.nodes.find(name);
        let node = node.filter(|node| round.nodes.node_states[*node].node.is_schedulable());
        let all_parts_fit = |node: usize| {
            let mut parts = works.keys().filter_map(|work| round.item_by_work.get(work));
            parts.all(|part| round.meets_constraints(*part, node))
        };
        node.is_some_and(all_parts_fit)
    });
    let app = round.items[item].app;
    let is_backing_off = round.carried.backing_off.contains_key(round.apps[app].name);
    // If the gang may not run now, the serve order gives the reason.
    if !is_backing_off && round.may_run(app).is_ok() {
        round.nodes.sort();
        let Err(wait_reason) = gang_placement::place(round, item, Some(&reservation)) else {
            return;
        };
        for part in round.open_gang_parts(item) {
            round.items[part].wait_reason = Some(wait_reason.clone());
            round.skipped.push(part);
        }
    }
    charge_reservation(round, item, &reservation);
    round.carried.gang = Some(reservation);
}

/// Charges the reserved space and quota, so that no other work uses it.
fn charge_reservation(round: &mut RoundState, item: usize, reservation: &GangReservation) {
    round.reserve_gang_quota(item, reservation.cleared);
    for (name, works) in &reservation.nodes {
        let Some(node) = round.nodes.find(name) else {
            continue;
        };
        for (work, count) in works {
            if let Some(item) = round.item_by_work.get(work) {
                let vector = scale(round.vector(*item), *count);
                round.nodes.reserve(node, &vector);
            }
        }
    }
}

fn release_space(round: &mut RoundState) {
    round.release_gang_quota();
    for node in 0..round.nodes.node_states.len() {
        round.nodes.release(node);
    }
}

/// Reserves the space of this packing. A reservation of another gang ends.
pub(crate) fn reserve_space(
    round: &mut RoundState,
    item: usize,
    packing: &GangPacking,
    since: Timestamp,
    has_victims: bool,
) {
    release_space(round);
    let first_part = round.gang_parts(item).next().unwrap_or(item);
    let mut reservation = GangReservation {
        work: round.items[first_part].work.clone(),
        since,
        cleared: has_victims,
        nodes: BTreeMap::new(),
    };
    for (node, parts) in packing {
        let works = parts.iter();
        let works = works.map(|(part, count)| (round.items[*part].work.clone(), *count));
        let name = round.nodes.node_states[*node].name.clone();
        reservation.nodes.insert(name, works.collect());
    }
    charge_reservation(round, item, &reservation);
    round.carried.gang = Some(reservation);
}

/// Removes a node from the reservation of a gang, because work with a better claim needs the node.
pub(super) fn release_node(round: &mut RoundState, node: usize) {
    round.nodes.release(node);
    if let Some(reservation) = &mut round.carried.gang {
        reservation.nodes.remove(round.nodes.node_states[node].name);
    }
}

/// Returns true if victims leave this node for a gang.
pub(crate) fn has_victims(round: &RoundState, node: usize) -> bool {
    let reservation = round
        .carried
        .gang
        .as_ref()
        .filter(|reservation| reservation.cleared);
    reservation.is_some_and(|reservation| {
        reservation
            .nodes
            .contains_key(round.nodes.node_states[node].name)
    })
}

/// Returns the reservation of this item's gang.
pub(crate) fn reserved_for<'b>(round: &'b RoundState, item: usize) -> Option<&'b GangReservation> {
    let reservation = round.carried.gang.as_ref()?;
    let reserved_item = round.item_by_work.get(&reservation.work)?;
    round
        .gang_parts(item)
        .any(|part| part == *reserved_item)
        .then_some(reservation)
}

/// Repairs a reservation within its lifetime if it no longer has space for the whole gang. The
/// reservation ends if the whole gang fits on no other nodes.
pub(super) fn repair(round: &mut RoundState) {
    let Some(reservation) = round.carried.gang.clone() else {
        return;
    };
    let Some(item) = find_incomplete_item(round, &reservation) else {
        round.carried.gang = None;
        return release_space(round);
    };
    let parts = round.lacking_gang_parts(item);
    let missing_counts = parts.iter().map(|part| {
        let work_item = &round.items[*part];
        (work_item.work, work_item.missing_gang_processes())
    });
    let missing_counts: BTreeMap<&WorkId, u64> = missing_counts.collect();
    let mut reserved_counts: BTreeMap<&WorkId, u64> = BTreeMap::new();
    for (work, count) in reservation.nodes.values().flatten() {
        *reserved_counts.entry(work).or_default() += count;
    }
    if reserved_counts == missing_counts {
        return;
    }
    round.carried.gang = None;
    release_space(round);
    let occupancy = Occupancy::new(round);
    // The space that victims free may still be enough.
    let victims_remain =
        reservation.cleared && round.may_hold_soon(item, &round.missing_resources(&parts));
    let after_vacates = victims_remain
        .then(|| pack_after_vacates(round, &occupancy, &parts))
        .flatten();
    if let Some(packing) = after_vacates {
        reserve_space(round, item, &packing, reservation.since, true);
    } else if let Some(packing) = pack(round, &occupancy, &parts, false) {
        reserve_space(round, item, &packing, reservation.since, false);
    }
}

/// Returns the next gang to reserve space for: among those with the highest priority, the one that
/// waits longest. A gang that cannot fit is passed over and delays no other. A limited number of
/// gangs is examined per round, and the next round continues with the others.
pub(super) fn next_gang(round: &mut RoundState) -> Option<NextGang> {
    if round.carried.gang.is_some() {
        return None;
    }
    let gangs = round.skipped.iter().copied();
    let mut gangs: Vec<usize> = gangs
        .filter(|item| round.is_gang_representative(*item))
        .collect();
    gangs.retain(|item| waits_for_nodes(round, *item));
    let passed_over = |item: &usize| round.carried.passed_over.contains(round.items[*item].work);
    if gangs.iter().all(passed_over) {
        round.carried.passed_over.clear();
    } else {
        gangs.retain(|item| !passed_over(item));
    }
    gangs.sort_by_cached_key(|item| {
        let priority = round.queue_of(*item).map(|queue| {
            let own_priority = round.items[*item].queued.priority;
            round.tree.priority_below(ROOT, queue, own_priority)
        });
        (
            Reverse(priority),
            waits_since(round, *item),
            round.items[*item].work,
        )
    });
    let occupancy = Occupancy::new(round);
    for item in gangs.iter().copied().take(MAX_GANGS) {
        let parts = round.lacking_gang_parts(item);
        if pack(round, &occupancy, &parts, true).is_some() {
            let since = waits_since(round, item);
            return Some(NextGang { item, since });
        }
        round
            .carried
            .passed_over
            .insert(round.items[item].work.clone());
    }
    if gangs.len() <= MAX_GANGS {
        round.carried.passed_over.clear();
    }
    None
}

fn waits_for_nodes(round: &RoundState, item: usize) -> bool {
    let work_item = &round.items[item];
    let lacks_nodes = matches!(
        &work_item.wait_reason,
        Some(WaitReason::Gang { cause, .. }) if cause.as_deref() == Some(&WaitReason::NoNode)
    );
    lacks_nodes
        && round.snapshot.now.ms_since(waits_since(round, item)) >= MIN_WAIT_MS
        && !has_lapsed(round, item)
        && explain_impossible_gang(round, item).is_none()
}

/// Returns the time since which the gang of this item waits: the latest start of a wait among the
/// parts that lack processes.
pub(crate) fn waits_since(round: &RoundState, item: usize) -> Timestamp {
    let parts = round.gang_parts(item).map(|part| &round.items[part]);
    let parts = parts.filter(|it| it.missing_gang_processes() > 0);
    let since = parts.map(|it| it.waits_since);
    since.max().unwrap_or(round.items[item].waits_since)
}

pub(crate) fn has_lapsed(round: &RoundState, item: usize) -> bool {
    let mut parts = round.gang_parts(item);
    parts.any(|part| round.carried.lapsed.contains_key(round.items[part].work))
}

/// Reserves space in addition to existing reservations. Returns false if there is not enough.
pub(super) fn try_reserve(round: &mut RoundState, next: &NextGang) -> bool {
    let parts = round.lacking_gang_parts(next.item);
    let occupancy = Occupancy::new(round);
    let packing = pack(round, &occupancy, &parts, false);
    let since = round.snapshot.now;
    packing.is_some_and(|packing| {
        reserve_space(round, next.item, &packing, since, false);
        round.carried.passed_over.clear();
        true
    })
}
