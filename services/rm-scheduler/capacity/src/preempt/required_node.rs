//! Preemption for work that may use one node only. Victims have at most the priority of the work,
//! and guarantees do not count. Free space on the node is used first.

use std::cmp::Reverse;

use super::{
    vacate_victim,
    victims::{is_originator, is_preemptable, retain_needed},
};
use crate::{
    future_nodes::{FutureNode, Occupancy},
    queue_tree::ROOT,
    reserve::{gangs, reserve_with_victims},
    resource_vec::have_common_type,
    round_state::{RoundState, WaitReason},
};

pub(super) fn run(round: &mut RoundState, occupancy: &Occupancy) {
    for item in round.skipped.clone() {
        let work_item = &round.items[item];
        let is_waiting =
            work_item.wait_reason == Some(WaitReason::NoNode) && !work_item.starts_with_gang();
        let Some(required) = work_item
            .queued
            .required_node
            .as_ref()
            .filter(|_| is_waiting)
        else {
            continue;
        };
        let Some(node) = round.nodes.find(required) else {
            continue;
        };
        let node_state = &round.nodes.node_states[node];
        let is_possible = node_state.node.is_schedulable()
            && node_state.could_hold(round.vector(item))
            && round.meets_constraints(item, node);
        let reservation = round.carried.reservations.get(required);
        // Space that victims are freeing belongs to the work that they leave for. Space reserved
        // without victims does not.
        let is_taken = reservation.is_some_and(|reservation| {
            reservation.cleared || reservation.work == *round.items[item].work
        }) || gangs::has_victims(round, node);
        // Quota may have been reserved for other work since the last check.
        let is_allowed =
            round.may_run(round.items[item].app).is_ok() && round.may_hold(item).is_ok();
        if !is_possible
            || !is_allowed
            || is_taken
            || round.carried.attempts.contains_key(round.items[item].work)
        {
            continue;
        }
        match find_victims(round, occupancy, item, node) {
            None => {
                let (work, now) = (round.items[item].work.clone(), round.snapshot.now);
                round.carried.attempts.insert(work, now);
            }
            Some(victims) => {
                round.carried.reservations.remove(required);
                for victim in victims {
                    let detail = format!(
                        "work {} may run on node {required} and nowhere else",
                        round.items[item].work
                    );
                    vacate_victim(round, victim, item, detail);
                }
                reserve_with_victims(round, item, node);
            }
        }
    }
}

fn find_victims(
    round: &RoundState,
    occupancy: &Occupancy,
    item: usize,
    node: usize,
) -> Option<Vec<usize>> {
    let vector = round.vector(item);
    let work_item = &round.items[item];
    let priority_at_root = |queue: Option<usize>, priority: i32| {
        queue.map(|queue| round.tree.priority_below(ROOT, queue, priority))
    };
    let own_priority = priority_at_root(round.queue_of(item), work_item.queued.priority)?;
    let mut candidates: Vec<(bool, bool, i32, usize)> = occupancy
        .allocations_on(node)
        .filter_map(|index| {
            let allocation_state = &round.allocation_states[index];
            let owner = allocation_state.item?;
            let other = &round.items[owner];
            let priority = priority_at_root(allocation_state.queue, other.queued.priority)?;
            let may_leave = other.app != work_item.app
                && !round.is_in_gang_with_victims(owner)
                && !allocation_state.is_leaving
                && !allocation_state.allocation.fixed
                && other.queued.required_node.is_none()
                && priority <= own_priority
                && have_common_type(&allocation_state.vector, vector);
            let (is_originator, is_reluctant) =
                (is_originator(round, index), !is_preemptable(round, index));
            may_leave.then_some((is_originator, is_reluctant, priority, index))
        })
        .collect();
    candidates.sort_by_key(|(is_originator, is_reluctant, priority, index)| {
        let allocation_state = &round.allocation_states[*index];
        let newest_first = Reverse((allocation_state.allocation.granted_at, allocation_state.id));
        (
            *is_originator,
            *is_reluctant,
            *priority,
            newest_first,
            allocation_state.allocation.quanta,
        )
    });
    let future = FutureNode::after_vacates(round, occupancy, node);
    let fits_without = |victims: &[usize]| {
        let mut future = future.clone();
        for index in victims {
            future.release(round, *index);
        }
        future.fits(vector)
    };
    let mut chosen = Vec::new();
    for (.., index) in candidates {
        if fits_without(&chosen) {
            break;
        }
        chosen.push(index);
    }
    chosen.reverse();
    fits_without(&chosen).then(|| retain_needed(chosen, fits_without))
}
