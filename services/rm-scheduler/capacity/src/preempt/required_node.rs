//! Preemption for work that may use one node only. Victims have at most the priority of the work,
//! and guarantees do not count. Free space on the node is used first.

use std::cmp::Reverse;

use super::{
    vacate_victim,
    victims::{is_originator, is_preemptable, retain_needed},
};
use crate::{
    future_free_space::{FutureFreeSpace, Occupancy},
    queue_tree::ROOT,
    reserve::{gangs, reserve_with_victims},
    resource_vec::have_common_type,
    round_state::{RoundState, WaitReason},
};

/// Tries to preempt for each skipped work item that may use one node only. If victims are found,
/// they are vacated and the node is reserved for the work.
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
                // The next attempt for this work waits for `PREEMPTION_RETRY_MS`.
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

/// Selects the victims on the required node, or returns `None` if the work would still not fit.
///
/// 1. Candidates are the allocations on the node that may leave: other applications, of at most the
///    same priority, that use a resource type of the work.
/// 2. Candidates are added in order until the work fits: originators and reluctant work last, then
///    the lowest priority, then the newest.
/// 3. Each victim without which the work still fits is dropped again, the last added first.
fn find_victims(
    round: &RoundState,
    occupancy: &Occupancy,
    item: usize,
    node: usize,
) -> Option<Vec<usize>> {
    let vector = round.vector(item);
    let mut candidates = find_candidates(round, occupancy, item, node)?;
    candidates.sort_by_key(|candidate| {
        let allocation_state = &round.allocation_states[candidate.index];
        let newest_first = Reverse((allocation_state.allocation.granted_at, allocation_state.id));
        (
            is_originator(round, candidate.index),
            !is_preemptable(round, candidate.index),
            candidate.priority,
            newest_first,
            allocation_state.allocation.quanta,
        )
    });
    let free_space = FutureFreeSpace::after_vacates(round, occupancy, node);
    let fits_without = |victims: &[usize]| {
        let mut free_space = free_space.clone();
        for index in victims {
            free_space.release(round, *index);
        }
        free_space.fits(vector)
    };
    let mut victims = Vec::new();
    for candidate in candidates {
        if fits_without(&victims) {
            break;
        }
        victims.push(candidate.index);
    }
    victims.reverse();
    fits_without(&victims).then(|| retain_needed(victims, fits_without))
}

/// An allocation that may leave for the work.
struct Candidate {
    /// Index of the allocation.
    index: usize,
    /// Priority that the root sees.
    priority: i32,
}

/// Returns the allocations on the node that may leave, or `None` if the work has no queue.
fn find_candidates(
    round: &RoundState,
    occupancy: &Occupancy,
    item: usize,
    node: usize,
) -> Option<Vec<Candidate>> {
    let work_item = &round.items[item];
    // Queues may have priority offsets and fences, so priorities are compared at the root.
    let priority_at_root = |queue: Option<usize>, priority: i32| {
        queue.map(|queue| round.tree.priority_below(ROOT, queue, priority))
    };
    let own_priority = priority_at_root(round.queue_of(item), work_item.queued.priority)?;
    let candidates = occupancy.allocations_on(node).filter_map(|index| {
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
            && have_common_type(&allocation_state.vector, round.vector(item));
        may_leave.then_some(Candidate { index, priority })
    });
    Some(candidates.collect())
}
