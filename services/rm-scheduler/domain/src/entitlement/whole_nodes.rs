//! Entitlements of RESERVE groups. This work holds whole nodes.
//!
//! Work is entitled to a node only after the node is reserved for it. A node can be reserved if it
//! is free or all its allocations can leave. A hole is the space on one node that work can use. The
//! hole of a reserved node is then no longer available to other work.
//!
//! Two settings change the rules. With `count_what_fits`, only nodes with a hole for the process
//! are counted. With `clear_promised`, a reserved node stays reserved, and allocations that
//! already leave do not prevent a reservation.

use std::collections::BTreeMap;

use hayward_vocabulary::WorkKind;

use super::{
    HoleTables,
    fixed_share::{defer, explain_over_allotment},
    work_by_class_and_age,
};
use crate::{
    ids::{AllocIx, ClassIx, NodeIx, PoolIx, WorkIx},
    output::{plan::Reason, reason::Deferral},
    state::{
        RoundState,
        whole_nodes::{acceptable_quanta, accepts_node},
    },
};

/// Nodes that could be reserved, by home pool of the work.
type NodesByHome = BTreeMap<PoolIx, Vec<NodeIx>>;

/// Finds nodes and reserves them, by class and age over all pools, because allotments span pools.
pub(crate) fn reserve(state: &mut RoundState, tables: &mut HoleTables, classes: &[ClassIx]) {
    let mut candidates = NodesByHome::new();
    for work in work_by_class_and_age(state, classes) {
        reserve_for(state, tables, work, &mut candidates);
    }
}

/// Returns the nodes that can be reserved: free nodes first, then nodes that must be cleared. Both
/// are sorted by size, then by the work that clearing would lose, then by name.
fn clearable_nodes(state: &RoundState, home: PoolIx) -> Vec<NodeIx> {
    let mut clearable: Vec<_> = state
        .nodes
        .indices()
        .filter(|node| {
            let (node_state, allocations) =
                (&state.nodes[*node], &state.node_record(*node).allocations);
            node_state.pool == Some(home)
                && node_state.is_schedulable()
                && node_state.whole_node_for.is_none()
                && node_state.quanta > 0
                && allocations
                    .iter()
                    .all(|allocation| is_clearable(state, allocation))
        })
        .map(|node| (node_rank(state, node), node))
        .collect();
    clearable.sort_unstable();
    clearable.into_iter().map(|(_, node)| node).collect()
}

/// Returns true if the allocation can leave so that its node can be reserved.
fn is_clearable(state: &RoundState, allocation: AllocIx) -> bool {
    let record = &state.allocations[allocation];
    !record.fixed || (state.settings.clear_promised && state.leaving[allocation])
}

/// Returns the rank of a node: its stage, its quanta, and the work that clearing would lose. With
/// the setting `clear_promised`, allocations that already leave do not count, so nodes that become
/// empty anyway rank before nodes that must be cleared.
fn node_rank(state: &RoundState, node: NodeIx) -> (u8, u64, u64) {
    let node_state = &state.nodes[node];
    let ignores_leaving = state.settings.clear_promised;
    let stays = |allocation: &AllocIx| !ignores_leaving || !state.leaving[*allocation];
    let allocations = &state.node_record(node).allocations;
    let staying = allocations.iter().filter(stays);
    let invested = staying
        .clone()
        .map(|allocation| investment_ms(state, allocation))
        .fold(0, u64::saturating_add);
    // Stage 0: free. Stage 1: becomes empty anyway. Stage 2: must be cleared.
    let stage = match (allocations.is_empty(), staying.count()) {
        (true, _) => 0,
        (false, 0) => 1,
        (false, _) => 2,
    };
    (stage, node_state.quanta, invested)
}

/// Returns the milliseconds spent on tasks in flight, or 0 before the process runs.
fn investment_ms(state: &RoundState, allocation: AllocIx) -> u64 {
    if state.allocations[allocation].running {
        state.invested_ms(allocation)
    } else {
        0
    }
}

/// Reserves nodes for one piece of work, up to its cap. Stores a deferral if it gets none.
fn reserve_for(
    state: &mut RoundState,
    tables: &mut HoleTables,
    work: WorkIx,
    cache: &mut NodesByHome,
) {
    let Some(home) = state.home(work) else { return };
    let work_state = &state.work[work];
    let (wanted, current) = (work_state.cap.now, work_state.current);
    let quanta = work_state.process_quanta;
    if work_state.ended {
        return;
    }
    let entitlement = match state.work_record(work).kind {
        WorkKind::Reservation => current,
        _ => current.min(wanted),
    };
    state.set_entitlement(work, entitlement);
    if current == 0 && wanted > 0 && state.allotment_left(work, quanta) == 0 {
        defer(state, work, |state, work| {
            explain_over_allotment(state, work, quanta)
        });
        return;
    }
    if state.work[work].entitlement >= wanted {
        return;
    }
    // The list is cached, because a reservation only removes nodes from it.
    let candidates = cache.entry(home);
    let candidates = candidates.or_insert_with(|| clearable_nodes(state, home));
    while state.work[work].entitlement < wanted {
        let chosen = candidates.iter().position(|node| {
            // A group of higher priority may already use the hole of this node.
            let has_hole = || tables.get(home).count_processes(state.nodes[*node].quanta) > 0;
            accepts_node(state, work, *node) && (!state.settings.count_what_fits || has_hole())
        });
        let Some(position) = chosen else {
            defer_if_empty(state, work, |state, work| {
                explain_no_node(state, work, home)
            });
            return;
        };
        let quanta = state.nodes[candidates[position]].quanta;
        if state.allotment_left(work, quanta) == 0 {
            defer_if_empty(state, work, |state, work| {
                explain_over_allotment(state, work, quanta)
            });
            return;
        }
        let node = candidates.remove(position);
        let holes = tables.get_mut(home);
        // If no hole has exactly this size, a larger one is filled in part.
        if !holes.remove(quanta) {
            holes.fill_smallest_first(1, quanta);
        }
        reserve_node(state, work, node);
    }
}

/// Reserves a whole node for the work, and adds it to the entitlement.
fn reserve_node(state: &mut RoundState, work: WorkIx, node: NodeIx) {
    let quanta = state.nodes[node].quanta;
    state.use_allotment(work, quanta, 1);
    state.nodes[node].whole_node_for = Some(work);
    state.whole_nodes.entry(work).or_default().push(node);
    let work_state = &mut state.work[work];
    work_state.entitlement += 1;
    if state.snapshot.tunables.reserve_overage_bytes.is_some() {
        // From now on the work accepts only this size.
        (work_state.process_quanta, work_state.has_reserved_node) = (quanta, true);
    }
}

fn defer_if_empty(
    state: &mut RoundState,
    work: WorkIx,
    deferral: impl FnOnce(&RoundState, WorkIx) -> Deferral,
) {
    if state.work[work].entitlement == 0 {
        defer(state, work, deferral);
    }
}

/// Explains why no node can be reserved for the work.
fn explain_no_node(state: &RoundState, work: WorkIx, home: PoolIx) -> Deferral {
    let range = acceptable_quanta(state, work);
    let mut nodes_of_size = state
        .nodes
        .enumerate()
        .filter(|(_, node_state)| {
            node_state.pool == Some(home) && range.contains(&node_state.quanta)
        })
        .map(|(node, _)| node)
        .filter(|node| !state.settings.count_what_fits || accepts_node(state, work, *node))
        .peekable();
    let quanta = state.work[work].process_quanta;
    let (reason, detail) = if nodes_of_size.peek().is_none() {
        (
            Reason::NoHostOfSize,
            format!("no node of its pool has an acceptable size ({quanta})"),
        )
    } else if nodes_of_size.all(|node| state.node_record(node).node.block.is_some()) {
        (
            Reason::AllBlocked,
            "every node that could be reserved is blocked".into(),
        )
    } else {
        let detail = "nodes of that size exist, but none is free or could be cleared";
        (Reason::ResourcesExhausted, detail.into())
    };
    Deferral {
        reason,
        refused: false,
        detail,
    }
}
