//! Enforces a lowered maximum by vacating the excess. The enforcement is off unless both the pool
//! and the queue enable it, and never vacates more than the excess.

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::plan::{Receipt, VacateReason};

use super::{
    guarantee::remaining_usage,
    victims::{is_originator, is_preemptable},
};
use crate::{
    queue_tree::ROOT,
    resource_vec::{Vector, have_common_type, subtract},
    round_state::RoundState,
};

/// Vacates the excess of all queues that exceeded their maximum for longer than their delay.
pub(crate) fn enforce(round: &mut RoundState) {
    let now = round.snapshot.now;
    let exceeding_since = std::mem::take(&mut round.carried.over_max_since);
    if !round.queues.quota_preemption {
        return;
    }
    let mut reduced_queues: Vec<usize> = Vec::new();
    for queue in 1..round.tree.entries.len() {
        let queue_state = &round.tree.entries[queue];
        let delay_ms = queue_state.settings.quota_delay_ms;
        let excess = excess_over_maximum(round, queue);
        if queue_state.config.is_none() || delay_ms == 0 || excess.iter().all(|amount| *amount == 0)
        {
            continue;
        }
        let since = exceeding_since
            .get(&queue_state.path)
            .copied()
            .unwrap_or(now);
        round
            .carried
            .over_max_since
            .insert(queue_state.path.clone(), since);
        // A queue is reduced as a whole, before its children.
        let is_ancestor_reduced = reduced_queues
            .iter()
            .any(|top| round.tree.is_below(queue, *top));
        if is_ancestor_reduced || now.ms_since(since) < delay_ms {
            continue;
        }
        reduced_queues.push(queue);
        reduce_usage(round, queue, &excess, excess.clone());
    }
}

/// Returns the excess over the maximum, limited so that no guarantee above is broken.
fn excess_over_maximum(round: &RoundState, queue: usize) -> Vector {
    let mut excess = round.dims.zero();
    for (dim, amount) in excess.iter_mut().enumerate().skip(1) {
        if let Some(max) = round.tree.entries[queue].max[dim] {
            *amount = remaining_usage(round, queue, dim).saturating_sub(max);
        }
        for ancestor in round.tree.path(queue).filter(|queue| *queue != ROOT) {
            if let Some(guarantee) = round.tree.entries[ancestor].guaranteed[dim] {
                *amount =
                    (*amount).min(remaining_usage(round, ancestor, dim).saturating_sub(guarantee));
            }
        }
    }
    excess
}

/// Frees `amount` below a queue. Children give in proportion to their excess over their guarantees.
/// Then they give one after the other, because only whole processes can leave. `excess` is that of
/// the queue with the lowered maximum. Returns the amount that was not freed.
fn reduce_usage(round: &mut RoundState, queue: usize, excess: &Vector, amount: Vector) -> Vector {
    if round.tree.entries[queue].leaf {
        return vacate_from_leaf(round, queue, excess, amount);
    }
    let children: Vec<usize> = round.tree.entries[queue]
        .children
        .values()
        .copied()
        .collect();
    let mut remaining = amount.clone();
    for (child, part) in proportional_parts(round, &children, &amount) {
        let unfreed = reduce_usage(round, child, excess, part.clone());
        subtract(&mut remaining, &difference(part, &unfreed));
    }
    for child in children {
        let mut part = remaining.clone();
        for (dim, part) in part.iter_mut().enumerate() {
            *part = (*part).min(excess_over_guarantee(round, child, dim));
        }
        let unfreed = reduce_usage(round, child, excess, part.clone());
        subtract(&mut remaining, &difference(part, &unfreed));
    }
    remaining
}

fn difference(mut minuend: Vector, subtrahend: &[u64]) -> Vector {
    subtract(&mut minuend, subtrahend);
    minuend
}

/// Returns the excess of a queue over its guarantee.
fn excess_over_guarantee(round: &RoundState, queue: usize, dim: usize) -> u64 {
    let guarantee = round.tree.entries[queue].guaranteed[dim].unwrap_or(0);
    remaining_usage(round, queue, dim).saturating_sub(guarantee)
}

/// Divides the amount among the children in proportion to their excess over their guarantees.
fn proportional_parts(
    round: &RoundState,
    children: &[usize],
    amount: &[u64],
) -> Vec<(usize, Vector)> {
    let mut parts: Vec<(usize, Vector)> = Vec::new();
    for child in children {
        let mut part = round.dims.zero();
        for dim in 1..part.len() {
            let excesses = children
                .iter()
                .map(|it| u128::from(excess_over_guarantee(round, *it, dim)));
            let own_excess = u128::from(excess_over_guarantee(round, *child, dim));
            let share = (u128::from(amount[dim]) * own_excess)
                .checked_div(excesses.sum())
                .unwrap_or(0);
            part[dim] = u64::try_from(share.min(own_excess)).unwrap_or(0);
        }
        parts.push((*child, part));
    }
    parts
}

/// Vacates the newest allocations, except those larger than the excess and those a guarantee needs.
/// Types without excess do not count.
fn vacate_from_leaf(
    round: &mut RoundState,
    leaf: usize,
    excess: &Vector,
    mut amount: Vector,
) -> Vector {
    for index in find_candidates(round, leaf) {
        if amount.iter().all(|amount| *amount == 0) {
            break;
        }
        let vector = round.allocation_states[index].vector.clone();
        let fits = |dim: usize| excess[dim] == 0 || vector[dim] <= amount[dim];
        let helps = have_common_type(&vector, &amount) && (1..vector.len()).all(fits);
        if helps && !breaks_guarantee(round, leaf, &vector) {
            subtract(&mut amount, &vector);
            vacate(round, leaf, index);
        }
    }
    amount
}

/// Returns true if the loss of this amount would break a guarantee on the path.
fn breaks_guarantee(round: &RoundState, leaf: usize, vector: &[u64]) -> bool {
    let mut path = round.tree.path(leaf).filter(|ancestor| *ancestor != ROOT);
    path.any(|ancestor| {
        let guarantees = round.tree.entries[ancestor].guaranteed.iter().enumerate();
        let mut guarantees = guarantees.filter(|(dim, _)| vector[*dim] > 0);
        guarantees.any(|(dim, guarantee)| {
            guarantee.is_some_and(|guarantee| {
                remaining_usage(round, ancestor, dim) < guarantee.saturating_add(vector[dim])
            })
        })
    })
}

/// Returns the allocations of the leaf that may leave, in the order in which they leave.
fn find_candidates(round: &RoundState, leaf: usize) -> Vec<usize> {
    let may_leave = |index: &usize| {
        let allocation_state = &round.allocation_states[*index];
        let has_required_node = allocation_state
            .item
            .map(|item| round.items[item].queued.required_node.is_some());
        allocation_state.queue == Some(leaf)
            && !allocation_state.is_leaving
            && has_required_node == Some(false)
    };
    let mut candidates: Vec<usize> = (0..round.allocation_states.len())
        .filter(may_leave)
        .collect();
    candidates.sort_by_key(|index| {
        let allocation_state = &round.allocation_states[*index];
        let newest_first = Reverse((allocation_state.allocation.granted_at, allocation_state.id));
        (
            !is_preemptable(round, *index),
            is_originator(round, *index),
            newest_first,
        )
    });
    candidates
}

fn vacate(round: &mut RoundState, leaf: usize, index: usize) {
    let allocation_state = &round.allocation_states[index];
    let queue = &round.tree.entries[leaf].path;
    let detail = format!("queue {queue} has more than its maximum");
    round.receipts.push(Receipt {
        allocation: allocation_state.id.clone(),
        work: allocation_state.allocation.work.clone(),
        user: allocation_state.allocation.user.clone(),
        node: allocation_state.allocation.node.clone(),
        quanta: allocation_state.allocation.quanta,
        lost_ms: round
            .snapshot
            .now
            .ms_since(allocation_state.allocation.granted_at),
        beneficiary: None,
        for_user: None,
    });
    round.vacate(index, VacateReason::Preempted, detail);
}
