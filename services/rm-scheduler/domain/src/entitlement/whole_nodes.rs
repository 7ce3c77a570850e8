//! RESERVE groups: whole nodes.
//!
//! A request is counted only for a node that is reserved for it: free, or with preemptable
//! allocations alone. A reserved node is out of the hole tables of all others.

use std::collections::BTreeMap;

use hayward_vocabulary::{Size, WorkKind};

use super::{
    HoleTables, by_class_and_age,
    fixed_share::{defer, over_allotment},
};
use crate::{
    ids::{AllocIx, NodeIx, WorkIx},
    output::{plan::Reason, reason::Deferral},
    preemption::cheapest,
    state::RoundState,
};

/// By pool with such work: the nodes that could be reserved.
type NodesByClass = BTreeMap<usize, Vec<NodeIx>>;

/// Finds nodes and reserves them, by class and age over all pools, because allotments span pools.
pub(crate) fn reserve(state: &mut RoundState, tables: &mut HoleTables, classes: &[usize]) {
    let mut candidates = NodesByClass::new();
    for work in by_class_and_age(state, classes) {
        promise_one(state, tables, work, &mut candidates);
    }
}

/// Nodes without fixed allocations of others: free ones, then those to be cleared, each smallest
/// first, then by least lost work, then by name.
fn clearable(state: &RoundState, home: usize) -> Vec<NodeIx> {
    let mut found: Vec<_> = state
        .nodes
        .indices()
        .filter(|node| {
            let (node_state, allocation) =
                (&state.nodes[*node], &state.node_record(*node).allocations);
            node_state.pool == Some(home)
                && node_state.is_schedulable()
                && node_state.whole_node_for.is_none()
                && node_state.quanta > 0
                && allocation
                    .iter()
                    .all(|allocation| is_clearable(state, allocation))
        })
        .map(|node| (rank(state, node), node))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, node)| node).collect()
}

fn is_clearable(state: &RoundState, allocation: AllocIx) -> bool {
    let record = &state.allocations[allocation];
    !record.fixed || (state.settings.clear_promised && state.leaving[allocation])
}

/// With `clear_promised`, nodes that empty anyway come before nodes that would have to be cleared.
fn rank(state: &RoundState, node: NodeIx) -> (u8, u64, u64) {
    let node_state = &state.nodes[node];
    let clears = state.settings.clear_promised;
    let counts = |allocation: &AllocIx| !clears || !state.leaving[*allocation];
    let allocation = &state.node_record(node).allocations;
    let staying = allocation.iter().filter(counts);
    let invested = staying
        .clone()
        .map(|allocation| investment_ms(state, allocation))
        .fold(0, u64::saturating_add);
    let stage = match (allocation.is_empty(), staying.count()) {
        (true, _) => 0,
        (false, 0) => 1,
        (false, _) => 2,
    };
    (stage, node_state.quanta, invested)
}

/// Milliseconds spent on tasks in flight; 0 before the process runs.
fn investment_ms(state: &RoundState, allocation: AllocIx) -> u64 {
    if state.allocations[allocation].running {
        state.invested_ms(allocation)
    } else {
        0
    }
}

fn promise_one(
    state: &mut RoundState,
    tables: &mut HoleTables,
    at: WorkIx,
    known: &mut NodesByClass,
) {
    let Some(home) = state.home(at) else { return };
    let work = &state.work[at];
    let (wanted, current, quanta) = (work.cap.now, work.current, work.process_quanta);
    if work.ended {
        return;
    }
    let counted = match state.work_record(at).kind {
        WorkKind::Reservation => current,
        _ => current.min(wanted),
    };
    state.count(at, counted);
    if current == 0 && wanted > 0 && state.allotment_left(at, quanta) == 0 {
        defer(state, at, |state, work| over_allotment(state, work, quanta));
        return;
    }
    if state.work[at].counted >= wanted {
        return;
    }
    // A reservation only removes nodes from the list.
    let candidates = known.entry(home);
    let candidates = candidates.or_insert_with(|| clearable(state, home));
    while state.work[at].counted < wanted {
        let chosen = candidates.iter().position(|node| {
            let node_state = &state.nodes[*node];
            // A group of better priority may already count on this space.
            accepts(state, at, *node)
                && (!state.settings.count_what_fits
                    || tables.of(home).processes(node_state.quanta) > 0)
        });
        let Some(position) = chosen else {
            defer_if_empty(state, at, |state, work| no_node(state, work, home));
            return;
        };
        let quanta = state.nodes[candidates[position]].quanta;
        if state.allotment_left(at, quanta) == 0 {
            defer_if_empty(state, at, |state, work| over_allotment(state, work, quanta));
            return;
        }
        let node = candidates.remove(position);
        let holes = tables.of_mut(home);
        if !holes.remove(quanta) {
            holes.count_out(1, quanta);
        }
        state.use_allotment(at, quanta, 1);
        state.nodes[node].whole_node_for = Some(at);
        state.whole_nodes.entry(at).or_default().push(node);
        let work_state = &mut state.work[at];
        work_state.counted += 1;
        if state.snapshot.tunables.reserve_overage_bytes.is_some() {
            // From now on the work accepts only this size.
            (work_state.process_quanta, work_state.upgraded) = (quanta, true);
        }
    }
}

fn defer_if_empty(
    state: &mut RoundState,
    work: WorkIx,
    why: impl FnOnce(&RoundState, WorkIx) -> Deferral,
) {
    if state.work[work].counted == 0 {
        defer(state, work, why);
    }
}

/// Acceptable quanta of a node. Without a configured overage, any larger node is.
fn acceptable(state: &RoundState, work: WorkIx) -> std::ops::RangeInclusive<u64> {
    let work_state = &state.work[work];
    let work_record = state.requested_size(work);
    let least = if *work_record == Size::default() {
        1
    } else {
        work_state.process_quanta
    };
    if work_state.upgraded && state.snapshot.tunables.reserve_overage_bytes.is_some() {
        return work_state.process_quanta..=work_state.process_quanta;
    }
    let most = match state.snapshot.tunables.reserve_overage_bytes {
        None => u64::MAX,
        Some(_) if state.work_record(work).kind != WorkKind::Reservation => least,
        Some(_) if *work_record == Size::default() => u64::MAX,
        Some(overage) => {
            let mut larger = work_record.clone();
            larger.memory_bytes = larger.memory_bytes.saturating_add(overage);
            let quantum = state.index.quantum(state.home(work));
            quantum.work_order(&larger)
        }
    };
    least..=most
}

/// True if the size is acceptable and the node is listed. The state of the node does not matter.
pub(crate) fn accepts(state: &RoundState, work: WorkIx, node: NodeIx) -> bool {
    let node_record = state.node_record(node);
    acceptable(state, work).contains(&node_record.quanta)
        && state.requested_size(work).fits(&node_record.node.capacity)
        && state.admits(work, node)
}

fn no_node(state: &RoundState, work: WorkIx, home: usize) -> Deferral {
    let range = acceptable(state, work);
    let mut of_size = state
        .nodes
        .enumerate()
        .filter(|(_, m)| m.pool == Some(home) && range.contains(&m.quanta))
        .map(|(node, _)| node)
        .filter(|m| !state.settings.count_what_fits || accepts(state, work, *m))
        .peekable();
    let quanta = state.work[work].process_quanta;
    let (reason, detail) = if of_size.peek().is_none() {
        (
            Reason::NoHostOfSize,
            format!("no node of its pool has an acceptable size ({quanta})"),
        )
    } else if of_size.all(|node| state.node_record(node).node.block.is_some()) {
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

/// True if this whole node is reserved. Mostly none is, which is known without reading the node.
pub(crate) fn is_whole_node_taken(state: &RoundState, node: NodeIx) -> bool {
    !state.whole_nodes.is_empty() && state.nodes[node].whole_node_for.is_some()
}

/// Places work of RESERVE classes.
pub(crate) fn place(state: &mut RoundState, work: WorkIx) {
    if state.work[work].is_excluded() {
        return;
    }
    if state.settings.clear_promised {
        take_or_clear(state, work);
        return;
    }
    take_free(state, work);
    for node in state.whole_nodes_for(work).to_vec() {
        if state.work[work].missing() > 0 {
            shed_overage(state, work, node);
        }
    }
}

/// Takes free nodes of exactly its quanta: those reserved for it before others.
fn take_free(state: &mut RoundState, at: WorkIx) {
    let Some(home) = state.home(at) else { return };
    if state.work[at].missing() == 0 {
        return;
    }
    let quanta = state.work[at].process_quanta;
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
                && accepts(state, at, *node)
        })
        .map(|node| match state.nodes[node].whole_node_for {
            Some(work) if work == at => (0, node),
            None => (1, node),
            Some(_) => (2, node),
        })
        .collect();
    free.sort_unstable();
    let missing = usize::try_from(state.work[at].missing()).unwrap_or(usize::MAX);
    for (_, node) in free.into_iter().take(missing) {
        take(state, at, node);
    }
}

fn take(state: &mut RoundState, work: WorkIx, machine: NodeIx) {
    let quanta = state.nodes[machine].quanta;
    let node = &state.node_record(machine).node;
    state.grant(work, machine, quanta, &node.capacity);
}

/// Vacates allocations on the node, as far as their owners exceed their entitlement.
fn shed_overage(state: &mut RoundState, work: WorkIx, node: NodeIx) {
    let may_go =
        |allocation: &AllocIx| !state.leaving[*allocation] && !state.allocations[*allocation].fixed;
    let allocations = state.node_record(node).allocations.iter();
    let mut allocations: Vec<AllocIx> = allocations.filter(may_go).collect();
    allocations.sort_by(|a, b| cheapest(state, *a).cmp(&cheapest(state, *b)));
    for allocation in allocations {
        let owner = state.allocations[allocation].work;
        if owner.is_some_and(|owner| state.work[owner].excess() > 0) {
            if !state.may_take_back(allocation) {
                let budget_stop = state.budget_stop(node, &[allocation]);
                state.record_budget_stop(work, budget_stop);
                continue;
            }
            let detail = clearing(state, work, node);
            state.preempt(allocation, Some(work), detail);
        }
    }
}

fn clearing(state: &RoundState, work: WorkIx, node: NodeIx) -> String {
    format!(
        "node {} is cleared for {}",
        state.node_record(node).name,
        state.id(work)
    )
}

/// Takes reserved nodes that are empty, and clears the others at once. Clearing only what exceeds
/// entitlements would take several rounds (W-33).
fn take_or_clear(state: &mut RoundState, work: WorkIx) {
    for node in state.whole_nodes_for(work).to_vec() {
        if state.work[work].missing() == 0 {
            return;
        }
        if state.node_record(node).allocations.is_empty() {
            take(state, work, node);
            continue;
        }
        let detail = clearing(state, work, node);
        let staying = state.node_record(node).allocations.iter();
        let staying: Vec<AllocIx> = staying
            .filter(|allocation| !state.leaving[*allocation])
            .collect();
        if let Some(budget_stop) = state.budget_stop(node, &staying) {
            // The node stays reserved, and empties as its allocations end.
            state.record_budget_stop(work, Some(budget_stop));
            continue;
        }
        for allocation in staying {
            state.preempt(allocation, Some(work), detail.clone());
        }
        state.work[work].reserved += 1;
    }
}
