//! Moves squatters to their home pool when work of the pool where they squat waits (W-13). A
//! squatter is a process on a node of a pool below the home pool of its class.

use std::collections::BTreeSet;

use super::is_waiting;
use crate::{
    ids::{AllocIx, NodeIx, WorkIx},
    input::snapshot::Policy,
    state::{RoundState, serve_order::QueuedWork},
};

/// Returns the nodes with squatters. The list is empty unless `squatters_go_home` is set.
pub(super) fn nodes_with_squatters(state: &RoundState) -> Vec<NodeIx> {
    if !state.settings.squatters_go_home {
        return Vec::new();
    }
    let squatters = state.index.squatters.iter();
    let staying = squatters.filter(|allocation| !state.leaving[**allocation]);
    let nodes = staying.filter_map(|allocation| state.allocations[*allocation].node);
    nodes.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Moves squatters home from the nodes of all waiting work.
pub(super) fn send_all_squatters_home(state: &mut RoundState, queue: &[QueuedWork]) {
    let squatted_nodes = nodes_with_squatters(state);
    for queued in queue {
        if is_waiting(state, *queued) {
            send_squatters_home(state, queued.work, &squatted_nodes);
        }
    }
}

/// Moves squatters from nodes that the waiting work can use to free nodes of their own pool. Their
/// work keeps its number of processes. Returns true if any squatter moved.
pub(super) fn send_squatters_home(
    state: &mut RoundState,
    work: WorkIx,
    squatted_nodes: &[NodeIx],
) -> bool {
    let Some(home) = state.home(work).filter(|_| !squatted_nodes.is_empty()) else {
        return false;
    };
    let mut has_moved = false;
    let mut missing_processes = state.work[work]
        .missing()
        .saturating_sub(state.work[work].reserved);
    for node in squatted_nodes.iter().copied() {
        if missing_processes == 0 {
            break;
        }
        let node_state = &state.nodes[node];
        if node_state.pool != Some(home)
            || !node_state.is_schedulable()
            || !state.is_permitted(work, node)
        {
            continue;
        }
        if move_squatters_off(state, work, node) {
            missing_processes -= 1;
            has_moved = true;
        }
    }
    has_moved
}

/// Moves the squatters of a node if one process of the work fits there afterwards.
fn move_squatters_off(state: &mut RoundState, work: WorkIx, node: NodeIx) -> bool {
    let (quanta, size) = (state.work[work].process_quanta, state.size(work));
    let mut space = state.future_free(node);
    let mut budget = state.preemption_budget(node);
    let mut moves: Vec<(AllocIx, NodeIx)> = Vec::new();
    for allocation in state.node_record(node).allocations.iter() {
        if space.count_fitting(quanta, size) > 0 {
            break;
        }
        let record = &state.allocations[allocation];
        if let Some(target) =
            find_home_node(state, allocation, node, &moves).filter(|_| budget.allows(record))
        {
            space.give(record.quanta, &record.size, &record.gpus);
            moves.push((allocation, target));
        }
    }
    if budget.declined {
        state.record_time_dependence();
    }
    if moves.is_empty() || space.count_fitting(quanta, size) == 0 {
        return false;
    }
    for (allocation, target) in moves {
        let Some(owner) = state.allocations[allocation].work else {
            continue;
        };
        let detail = format!("goes home and leaves room to {}", state.id(work));
        state.preempt(allocation, Some(work), detail);
        let (quanta, size) = (state.work[owner].process_quanta, state.size(owner));
        state.grant(owner, target, quanta, size);
    }
    state.reserve(work, node);
    true
}

/// Returns a free node of the squatter's own pool that is not yet a target of `moves`.
fn find_home_node(
    state: &RoundState,
    allocation: AllocIx,
    node: NodeIx,
    moves: &[(AllocIx, NodeIx)],
) -> Option<NodeIx> {
    let record = &state.allocations[allocation];
    let owner = record.work.filter(|_| !state.leaving[allocation])?;
    let own_pool = state.home(owner)?;
    let pool = state.nodes[node].pool?;
    let squats = state.policy(owner) == Some(Policy::FairShare) && pool != own_pool;
    if !squats || !state.forest.is_within(pool, own_pool) {
        return None;
    }
    let (quanta, size) = (state.work[owner].process_quanta, state.size(owner));
    state.nodes.indices().find(|node| {
        let node_state = &state.nodes[*node];
        node_state.pool == Some(own_pool)
            && node_state.is_schedulable()
            && node_state.whole_node_for.is_none()
            && node_state.reservations.is_empty()
            && !moves.iter().any(|(_, target)| target == node)
            && state.admits(owner, *node)
            && node_state.free.count_fitting(quanta, size) > 0
    })
}
