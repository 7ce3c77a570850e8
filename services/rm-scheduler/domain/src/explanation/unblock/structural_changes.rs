//! Structural changes that help work which would otherwise wait for ever. Examples are less fixed
//! space on a node, an open or listed node, one more node, or a smaller process.

use hayward_vocabulary::NodeName;

use crate::{
    ids::{NodeIx, WorkIx},
    input::snapshot::Policy,
    output::plan::Unblock,
    state::RoundState,
    state::whole_nodes::accepts_node,
};

/// Names the node on which the fewest quanta of fixed allocations must be freed. Returns `None` if
/// a node could take the work after preemption.
pub(super) fn free_fixed_space(state: &RoundState, work: WorkIx) -> Option<Unblock> {
    let quanta = state.work[work].process_quanta;
    let lacking = |node: NodeIx| {
        let fixed = fixed_quanta(state, node);
        if needs_whole_node(state, work) {
            fixed
        } else {
            (quanta + fixed).saturating_sub(state.nodes[node].quanta)
        }
    };
    let open = suitable_nodes(state, work)
        .filter(|node| state.nodes[*node].is_schedulable() && state.is_permitted(work, *node));
    let (lacking, node) = open.map(|node| (lacking(node), node)).min()?;
    let node = state.node_record(node).name.clone();
    (lacking > 0).then_some(Unblock::FreeRoom {
        node,
        quanta: lacking,
    })
}

/// Returns the change that helps when no open node is suitable: a closed node, a node outside the
/// list, or one more node.
pub(super) fn open_or_add_node(state: &RoundState, work: WorkIx) -> Unblock {
    let mut closed = suitable_nodes(state, work).filter(|node| {
        let is_closed = !state.nodes[*node].is_schedulable();
        is_closed && state.is_permitted(work, *node) && could_hold(state, work, *node)
    });
    let open_node = closed.next().map(|node| Unblock::OpenNode {
        node: state.node_record(node).name.clone(),
    });
    open_node.unwrap_or_else(|| list_or_add_node(state, work))
}

/// Returns the change that helps work with a node list: one more listed node, or one more node.
pub(super) fn list_or_add_node(state: &RoundState, work: WorkIx) -> Unblock {
    let quanta = state.work[work].process_quanta;
    let list_node = find_unlisted_node(state, work).map(|node| Unblock::ListNode { node });
    list_node.unwrap_or(Unblock::AddNode { quanta })
}

/// Returns, among the open nodes outside the list of the work, the one that lacks the fewest
/// quanta.
fn find_unlisted_node(state: &RoundState, work: WorkIx) -> Option<NodeName> {
    let quanta = state.work[work].process_quanta;
    let lacking = |node: &NodeIx| {
        let future_quanta = state.future_quanta_for(*node, Some(work));
        quanta.saturating_sub(future_quanta)
    };
    let unlisted = suitable_nodes(state, work).filter(|node| {
        let is_open = state.nodes[*node].is_schedulable();
        is_open && !state.admits(work, *node) && could_hold(state, work, *node)
    });
    let found = unlisted.min_by_key(lacking)?;
    Some(state.node_record(found).name.clone())
}

/// Returns the largest process, in quanta, that an open node could hold. It is smaller than the
/// present process, and has at most `max` quanta.
pub(super) fn largest_smaller_process(state: &RoundState, work: WorkIx, max: u64) -> Option<u64> {
    let quanta = state.work[work].process_quanta;
    let needs_whole = needs_whole_node(state, work);
    let open = state
        .nodes
        .indices()
        .filter(|node| state.nodes[*node].is_schedulable() && state.is_permitted(work, *node));
    let capacities = open.filter_map(|node| {
        let (capacity, fixed) = (state.nodes[node].quanta, fixed_quanta(state, node));
        if needs_whole {
            (fixed == 0).then_some(capacity)
        } else {
            Some(capacity.saturating_sub(fixed))
        }
    });
    capacities
        .filter(|capacity| (1..quanta).contains(capacity) && *capacity <= max)
        .max()
}

/// Returns whether no node of the home pool has an acceptable size, open or not.
pub(super) fn has_no_host_of_size(state: &RoundState, work: WorkIx) -> bool {
    let is_home = |node: &NodeIx| state.nodes[*node].pool == state.home(work);
    let mut at_home = state.nodes.indices().filter(is_home);
    needs_whole_node(state, work) && !at_home.any(|node| accepts_node(state, work, node))
}

/// Returns the quanta of the smallest node that the work could get. A whole node may be larger than
/// requested.
pub(super) fn smallest_node_quanta(state: &RoundState, work: WorkIx) -> u64 {
    let quanta = suitable_nodes(state, work).map(|node| state.nodes[node].quanta);
    let min = if needs_whole_node(state, work) {
        quanta.min()
    } else {
        None
    };
    min.unwrap_or(state.work[work].process_quanta)
}

/// Returns the nodes that could hold the work if they were empty, open and listed.
fn suitable_nodes(state: &RoundState, work: WorkIx) -> impl Iterator<Item = NodeIx> {
    let quanta = state.work[work].process_quanta;
    state.nodes.indices().filter(move |node| {
        let node_state = &state.nodes[*node];
        let is_large_enough = if needs_whole_node(state, work) {
            node_state.quanta == quanta || accepts_node(state, work, *node)
        } else {
            node_state.quanta >= quanta
        };
        let capacity = &state.node_record(*node).node.capacity;
        is_large_enough
            && state.requested_size(work).fits(capacity)
            && node_state
                .pool
                .is_some_and(|pool| state.may_use(work, pool))
            && !state.avoids(work, *node)
    })
}

/// Returns whether space for one process is free on the node, or could be freed.
fn could_hold(state: &RoundState, work: WorkIx, node: NodeIx) -> bool {
    let (capacity, fixed) = (state.nodes[node].quanta, fixed_quanta(state, node));
    if needs_whole_node(state, work) {
        fixed == 0
    } else {
        capacity.saturating_sub(fixed) >= state.work[work].process_quanta
    }
}

fn needs_whole_node(state: &RoundState, work: WorkIx) -> bool {
    state.policy(work) == Some(Policy::Reserve)
}

/// Returns the quanta of a node in fixed allocations that do not leave.
fn fixed_quanta(state: &RoundState, node: NodeIx) -> u64 {
    let held = state.node_record(node).allocations.iter();
    let staying = held
        .filter(|allocation| state.allocations[*allocation].fixed && !state.leaving[*allocation]);
    staying
        .map(|allocation| state.allocations[allocation].quanta)
        .sum()
}

/// Returns the change after which the work is within its allotment: a smaller process, if no node
/// has the size, or a larger allotment. Returns `None` if the work has no allotment.
pub(super) fn fit_into_allotment(state: &RoundState, work: WorkIx) -> Option<Unblock> {
    let (limit, used) = state.allotment(work)?;
    let quantum = state.quantum_bytes(work).max(1);
    let left = limit.saturating_sub(used) / quantum;
    if has_no_host_of_size(state, work)
        && let Some(quanta) = largest_smaller_process(state, work, left)
    {
        return Some(Unblock::AskForLess { quanta });
    }
    let needed = smallest_node_quanta(state, work).saturating_mul(quantum);
    let bytes = used.saturating_add(needed).saturating_sub(limit);
    Some(Unblock::RaiseAllotment { bytes })
}
