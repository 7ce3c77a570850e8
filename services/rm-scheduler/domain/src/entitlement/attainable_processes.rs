//! Computes the reach: how many processes each piece of work could hold if everything preemptable
//! left. This is step 3 of a round.
//!
//! All resources of a process are compared with every node that the work may use. A comparison of
//! quanta alone would count processes that no node can take, and would withhold their share from
//! other work (W-1).

use hayward_vocabulary::plural::{nodes, quanta};

use crate::{
    collections::bit_set::BitSet,
    ids::{NodeIx, PoolIx, ShapeIx, TypedVec, WorkIx},
    index::{NodeKinds, Shape},
    input::snapshot::Policy,
    output::{plan::Reason, reason::Deferral},
    state::{
        RoundState,
        permanent_reasons::{ReasonDetail, find_permanent_reason, large_enough_nodes},
    },
};

/// Reach by shape, valid until the space of a node changes.
#[derive(Default)]
pub(crate) struct ReachIndex {
    by_shape: TypedVec<ShapeIx, Option<u64>>,
    /// Largest cap of the work of each shape since the last rebuild. A larger reach makes no
    /// difference.
    largest_caps: TypedVec<ShapeIx, u64>,
    /// Work with constraints, which is measured individually.
    constrained: BitSet<WorkIx>,
    /// True if the last measurement included space of allocations that departed in its round.
    after_departures: bool,
}

impl ReachIndex {
    /// Measures the shapes again. Returns for each shape whether its reach changed in a way that
    /// matters to its work.
    fn remeasure(&mut self, state: &RoundState, kinds: &NodeKinds) -> TypedVec<ShapeIx, bool> {
        let reach_changed = self.by_shape.indices().map(|index| {
            let Some(old_reach) = self.by_shape[index] else {
                return false;
            };
            let (shape, largest_cap) = (&state.index.shapes[index], self.largest_caps[index]);
            let new_reach = processes_on_kinds(state, kinds, shape, shape.quanta);
            self.by_shape[index] = Some(new_reach);
            new_reach.min(largest_cap) != old_reach.min(largest_cap)
        });
        reach_changed.collect()
    }
}

/// Measures all work against the space without fixed allocations, and limits its cap to that.
pub(crate) fn measure(state: &mut RoundState, reaches: &mut ReachIndex) {
    if !state.settings.count_what_fits {
        return;
    }
    let index = state.index;
    let changed_kinds = kinds_after_departures(state);
    let kinds = changed_kinds.as_ref().unwrap_or(&index.node_kinds);
    let nodes_changed =
        index.node_kinds_changed || changed_kinds.is_some() || reaches.after_departures;
    reaches.after_departures = changed_kinds.is_some();
    let mut to_measure: Vec<WorkIx> = state.work.dirty().collect();
    if nodes_changed && !index.rebuilt {
        let reach_changed = reaches.remeasure(state, kinds);
        if reach_changed.iter().any(|changed| *changed) {
            let all = state.work.enumerate();
            let work_of_shapes =
                all.filter(|(_, work)| reach_changed.get(work.shape) == Some(&true));
            to_measure.extend(work_of_shapes.map(|(work, _)| work));
        }
        to_measure.extend(reaches.constrained.iter());
    }
    reaches.by_shape.resize(index.shapes.len(), None);
    reaches.largest_caps.resize(index.shapes.len(), 1);
    for work in to_measure {
        measure_work(state, reaches, kinds, work);
    }
}

fn measure_work(state: &mut RoundState, reaches: &mut ReachIndex, kinds: &NodeKinds, work: WorkIx) {
    let work_state = &state.work[work];
    let shape = work_state.shape;
    reaches.constrained.set(
        work,
        work_state.has_node_list || work_state.has_reserved_node,
    );
    let reach = if work_state.class.is_none() {
        0
    } else if work_state.has_node_list {
        processes_on_listed_nodes(state, work)
    } else if work_state.has_reserved_node {
        processes_on_kinds(
            state,
            kinds,
            &state.index.shapes[shape],
            work_state.process_quanta,
        )
    } else if let Some(reach) = reaches.by_shape[shape] {
        reach
    } else {
        let quanta = state.index.shapes[shape].quanta;
        let reach = processes_on_kinds(state, kinds, &state.index.shapes[shape], quanta);
        reaches.by_shape[shape] = Some(reach);
        reach
    };
    let changed_cap = state.changed_caps.get(&work);
    let mut cap = changed_cap.map_or(state.work_record(work).usage.cap, |(cap, _)| *cap);
    let largest_cap = cap.highest().max(work_state.current).max(1);
    reaches.largest_caps[shape] = reaches.largest_caps[shape].max(largest_cap);
    if state.policy(work) == Some(Policy::FairShare) {
        let limit = reach.saturating_add(work_state.resting);
        cap.steady = cap.steady.min(limit);
        cap.now = cap.now.min(limit);
        cap.lent = cap.lent.min(limit);
    }
    let reach = reach.min(largest_cap);
    if (work_state.reach, work_state.cap) != (reach, cap) {
        let work_state = state.work.get_mut_untouched(work);
        (work_state.reach, work_state.cap) = (reach, cap);
    }
}

/// Returns the node kinds with the space that fixed allocations leave when they depart in this
/// round, or `None` if none departs. A kind is a pool and a space, with the number of such nodes.
fn kinds_after_departures(state: &RoundState) -> Option<NodeKinds> {
    if state.changed_space.is_empty() {
        return None;
    }
    let mut kinds = state.index.node_kinds.clone();
    for (node, space) in &state.changed_space {
        let node_record = &state.index.nodes[*node];
        if let Some(pool) = node_record.pool.filter(|_| node_record.schedulable) {
            if let Some(nodes) = kinds.get_mut(&(pool, node_record.space_without_fixed.clone())) {
                *nodes -= 1;
            }
            *kinds.entry((pool, space.clone())).or_default() += 1;
        }
    }
    Some(kinds)
}

/// Returns how many processes of a shape the nodes could hold. Equal nodes are measured once.
fn processes_on_kinds(state: &RoundState, kinds: &NodeKinds, shape: &Shape, quanta: u64) -> u64 {
    let may_use = |pool: PoolIx| match shape.home {
        Some(home) if shape.includes_subpools => state.forest.is_within(pool, home),
        home => home == Some(pool),
    };
    kinds
        .iter()
        .filter(|((pool, _), _)| may_use(*pool))
        .map(|((_, space), nodes)| {
            space
                .count_fitting(quanta, &shape.size)
                .saturating_mul(*nodes)
        })
        .fold(0, u64::saturating_add)
}

fn processes_on_listed_nodes(state: &RoundState, work: WorkIx) -> u64 {
    let work_state = &state.work[work];
    let listed = &state.work_record(work).constraints().nodes;
    listed
        .iter()
        .filter_map(|name| state.index.find_node(name))
        .filter(|node| state.nodes[*node].is_schedulable() && state.could_use(work, *node))
        .map(|node| {
            state
                .space_without_fixed(node)
                .count_fitting(work_state.process_quanta, state.size(work))
        })
        .fold(0, u64::saturating_add)
}

/// Explains why no node can take even one process. Nodes that take no new work now are considered
/// too, because only the size of a node is permanent (C-8).
pub(crate) fn explain_no_node(state: &RoundState, work: WorkIx) -> Deferral {
    let process_quanta = state.work[work].process_quanta;
    let (reason, detail): (_, ReasonDetail) = if !state.settings.count_what_fits {
        let (reason, detail) = reason_by_size_alone(state, work);
        (reason, detail.into())
    } else if let Some(permanent) = find_permanent_reason(state, work) {
        permanent
    } else {
        let blocked = |node: &NodeIx| {
            let avoided = state.avoids(work, *node);
            state.node_record(*node).node.block.is_some() || avoided
        };
        let could_hold: Vec<NodeIx> = large_enough_nodes(state, work).collect();
        if !could_hold.is_empty() && could_hold.iter().all(blocked) {
            (
                Reason::AllBlocked,
                describe_blocked_nodes(state, &could_hold).into(),
            )
        } else {
            let detail = "no node has that much room that is free or could be freed";
            (Reason::InsufficientResources, detail.into())
        }
    };
    Deferral {
        reason,
        refused: false,
        detail: format!("one process needs {}: {detail}", quanta(process_quanta)),
    }
}

/// Describes the blocked nodes. Blocks apply to all work. A node may also be closed for this work
/// alone, by a block, its node list or anti-affinity.
fn describe_blocked_nodes(state: &RoundState, could_hold: &[NodeIx]) -> String {
    let is_blocked = |node: &&NodeIx| state.node_record(**node).node.block.is_some();
    let blocked = could_hold.iter().filter(is_blocked).count();
    let all = nodes(could_hold.len() as u64);
    match (blocked, could_hold.len() - blocked) {
        (_, 0) => format!("{all} could hold it, and none is free of blocks"),
        (0, _) => format!("{all} could hold it, and this work may not go there now"),
        (_, avoided) => {
            format!("{all} could hold it; {blocked} blocked, {avoided} closed to this work")
        }
    }
}

/// Chooses the reason from size alone. Without the setting `count_what_fits`, entitlements do not
/// depend on node lists.
fn reason_by_size_alone(state: &RoundState, work: WorkIx) -> (Reason, &'static str) {
    if large_enough_nodes(state, work).next().is_some() {
        let detail = "no node has that much room that is free or could be freed";
        (Reason::InsufficientResources, detail)
    } else {
        let detail = "no node it may use is large enough";
        (Reason::NoHostLargeEnough, detail)
    }
}
