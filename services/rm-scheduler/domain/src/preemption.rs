//! Vacates processes, so that work gets what it is entitled to. This is step 6 of a round.
//!
//! The input is the entitlements, and the work that placement could not serve. The result is
//! vacated allocations, a receipt for each preemption, and reservations of the space.
//!
//! The rules of the specification vacate every process above an entitlement. The default settings
//! vacate only for three causes, in this order:
//!
//! 1. Work holds more than its own limit or cap allows.
//! 2. A node shrank and holds more than its capacity (W-20).
//! 3. Entitled work waits, and vacating overage on a node makes space for it.
//!
//! A process beyond its entitlement stays while no work needs its space, because the space would be
//! idle without it. Therefore each preemption serves a placement. Preemption never exceeds the
//! hourly budgets of [`budget`](crate::state::budget). It never vacates a process within the
//! entitlement of its owner.

mod clear_node;
mod squatters;

use hayward_vocabulary::{Size, WorkKind};

use crate::{
    ids::{AllocIx, NodeIx, PoolIx, WorkIx},
    input::snapshot::Policy,
    output::plan::VacateReason,
    state::{
        RoundState, budget::BudgetStop, preemption_order::preemption_key, serve_order::QueuedWork,
    },
};

/// Preempts in one tree for the waiting work of the queue.
pub(crate) fn preempt(state: &mut RoundState, tree: PoolIx, queue: &[QueuedWork]) {
    if !state.settings.evict_for_somebody {
        if state.settings.relieve_shrunken {
            relieve_shrunken_nodes(state, tree);
        }
        let mut budget_stop = None;
        for queued in queue {
            budget_stop = shrink_to_entitlement(state, queued.work).or(budget_stop);
        }
        for queued in queue.iter().filter(|_| budget_stop.is_some()) {
            state.record_budget_stop(queued.work, budget_stop.clone());
        }
        if state.settings.squatters_go_home {
            squatters::send_all_squatters_home(state, queue);
        }
        return;
    }
    for queued in queue {
        shrink_to_own_limit(state, queued.policy, queued.work);
    }
    if state.settings.relieve_shrunken {
        relieve_shrunken_nodes(state, tree);
    }
    clear_node::clear_for_waiting_work(state, tree, queue);
}

/// Returns whether the work is entitled to more processes than it has. Work of RESERVE classes gets
/// its nodes in another way.
fn is_waiting(state: &RoundState, queued: QueuedWork) -> bool {
    let work_state = &state.work[queued.work];
    queued.policy != Policy::Reserve && work_state.missing() > 0 && !work_state.is_excluded()
}

/// Shrinks work to its entitlement. Returns the budget that stopped it, if one did.
fn shrink_to_entitlement(state: &mut RoundState, work: WorkIx) -> Option<BudgetStop> {
    let excess = state.work[work].excess();
    let detail = || {
        let work_state = &state.work[work];
        let (entitlement, process_count) = (work_state.entitlement, work_state.process_count());
        format!(
            "{} is due {entitlement} processes and has {process_count}",
            state.id(work)
        )
    };
    if excess == 0 {
        return None;
    }
    let detail = detail();
    if state.work[work].cap.before_space < state.work[work].current {
        vacate_cheapest(state, work, excess, true, &detail);
        return None;
    }
    let mut budget_stop = None;
    for allocation in cheapest_allocations(state, work, excess) {
        if state.allocations[allocation].fixed {
            state.vacate(allocation, VacateReason::OwnLimit, detail.clone());
        } else if state.may_preempt(allocation) {
            state.preempt(allocation, None, detail.clone());
        } else if let Some(node) = state.allocations[allocation].node {
            budget_stop = budget_stop.or(state.budget_stop(node, &[allocation]));
        }
    }
    budget_stop
}

/// Returns up to `count` allocations of the work, cheapest to lose first.
fn cheapest_allocations(state: &RoundState, work: WorkIx, count: u64) -> Vec<AllocIx> {
    let allocations = state.work_record(work).allocations.iter();
    let mut allocations: Vec<AllocIx> = allocations
        .filter(|allocation| !state.leaving[*allocation])
        .collect();
    allocations.sort_by(|a, b| preemption_key(state, *a).cmp(&preemption_key(state, *b)));
    allocations.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    allocations
}

/// Vacates the cheapest allocations. If `is_own_limit`, the limit of the work itself is the reason,
/// and this is no preemption.
fn vacate_cheapest(
    state: &mut RoundState,
    work: WorkIx,
    count: u64,
    is_own_limit: bool,
    detail: &str,
) {
    for allocation in cheapest_allocations(state, work, count) {
        if is_own_limit || state.allocations[allocation].fixed {
            state.vacate(allocation, VacateReason::OwnLimit, detail.to_owned());
        } else {
            state.preempt(allocation, None, detail.to_owned());
        }
    }
}

/// Shrinks work that holds more than its own limit or cap allows.
fn shrink_to_own_limit(state: &mut RoundState, policy: Policy, work: WorkIx) {
    let work_state = &state.work[work];
    let limit = if policy == Policy::FairShare {
        work_state.cap.before_space
    } else {
        work_state.entitlement
    };
    let excess = work_state.current.saturating_sub(limit);
    let work_record = state.work_record(work);
    if excess == 0 || work_record.kind == WorkKind::Reservation {
        return;
    }
    if work_state.current > work_record.max_processes {
        let limit = work_record.max_processes;
        let detail = format!("{} wants at most {limit} processes", state.id(work));
        vacate_cheapest(state, work, excess, true, &detail);
    } else {
        let detail = format!(
            "{} may have {limit} processes while it starts",
            state.id(work)
        );
        vacate_cheapest(state, work, excess, false, &detail);
    }
}

/// Returns those of the given allocations whose owners exceed their entitlement, cheapest first.
fn preemptable_allocations(
    state: &RoundState,
    allocations: impl Iterator<Item = AllocIx>,
) -> Vec<AllocIx> {
    let mut allocations: Vec<AllocIx> = allocations
        .filter(|allocation| {
            let record = &state.allocations[*allocation];
            let exceeds = |work: WorkIx| state.work[work].excess() > 0;
            !state.leaving[*allocation] && !record.fixed && record.work.is_some_and(exceeds)
        })
        .collect();
    if allocations.len() > 1 {
        allocations.sort_by(|a, b| preemption_key(state, *a).cmp(&preemption_key(state, *b)));
    }
    allocations
}

/// Preempts overage on nodes that hold more than their capacity (W-20).
fn relieve_shrunken_nodes(state: &mut RoundState, tree: PoolIx) {
    for node in state.index.overfull.iter().copied() {
        let is_open = state.is_in_tree(node, tree) && state.nodes[node].is_schedulable();
        if !is_open || !is_overfull(state, node) {
            continue;
        }
        state.record_time_dependence();
        let name = &state.node_record(node).name;
        let detail = format!("node {name} shrank below what it holds");
        for allocation in preemptable_allocations(state, state.node_record(node).allocations.iter())
        {
            let exceeds = state.allocations[allocation]
                .work
                .is_some_and(|owner| state.work[owner].excess() > 0);
            if exceeds && is_overfull(state, node) {
                state.preempt(allocation, None, detail.clone());
            }
        }
    }
}

/// Returns whether the allocations that stay exceed the capacity of the node.
fn is_overfull(state: &RoundState, node: NodeIx) -> bool {
    let node_record = state.node_record(node);
    let (mut quanta, mut size) = (0_u64, Size::default());
    for record in node_record
        .allocations
        .iter()
        .filter(|allocation| !state.leaving[*allocation])
        .map(|allocation| &state.allocations[allocation])
    {
        quanta = quanta.saturating_add(record.quanta);
        size.add(&record.size);
    }
    quanta > node_record.quanta || !size.fits(&node_record.node.capacity)
}
