//! Placement of RESERVE work: grants the whole nodes that are reserved for the work. If such a node
//! is not empty, its allocations are vacated first.

use crate::{
    ids::{AllocIx, NodeIx, WorkIx},
    state::{RoundState, preemption_order::preemption_key, whole_nodes::accepts_node},
};

/// Places work of RESERVE classes.
pub(crate) fn place(state: &mut RoundState, work: WorkIx) {
    if state.work[work].is_excluded() {
        return;
    }
    if state.settings.clear_promised {
        grant_or_clear(state, work);
        return;
    }
    grant_free_nodes(state, work);
    for node in state.whole_nodes_for(work).to_vec() {
        if state.work[work].missing() > 0 {
            vacate_overage(state, work, node);
        }
    }
}

/// Grants free nodes with exactly the quanta of the work. Nodes that are reserved for this work
/// come first, and nodes reserved for other work come last.
fn grant_free_nodes(state: &mut RoundState, work: WorkIx) {
    let Some(home) = state.home(work) else { return };
    if state.work[work].missing() == 0 {
        return;
    }
    let quanta = state.work[work].process_quanta;
    // Rank and node. Nodes with a lower rank are granted first.
    let mut free: Vec<(u8, NodeIx)> = state
        .nodes
        .indices()
        .filter(|node| {
            let node_state = &state.nodes[*node];
            node_state.pool == Some(home)
                && node_state.quanta == quanta
                && node_state.is_schedulable()
                && state.node_record(*node).allocations.is_empty()
                && node_state.granted.is_empty()
                && accepts_node(state, work, *node)
        })
        .map(|node| match state.nodes[node].whole_node_for {
            Some(other) if other == work => (0, node),
            None => (1, node),
            Some(_) => (2, node),
        })
        .collect();
    free.sort_unstable();
    let missing = usize::try_from(state.work[work].missing()).unwrap_or(usize::MAX);
    for (_, node) in free.into_iter().take(missing) {
        grant_node(state, work, node);
    }
}

fn grant_node(state: &mut RoundState, work: WorkIx, node: NodeIx) {
    let quanta = state.nodes[node].quanta;
    let capacity = &state.node_record(node).node.capacity;
    state.grant(work, node, quanta, capacity);
}

/// Vacates allocations on the node while their owners exceed their entitlement.
fn vacate_overage(state: &mut RoundState, work: WorkIx, node: NodeIx) {
    let may_leave =
        |allocation: &AllocIx| !state.leaving[*allocation] && !state.allocations[*allocation].fixed;
    let allocations = state.node_record(node).allocations.iter();
    let mut allocations: Vec<AllocIx> = allocations.filter(may_leave).collect();
    allocations.sort_by(|a, b| preemption_key(state, *a).cmp(&preemption_key(state, *b)));
    for allocation in allocations {
        let owner = state.allocations[allocation].work;
        if owner.is_some_and(|owner| state.work[owner].excess() > 0) {
            if !state.may_preempt(allocation) {
                let budget_stop = state.budget_stop(node, &[allocation]);
                state.record_budget_stop(work, budget_stop);
                continue;
            }
            let detail = clearing_detail(state, work, node);
            state.preempt(allocation, Some(work), detail);
        }
    }
}

fn clearing_detail(state: &RoundState, work: WorkIx, node: NodeIx) -> String {
    format!(
        "node {} is cleared for {}",
        state.node_record(node).name,
        state.id(work)
    )
}

/// Grants reserved nodes that are empty. Vacates all allocations on the other reserved nodes at
/// once, because vacating only overage would take several rounds (W-33).
fn grant_or_clear(state: &mut RoundState, work: WorkIx) {
    for node in state.whole_nodes_for(work).to_vec() {
        if state.work[work].missing() == 0 {
            return;
        }
        if state.node_record(node).allocations.is_empty() {
            grant_node(state, work, node);
            continue;
        }
        let detail = clearing_detail(state, work, node);
        let staying = state.node_record(node).allocations.iter();
        let staying: Vec<AllocIx> = staying
            .filter(|allocation| !state.leaving[*allocation])
            .collect();
        if let Some(budget_stop) = state.budget_stop(node, &staying) {
            // The node stays reserved, and becomes empty as its allocations end.
            state.record_budget_stop(work, Some(budget_stop));
            continue;
        }
        for allocation in staying {
            state.preempt(allocation, Some(work), detail.clone());
        }
        state.work[work].reserved += 1;
    }
}
